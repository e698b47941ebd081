"""A trace that ran full: its numbers are marked where they stand, or those of the counters."""

from __future__ import annotations

import numpy as np
import pytest

from tests.makers.records import Io, darshan_log
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.selection import Selection
from vanidl.readers.records import CounterFile, CounterRecords
from vanidl.report.html import render_html
from vanidl.run import Run
from vanidl.sections import files as files_section
from vanidl.sections import phases as phases_section

KIB = 1024
MS = 1_000_000
CUT, WHOLE = "/data/cut.h5", "/data/whole.h5"


def run_of(counted: int) -> Run:
    """64 traced reads of one file in the first 64 ms of 10 s, `counted` by its counters; and
    4 of another, all counted."""
    rows = [Io(i * MS, (i + 1) * MS, i * KIB, KIB, file=1) for i in range(64)]
    rows += [Io(i * MS, (i + 1) * MS, i * KIB, KIB, file=2) for i in range(4)]
    log = darshan_log(rows, names={1: CUT, 2: WHOLE})
    reads = np.array([counted, 4], np.int64)
    counters = {
        "POSIX_READS": reads, "POSIX_WRITES": 0 * reads, "POSIX_BYTES_READ": reads * KIB,
        "POSIX_BYTES_WRITTEN": 0 * reads, "POSIX_OPENS": np.ones(2, np.int64),
    }  # fmt: skip
    seconds = {"POSIX_F_READ_TIME": reads / 1000, "POSIX_F_WRITE_TIME": np.zeros(2)}
    records = CounterRecords("POSIX", np.array([1, 2], np.uint64), np.zeros(2, np.int64),
                             counters, seconds)  # fmt: skip
    trace = assemble(Group((log,), ()), {log.path: CounterFile((records,))})
    return Run(trace, analyse(trace))


def test_files_of_which_operations_are_missing_have_the_counters_numbers():
    rows = {row.path: row for row in run_of(9000).files.rows}
    assert (rows[CUT].reads, rows[CUT].bytes_read, rows[CUT].io_s) == (9000, 9000 * KIB, 9.0)
    assert rows[CUT].truncated
    assert rows[CUT].last_s is None
    assert (rows[WHOLE].reads, rows[WHOLE].io_s) == (4, pytest.approx(0.004))
    assert not rows[WHOLE].truncated
    (kind,) = run_of(9000).files.by_kind
    assert (kind.bytes_read, kind.truncated) == (9004 * KIB, True)


def test_phases_beyond_the_last_traced_operation_know_no_bytes():
    phases = run_of(9000).phases
    assert phases is not None
    tail = next(stage for stage in phases.stages if stage.name == "tail")
    assert (tail.bytes_read, tail.bytes_written, tail.busy_s) == (None, None, None)
    before = next(stage for stage in phases.stages if stage.name == "training")
    assert before.bytes_read == 68 * KIB


def test_it_is_said_where_the_numbers_stand():
    run = run_of(9000)
    for figure in (files_section.draw_files(run), phases_section.draw_phases(run)):
        assert "Only 0.8 % of the POSIX operations were traced" in figure.caption
    assert "of the POSIX operations were traced: bytes are those" in render_html(run)


def test_a_whole_trace_is_marked_nowhere():
    run = run_of(64)
    assert not any(row.truncated for row in (*run.files.rows, *run.files.by_kind))
    assert all(stage.bytes_read is not None for stage in run.phases.stages)
    assert "operations were traced:" not in render_html(run)


def test_a_window_of_time_has_no_counters_to_take_numbers_from():
    rows = run_of(9000).select(Selection(from_s=0, to_s=0.01)).files.rows
    assert {row.path: row.reads for row in rows} == {CUT: 10, WHOLE: 4}
