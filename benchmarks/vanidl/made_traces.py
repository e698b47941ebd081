"""Synthetic runs of any size for benchmarks: a training process, and workers that read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.makers.records import Io, Span, darshan_log, profile
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.parts import Store
from vanidl.model.trace import READ, Files, Part, Process, SpanKind, Trace

STEP_NS = 250_000_000
PART_ROWS = 4_000_000
RECORD_NBYTES = 131_072


def made_trace(
    operations: int, *, workers: int = 8, steps: int = 400, spilled: bool = False
) -> Trace:
    """So many reads of 100 files, in equal shares by the workers; each step waits for 40 %."""
    spans = [
        Span(kind, k * STEP_NS, k * STEP_NS + length, k if kind == SpanKind.STEP else -1)
        for k in range(steps)
        for kind, length in ((SpanKind.STEP, STEP_NS), (SpanKind.INPUT_WAIT, 2 * STEP_NS // 5))
    ]
    log = darshan_log([Io(0, 5, 0, 9)], length_ns=steps * STEP_NS)
    trace = assemble(Group((log,), (profile(spans),)), {})
    trainer = trace.ranks[0]
    own = trace.processes[trainer]
    made = [
        Process(own.host, 9000 + i, role="worker", trainer=trainer, log="made")
        for i in range(workers)
    ]
    paths = tuple(f"/lustre/project/dataset/train/shard-{i:05d}.tfrecord" for i in range(100))
    files = Files(paths, ("dataset",) * 100, ("/lustre",) * 100, ("lustre",) * 100)
    store = Store.for_rows(operations, spilled=spilled)
    for i in range(workers):
        for part in _parts(len(trace.processes) + i, trace.job.start_ns, operations // workers,
                           steps * STEP_NS):  # fmt: skip
            store.add(part)
    processes = (*trace.processes, *made)
    return replace(trace, processes=processes, files=files, io=store.finished())


def _parts(process: int, since_ns: int, count: int, length_ns: int) -> list[Part]:
    """Reads of one process: 70 % of the time busy, bursts and pauses, in parts."""
    random = np.random.default_rng(process)
    gap = length_ns // max(count, 1)
    found = []
    for low in range(0, count, PART_ROWS):
        rows = min(PART_ROWS, count - low)
        start = (
            since_ns + (low + np.arange(rows)) * gap + random.integers(0, max(gap // 5, 1), rows)
        )
        found.append(
            Part(
                process,
                "POSIX",
                start,
                start + random.integers(1, max(gap * 7 // 10, 2), rows),
                random.integers(0, 2**20, rows) * RECORD_NBYTES,
                np.full(rows, RECORD_NBYTES),
                np.full(rows, -1, np.int32),
                random.integers(0, 100, rows).astype(np.int32),
                np.full(rows, READ, np.uint8),
            )
        )
    return found
