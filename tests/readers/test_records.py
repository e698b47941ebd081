"""One bound on an operation for every reader: no sum over operations leaves the integers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vanidl
from tests.makers.darshan_logs import Log, Record, log_bytes
from tests.makers.dftracer_traces import PfwTrace
from tests.makers.object_files import MS, OK, START
from vanidl.readers import registry
from vanidl.readers.records import LARGEST_NBYTES, LONGEST_NS
from vanidl.record.injected.vanidl_steps import operations as written

Read = tuple[int, int]  # bytes, duration in us


def darshan(folder: Path, reads: Sequence[Read]) -> None:
    rows = [(0, nbytes, 1.0, 1.0 + us / 1e6, 1) for nbytes, us in reads]
    log = Log(job=(1000, 7, 1), names={1: b"/data/a.bin"}, metadata=b"",
              dxt={"DXT_POSIX": [[Record(1, 0, "node01", [], rows)]]})  # fmt: skip
    (folder / "u_python_id7-42_11-14-80000-1_1.darshan").write_bytes(log_bytes(log))


def dftracer(folder: Path, reads: Sequence[Read]) -> None:
    trace = PfwTrace()
    for nbytes, us in reads:
        trace.io("pread", "/data/a.bin", 1, us, ret=nbytes, offset=0)
    trace.end(5)
    trace.write(folder / "trace-0.pfw")


def objects(folder: Path, reads: Sequence[Read]) -> None:
    log = written.Operations(str(folder))
    log._started_ns = START
    log.add(written.STAT | OK, "s3://b/a", 0, 0, START, START + MS)  # a run, whatever else holds
    for nbytes, us in reads:
        log.add(written.READ | OK, "s3://b/a", 0, nbytes, START, START + us * 1000)
    log._last()


TOO_NARROW = {"vanidl"}
"""Formats whose fields hold nothing beyond the bounds."""

WRITERS: dict[str, Callable[[Path, Sequence[Read]], None]] = {
    "darshan": darshan,
    "dftracer": dftracer,
    "objects": objects,
}
LARGE = st.sampled_from([1, 4096, LARGEST_NBYTES, LARGEST_NBYTES + 1, 2**61, 2**62 - 1])
LONG = st.sampled_from([0, 500, LONGEST_NS // 1000 - 1, LONGEST_NS // 1000 + 1, 2**50])


def test_every_reader_of_operations_is_held_to_the_bound():
    traced = {known.name for known in registry.FORMATS if known.traces_io}
    assert set(WRITERS) == traced - TOO_NARROW


@pytest.mark.parametrize("name", WRITERS)
@given(reads=st.lists(st.tuples(LARGE, LONG), min_size=1, max_size=100))
def test_sums_are_those_of_possible_operations(tmp_path_factory, name, reads):
    folder = tmp_path_factory.mktemp(name)
    WRITERS[name](folder, reads)
    possible = [r for r in reads if r[0] <= LARGEST_NBYTES and r[1] * 1000 <= LONGEST_NS]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = vanidl.open_run(folder)
    total = sum(int(part.nbytes.sum()) for part in run.trace.io)
    spent = sum(int((part.end - part.start).sum()) for part in run.trace.io)
    assert total == sum(nbytes for nbytes, _ in possible)
    assert spent == sum(us * 1000 for _, us in possible)
    assert run.summary.bytes_read in (total, None)
    said = any(f"{len(reads) - len(possible):,} of " in w.message for w in run.coverage.warnings)
    assert said == (len(possible) < len(reads))


def test_a_hundred_reads_of_2_61_bytes_are_no_bytes(tmp_path):
    dftracer(tmp_path, [(2**61, 1)] * 100)
    run = vanidl.open_run(tmp_path)
    assert run.summary.storage_bytes_read in (0, None)


@pytest.mark.parametrize(("items", "size"), [(2**61, 8), (2**32, 2**32), (2, 2**61), (2**40, 2)])
def test_items_times_their_size_is_bounded(tmp_path, items, size):
    trace = PfwTrace()
    trace.io("fread", "/data/a.bin", 1, 1, ret=items, size=size)
    trace.io("fread", "/data/a.bin", 2, 1, ret=3, size=5)
    trace.end(9)
    trace.write(tmp_path / "t.pfw")
    with np.errstate(all="raise"):
        run = vanidl.open_run(tmp_path)
    assert run.summary.storage_bytes_read == 15
    said = "1 of 2 operations left out for an impossible"
    assert any(said in warning.message for warning in run.coverage.warnings)
