"""Time in storage by counters, against plain loops over PyDarshan's records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import ROOT
from vanidl.breakdown.sources.counters import ALL, bound_storage
from vanidl.run import open_run

PUBLIC = ROOT.parent / "shared" / "data" / "public" / "darshan_logs"
OWN = sorted((ROOT / "tests" / "data").glob("*/darshan/*.darshan"))
LOGS = [*OWN, *(sorted(PUBLIC.glob("*.darshan")) if PUBLIC.is_dir() else [])]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name[:40])
def test_the_mean_rank_holds_what_plain_loops_add_up(path: Path) -> None:
    pytest.importorskip("darshan")
    from tests.breakdown.storage import count_by_loops, is_narrowable, is_wide, is_within

    counted, run = count_by_loops(path), open_run(path)
    if counted is None:
        assert run.breakdown.cell("mean/run/storage").low_ns == 0
        return
    assert counted.ranks == len(run.trace.ranks)
    assert is_within(counted, run)
    assert not (is_narrowable(run) and is_wide(run))


def test_files_of_two_layers_count_once(made) -> None:
    """Reading through MPI-IO counts there, what POSIX did for it only explains it."""
    trace = made(posix_s=(1.0, 0.0, 0.25), mpiio_s=(3.0, 0.0, 0.5), same_file=True)
    bounds = bound_storage(trace, np.ones(len(trace.processes), bool))
    assert bounds is not None
    assert (bounds.low[ALL][0], bounds.high[ALL][0]) == (3.5, 3.5)
    assert bounds.low["exchange"][0] == bounds.high["exchange"][0] == 3.5 - 1.25
    apart = made(posix_s=(1.0, 0.0, 0.25), mpiio_s=(3.0, 0.0, 0.5), same_file=False)
    bounds = bound_storage(apart, np.ones(len(apart.processes), bool))
    assert bounds is not None
    assert (bounds.low[ALL][0], bounds.high[ALL][0]) == (4.75, 4.75)


def test_more_bytes_beneath_than_above_may_come_from_elsewhere(made) -> None:
    """A layer beneath that moved more than the one above was called by somebody else, too."""
    for beneath, high in ((100, 3.5), (101, 3.5), (102, 4.75)):
        trace = made(
            posix_s=(1.0, 0.0, 0.25), mpiio_s=(3.0, 0.0, 0.5), same_file=True,
            nbytes=(beneath, 100),
        )  # fmt: skip
        bounds = bound_storage(trace, np.ones(len(trace.processes), bool))
        assert bounds is not None
        assert (bounds.low[ALL][0], bounds.high[ALL][0]) == (3.5, high)


@pytest.mark.parametrize(
    ("beneath_s", "outer_s", "split_s"),
    [
        ((0.0, 2.0, 0.0), (0.0, 0.5, 3.0), (0.0, 2.0, 1.5)),  # written as the file is closed
        ((1.0, 3.0, 0.0), (0.5, 0.5, 4.0), (1.0, 3.0, 1.0)),
        ((0.0, 5.0, 0.0), (0.0, 1.0, 2.0), (0.0, 3.0, 0.0)),  # longer than all calls above
        ((0.0, 0.5, 0.0), (0.0, 0.5, 3.0), (0.0, 0.5, 3.0)),
        ((1.0, 1.0, 0.0), (0.0, 2.0, 0.5), (0.0, 2.0, 0.5)),  # what is written over is read first
        ((1.0, 1.5, 0.0), (0.0, 2.0, 0.75), (0.5, 2.0, 0.25)),
    ],
)
def test_calls_that_move_data_beneath_are_no_metadata(made, beneath_s, outer_s, split_s) -> None:
    """The parts of the outermost layer keep their sum, and each its place beneath a longer one."""
    called = made(posix_s=beneath_s, mpiio_s=outer_s, same_file=True)
    bounds = bound_storage(called, np.ones(len(called.processes), bool))
    assert bounds is not None
    for part, seconds in zip(("read", "write", "metadata"), split_s, strict=True):
        assert bounds.low[part][0] == bounds.high[part][0] == seconds
    assert sum(split_s) == sum(outer_s)
    # Where somebody else may have called, metadata may be all that was counted.
    apart = made(posix_s=beneath_s, mpiio_s=outer_s, same_file=True, nbytes=(102, 100))
    bounds = bound_storage(apart, np.ones(len(apart.processes), bool))
    assert bounds is not None
    for part, seconds, beneath, outer in zip(
        ("read", "write", "metadata"), split_s, beneath_s, outer_s, strict=True
    ):
        assert bounds.low[part][0] == seconds
        assert bounds.high[part][0] == max(outer, seconds) + beneath


def test_shared_records_bound_each_rank_and_know_the_mean(made) -> None:
    trace = made(shared=(10.0, 1.0, 6.0), ranks=4)
    bounds = bound_storage(trace, np.ones(len(trace.processes), bool))
    assert bounds is not None
    assert bounds.low[ALL].tolist() == [1.0] * 4
    assert bounds.high[ALL].tolist() == [6.0] * 4
    assert (bounds.mean_low[ALL], bounds.mean_high[ALL]) == (2.5, 2.5)


def test_syncs_may_be_any_part_of_the_write_time(made) -> None:
    trace = made(posix_s=(0.0, 2.0, 0.0), counters={"POSIX_FSYNCS": 3})
    bounds = bound_storage(trace, np.ones(len(trace.processes), bool))
    assert bounds is not None
    assert (bounds.low["sync"][0], bounds.high["sync"][0]) == (0.0, 2.0)
    assert (bounds.low["write"][0], bounds.high["write"][0]) == (0.0, 2.0)
    without = made(posix_s=(0.0, 2.0, 0.0), counters={"POSIX_FSYNCS": 0})
    bounds = bound_storage(without, np.ones(len(without.processes), bool))
    assert bounds is not None
    assert (bounds.low["write"][0], bounds.high["sync"][0]) == (2.0, 0.0)


@pytest.mark.parametrize("counter", ["MPIIO_NB_READS", "MPIIO_SPLIT_WRITES"])
def test_calls_that_do_not_block_bound_nothing_above(made, counter: str) -> None:
    trace = made(mpiio_s=(3.0, 0.0, 0.5), counters={counter: 1})
    bounds = bound_storage(trace, np.ones(len(trace.processes), bool))
    assert bounds is not None
    assert bounds.low[ALL][0] == 3.5
    assert bounds.high[ALL][0] == float("inf")


def test_spans_that_overlap_share_their_sum(made) -> None:
    """Two files read during the same second may have been read at once, or in turn."""
    for spans, low in ((((0, 2), (1, 3)), 0.75), (((0, 1), (1.5, 3)), 1.5)):
        trace = made(files=spans, each_s=0.75, ranks=1)
        bounds = bound_storage(trace, np.zeros(len(trace.processes), bool))
        assert bounds is not None
        assert bounds.low[ALL][0] == low
        assert bounds.high[ALL][0] == 1.5
        shown = bound_storage(trace, np.ones(len(trace.processes), bool))
        assert shown is not None
        assert shown.low[ALL][0] == 1.5
