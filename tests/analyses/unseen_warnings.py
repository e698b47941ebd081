"""Warnings of what the recorder itself wrote: object storage, files read past tracers, calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import vanidl
from tests.makers.calls_files import PREAD, Call, Calls, calls_file, read_loop
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


def called(folder: Path, **fields: Any) -> tuple[Notice, ...]:
    """Warnings of a process whose calls were recorded: 2,000 reads, unless it says otherwise."""
    calls = Calls(**{"threads": {10: read_loop(2000)}, "names": {1: b"/data/a.bin"}, **fields})
    (folder / calls.name).write_bytes(calls_file(calls))
    return vanidl.open_run(folder).coverage.warnings


def loaded_beside_calls(folder: Path) -> tuple[Notice, ...]:
    """Warnings of np.load where each of its calls was recorded."""
    called(folder)
    return read_past_tracers(folder, "loaded", "/data/a.npy", 8 << 20)


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
        {
            "np.memmap": lambda f: read_past_tracers(f, "mapped", "/data/a.npy", 8 << 20),
            "its calls were recorded": loaded_beside_calls,
        },
    ),
    "calls_unfinished": (
        {"a killed process": lambda folder: called(folder, ended=None)},
        {"an ended one": called},
    ),
    "clock_set": (
        {"an hour back": lambda folder: called(folder, anchors=(0, -3600 * 1000 * MS))},
        {"a microsecond": lambda folder: called(folder, anchors=(0, 1000))},
    ),
    "reads_traced": (
        {"all by the tracer": lambda f: called(f, rchar=(5, 5 + 2000 * 4096))},
        {
            "no count of the kernel": called,
            "little": lambda f: called(f, threads={10: read_loop(200)}, rchar=(5, 5 + 200 * 4096)),
            "most of it was not": lambda f: called(f, rchar=(5, 5 + (30 << 20))),
        },
    ),
    "files_unnamed": (
        {"no room for names": lambda folder: called(folder, names_missing=3)},
        {"a file without a name": lambda f: called(f, threads={10: [Call(PREAD, 1, 1, 0, 9)]})},
    ),
}
