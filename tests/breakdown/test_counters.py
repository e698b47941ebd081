"""Time in storage by counters, against plain loops over PyDarshan's records."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tests import ROOT
from vanidl.breakdown.sources.counters import ALL, bound_storage
from vanidl.merge.pipeline import Inputs, read_trace

PUBLIC = ROOT.parent / "shared" / "data" / "public" / "darshan_logs"
OWN = sorted((ROOT / "tests" / "data").glob("*/darshan/*.darshan"))
LOGS = [*OWN, *(sorted(PUBLIC.glob("*.darshan")) if PUBLIC.is_dir() else [])]
PREFIXES = {
    "POSIX": "POSIX", "STDIO": "STDIO", "DFS": "DFS", "MPI-IO": "MPIIO", "H5D": "H5D",
    "PNETCDF_VAR": "PNETCDF_VAR",
}  # fmt: skip
LEVELS = {"POSIX": 1, "STDIO": 1, "DFS": 1, "MPI-IO": 2, "H5D": 3, "PNETCDF_VAR": 3}


def outermost_s(path: Path) -> tuple[float, float, int] | None:
    """(outermost layer of each file, all beneath it, ranks): seconds summed over ranks."""
    darshan = pytest.importorskip("darshan")
    with darshan.DarshanReport(str(path), read_all=False) as report:
        spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        timed: dict[str, set[str]] = defaultdict(set)
        modules = [name for name in PREFIXES if name in report.modules]
        for module in modules:
            report.mod_read_all_records(module, dtype="dict")
            for record in report.records[module]:
                seconds = record["fcounters"]
                prefix = PREFIXES[module]
                data = [max(seconds[f"{prefix}_F_{w}_TIME"], 0.0) for w in ("READ", "WRITE")]
                name = report.name_records.get(record["id"], str(record["id"]))
                above, _, below = name.rpartition(":")
                of_variable = LEVELS[module] == 3 and bool(below)
                file = above if of_variable else name
                spent[file][module] += sum(data) + max(seconds[f"{prefix}_F_META_TIME"], 0.0)
                if any(data):
                    timed[file].add(module)
        ranks = report.metadata["job"]["nprocs"]
    if not modules:
        return None
    outer = beneath = 0.0
    for file, layers in spent.items():
        above = max((LEVELS[m] for m in timed[file]), default=1)
        outer += sum(s for m, s in layers.items() if LEVELS[m] == above)
        beneath += sum(s for m, s in layers.items() if LEVELS[m] < above)
    return outer, beneath, ranks


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name[:40])
def test_the_mean_rank_holds_what_plain_loops_add_up(path: Path) -> None:
    expected = outermost_s(path)
    trace = read_trace(path, Inputs())
    bounds = bound_storage(trace, np.ones(len(trace.processes), bool))
    if expected is None or bounds is None:
        assert bounds is None or bounds.mean_high[ALL] == 0
        return
    outer, beneath, ranks = expected
    assert ranks == len(trace.ranks)
    low, high = bounds.mean_low[ALL] * ranks, bounds.mean_high[ALL] * ranks
    # File layers of HDF5 time opens that wrap those of the layers beneath: they may add to both.
    files_s = (
        sum(bounds.layers.get(name, (0.0, 0.0, 0.0))[2] for name in ("H5F", "PNETCDF")) * ranks
    )
    tiny = 1e-9 * max(outer, 1.0)
    assert outer - tiny <= high
    assert low <= outer + beneath + files_s + tiny
    if not files_s and not beneath:
        assert low == pytest.approx(outer, rel=1e-9, abs=1e-12)
    assert high == float("inf") or high <= outer + beneath + files_s + tiny


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
