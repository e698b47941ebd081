"""Builders of small pieces: what a Darshan log or a profiler trace would say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vanidl.model.trace import POSIX, SpanKind
from vanidl.readers.records import OperationTable, ProfileTrace, TracerLog

JOB_START_NS = 1_700_000_000_000_000_000


class Io(NamedTuple):
    """One operation; times in ns since the start of the log."""

    start: int
    end: int
    offset: int = 0
    nbytes: int = 0
    file: int = 1
    op: int = 0
    rank: int = 0


class Span(NamedTuple):
    """One profiler span; times in ns since JOB_START_NS."""

    kind: SpanKind
    start: int
    end: int
    step: int = -1


def operation_table(operations: Sequence[Io], layer: str = POSIX) -> OperationTable:
    keys = sorted({(io.file, io.rank) for io in operations})
    record = {key: i for i, key in enumerate(keys)}
    rows = sorted(operations, key=lambda io: (io.file, io.rank, -io.op, io.start))
    column = {name: [getattr(io, name) for io in rows] for name in Io._fields}
    return OperationTable(
        layer,
        np.array([file for file, _ in keys], np.uint64),
        np.array([rank for _, rank in keys], np.int64),
        tuple("node01" for _ in keys),
        np.array([record[io.file, io.rank] for io in rows], np.int32),
        np.array(column["op"], np.uint8),
        np.array(column["offset"], np.int64),
        np.array(column["nbytes"], np.int64),
        np.array(column["start"], np.int64),
        np.array(column["end"], np.int64),
        None,
    )


def darshan_log(
    operations: Sequence[Io],
    *,
    pid: int | None = 100,
    parent: int | None = None,
    nprocs: int = 1,
    start_ns: int = JOB_START_NS,
    length_ns: int = 10_000_000_000,
    command: str = "python train.py",
    job_id: str = "100",
    names: dict[int, str] | None = None,
) -> TracerLog:
    files = {io.file for io in operations}
    return TracerLog(
        path=f"log-{job_id}-{pid}-{start_ns}.darshan",
        tracer="darshan",
        version="3.41",
        job_id=job_id,
        host="node01" if operations else "",
        pid=pid,
        parent_pid=parent,
        user_id=1000,
        nprocs=nprocs,
        start_ns=start_ns,
        end_ns=start_ns + length_ns,
        start_resolution_ns=1,
        start_error_ns=10_000_000 if nprocs > 1 else 1_000_000,
        command=command,
        metadata={},
        mounts=(("/data", "lustre"), ("/", "ext4")),
        names=names or {file: f"/data/part-{file}.h5" for file in files},
        modules=("POSIX", "DXT_POSIX"),
        operations=(operation_table(operations),) if operations else (),
        partial_layers=(),
        whole=True,
        losses=(),
        counts_apart=True,
    )


def profile(
    spans: Sequence[Span],
    *,
    pid: int | None = 100,
    rank: int | None = None,
    world_size: int | None = None,
    host: str = "node01",
    base_ns: int = JOB_START_NS,
) -> ProfileTrace:
    rows = sorted(spans, key=lambda s: (s.start, s.end))
    return ProfileTrace(
        path=f"{host}_{pid}.pt.trace.json",
        source="pytorch-profiler",
        host=host,
        pid=pid,
        rank=rank,
        world_size=world_size,
        devices=(),
        start_ns=np.array([s.start for s in rows], np.int64) + base_ns,
        end_ns=np.array([s.end for s in rows], np.int64) + base_ns,
        step=np.array([s.step for s in rows], np.int32),
        kind=np.array([s.kind for s in rows], np.uint8),
        thread=np.zeros(len(rows), np.int32),
        name=np.zeros(len(rows), np.int32),
        names=("span",),
        losses=(),
    )
