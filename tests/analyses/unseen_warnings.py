"""Warnings about what the recorder saw and no tracer could: object storage, mapped files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import vanidl
from tests.makers.object_files import OK, objects_of
from vanidl.model.warnings import Notice
from vanidl.record.injected.vanidl_steps import journal, operations

Case = Callable[[Path], tuple[Notice, ...]]

MS = 1_000_000
GET = (operations.READ | OK, "s3://b/a", 0, 10, 0, 2)


def requested(folder: Path, *rows: tuple[int, str, int, int, int, int], cut: bool = False) -> Case:
    """Warnings of a run with these requests; `cut`: its process was killed."""
    path = objects_of(folder, rows or [GET])
    if cut:
        content = path.read_bytes()
        path.write_bytes(content[: content.rindex(b'{"end_ns"') - operations._ROW.size])
    return vanidl.open_run(folder).coverage.warnings


def read_past_tracers(folder: Path, way: str, path: object, size: object) -> tuple[Notice, ...]:
    """Warnings of recorded steps whose process read a file past every tracer."""
    events = journal.Journal(str(folder))
    events.describe({"unseen": way, "path": path, "size": size})
    for k in range(1, 9):
        events.add(journal.OPTIMIZER, 0, k * 1000 * MS, k * 1000 * MS)
    events.close()
    return vanidl.open_run(folder).coverage.warnings


UNSEEN: dict[str, tuple[dict[str, Case], dict[str, Case]]] = {
    "object_requests_failed": (
        {"no answer": lambda f: requested(f, GET, (operations.READ, "s3://b/a", 0, 0, 3, 4))},
        {"all answered": requested},
    ),
    "object_bytes_unknown": (
        {
            "no length": lambda f: requested(
                f, GET, (operations.READ | OK | operations.UNSIZED, "s3://b/a", 0, 0, 3, 4)
            )
        },
        {"all sized": requested},
    ),
    "objects_unfinished": (
        {"a killed process": lambda folder: requested(folder, cut=True)},
        {"an ended one": requested},
    ),
    "files_mapped": (
        {"np.memmap": lambda f: read_past_tracers(f, "mapped", "/data/a.npy", 8 << 20)},
        {
            "a size that is no number": lambda f: read_past_tracers(f, "mapped", "/a", "8"),
            "np.load": lambda f: read_past_tracers(f, "loaded", "/data/a.npy", 8 << 20),
        },
    ),
    "files_loaded": (
        {"np.load": lambda f: read_past_tracers(f, "loaded", "/data/a.npy", 8 << 20)},
        {"np.memmap": lambda f: read_past_tracers(f, "mapped", "/data/a.npy", 8 << 20)},
    ),
}
