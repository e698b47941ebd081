"""Files of operations on object storage, by the recorder's own writer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vanidl.record.injected.vanidl_steps import operations as written

START = 1_700_000_000_000_000_000
MS = 1_000_000
OK = 200 << written.STATUS_SHIFT

Row = tuple[int, str, int, int, int, int]
"""(kind and status, name, offset, bytes, begin and end in ms)."""

ROWS: tuple[Row, ...] = (
    (written.LIST | OK, "s3://data/", -1, 300, 5, 9),
    (written.STAT | OK, "s3://data/a.npy", -1, 0, 10, 12),
    (written.READ | OK, "s3://data/a.npy", 0, 4096, 12, 30),
    (written.READ | OK, "s3://data/a.npy", 4096, 4096, 20, 44),
    (written.READ | 404 << written.STATUS_SHIFT, "s3://data/none", -1, 0, 45, 50),
    (written.READ | OK | written.INCOMPLETE, "s3://data/b.npy", 0, 77, 50, 60),
    (written.WRITE | OK, "s3://data/ckpt/last.pt", 0, 10_000, 60, 90),
)


def objects_of(folder: Path, rows: Iterable[Row] = ROWS) -> Path:
    """The file of a process that began at START and made these requests."""
    log = written.Operations(str(folder))
    log._started_ns = START
    for code, name, offset, nbytes, begin, end in rows:
        log.add(code, name, offset, nbytes, START + begin * MS, START + end * MS)
    log._last()
    (path,) = folder.glob("*.objects")
    return path
