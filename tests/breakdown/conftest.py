"""Runs whose counters are written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from vanidl.model.counter_tables import CounterTable
from vanidl.model.trace import MPIIO, POSIX, Files, Job, Process, Spans, Trace

Seconds = tuple[float, float, float]
EMPTY = np.empty(0, np.int64)
NO_SPANS = Spans(
    EMPTY, EMPTY, EMPTY.astype(np.int32), EMPTY.astype(np.int32), EMPTY.astype(np.uint8),
    EMPTY.astype(np.int32), EMPTY.astype(np.int32), EMPTY.astype(np.int32), (),
)  # fmt: skip


def counted_run(tables: Sequence[CounterTable], files: int, ranks: int, run_s: float) -> Trace:
    """A run of which nothing but counters is known."""
    processes = tuple(Process("", i, rank=i, trainer=i, log="log") for i in range(ranks))
    names = tuple(f"/data/{i}" for i in range(files))
    words = ("",) * files
    return Trace(
        job=Job(None, "", 0, round(run_s * 1e9), 1, "darshan", nprocs=ranks, counts_apart=True),
        processes=processes,
        files=Files(names, ("dataset",) * files, words, words),
        io=(),
        spans=NO_SPANS,
        counters={table.layer: table for table in tables},
    )


def table(
    layer: str,
    rows: Sequence[tuple[int, int, Seconds]],
    counters: Mapping[str, int],
    nbytes: int = 0,
    more: Mapping[str, Sequence[float]] | None = None,
) -> CounterTable:
    """Counters of (process, file, seconds of reading, writing and metadata)."""
    prefix = {MPIIO: "MPIIO"}.get(layer, layer)
    times = np.array([seconds for _, _, seconds in rows], float).T
    names = ("READ", "WRITE", "META")
    seconds = {f"{prefix}_F_{name}_TIME": column for name, column in zip(names, times, strict=True)}
    seconds |= {f"{prefix}_F_{k}": np.array(v, float) for k, v in (more or {}).items()}
    counts = {k: np.full(len(rows), v) for k, v in counters.items() if k.startswith(prefix)}
    counts[f"{prefix}_BYTES_READ"] = np.full(len(rows), nbytes)
    return CounterTable(
        layer,
        np.array([process for process, _, _ in rows], np.int32),
        np.array([file for _, file, _ in rows], np.int32),
        counts,
        seconds,
    )


@pytest.fixture
def made() -> Callable[..., Trace]:
    """A run of POSIX and MPI-IO counters."""

    def make(
        posix_s: Seconds | None = None,
        mpiio_s: Seconds | None = None,
        *,
        same_file: bool = True,
        nbytes: tuple[int, int] = (0, 0),
        shared: Seconds | None = None,
        ranks: int = 1,
        counters: Mapping[str, int] | None = None,
        files: Sequence[tuple[float, float]] = (),
        each_s: float = 0.0,
    ) -> Trace:
        more = counters or {}
        tables = []
        if posix_s is not None:
            tables.append(table(POSIX, [(0, 0, posix_s)], more, nbytes[0]))
        if mpiio_s is not None:
            tables.append(table(MPIIO, [(0, 0 if same_file else 1, mpiio_s)], more, nbytes[1]))
        if shared is not None:
            total, least, most = shared
            extremes = {"FASTEST_RANK_TIME": [least], "SLOWEST_RANK_TIME": [most]}
            tables.append(table(POSIX, [(-1, 0, (total, 0.0, 0.0))], more, more=extremes))
        if files:
            spans = {
                "READ_START_TIMESTAMP": [begin for begin, _ in files],
                "READ_END_TIMESTAMP": [end for _, end in files],
            }
            rows = [(0, i, (each_s, 0.0, 0.0)) for i in range(len(files))]
            tables.append(table(POSIX, rows, more, more=spans))
        return counted_run(tables, max(len(files), 2), ranks, 100.0)

    return make
