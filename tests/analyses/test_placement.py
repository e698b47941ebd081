"""Steps without times: CosmicTagger's figures, and synthetic runs whose truth is known."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import vanidl
from tests.makers.records import Io, darshan_log
from vanidl.analyses import placement
from vanidl.analyses.placement import Placement
from vanidl.analyses.results import analyse
from vanidl.cli import main
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.readers.records import StepDurations
from vanidl.report.summary import summary_object

MS, SECOND = 1_000_000, 1_000_000_000
# Measured by independent code: I/O in bursts 1-149, least hidden, median slack.
MEASURED = {
    0: (33.84, 1.56), 1: (10.74, 0.46), 2: (10.97, 0.19), 3: (10.22, 0.05), 4: (15.70, 0.10),
    5: (8.40, 0.00), 6: (9.82, 0.03), 7: (10.40, 0.15),
}  # fmt: skip


@cache
def placed(path: Path) -> Placement:
    return vanidl.open_run(path).placement


@pytest.fixture
def cosmic(shared) -> Placement:
    return placed(shared / "data/public/vanidl_cosmictagger")


def test_cosmictaggers_steps_lie_between_bursts_k_plus_1_and_k_plus_2(cosmic):
    assert [row.rank for row in cosmic.per_rank] == list(range(8))
    for row in cosmic.per_rank:
        assert (row.bursts, row.steps, row.lag) == (151, 149, 1)
        assert row.path.endswith("cosmic_tagging_train.h5")
        assert 0.36 <= np.median(row.slack_s) <= 0.42
        assert row.slack_s[0] == pytest.approx(83, abs=1)
        assert row.slack_s[1] == pytest.approx(76, abs=1.5)
        assert (row.slack_s >= 0).all()
        assert row.shortest_step_s > 3


def test_cosmictaggers_hidden_io_is_known_as_a_range_only(cosmic):
    for row in cosmic.per_rank:
        io_s, least = MEASURED[row.rank]
        assert row.io_s == pytest.approx(io_s, abs=0.006)
        assert row.hidden_low_s == pytest.approx(least, abs=0.006)
        assert row.hidden_high_s == pytest.approx(io_s, abs=0.006)
    assert cosmic.verdict == "not determined"


def test_cosmictaggers_slack_does_not_grow_with_the_bursts(cosmic):
    """Reads that block would give a slope of 1; it is evidence that they are prefetched."""
    assert all(abs(row.slope) < 0.25 for row in cosmic.per_rank)
    assert sum(row.slope + 2 * row.slope_error < 1 for row in cosmic.per_rank) == 8


def test_every_output_says_that_it_is_not_determined(shared, capsys, tmp_path):
    path = str(shared / "data/public/vanidl_cosmictagger")
    run = vanidl.open_run(path)
    found = summary_object(run)["placement"]
    assert found["verdict"] == "not determined"
    assert [round(v, 2) for v in found["per_rank"][1]["hidden_s"]] == [0.46, 10.74]
    assert main(["summary", path]) == 0
    assert "not determined" in capsys.readouterr().out
    assert main(["report", path, "-o", str(tmp_path / "r.html")]) == 0
    assert "not determined" in (tmp_path / "r.html").read_text()
    assert len(run.frame("placement")) == 8 * 149


def made(*, prefetched: bool, slack_ms: float, burst_ms: int = 60, count: int = 30):
    """A loop that reads once an iteration; where each step began, since the start of the job."""
    random = np.random.default_rng(4)
    ios, durations, begins, at = [], [], [], SECOND
    for _ in range(count):
        burst = int(burst_ms * random.uniform(0.5, 1.5)) * MS
        ios += [Io(at + i * burst // 10, at + (i + 1) * burst // 10 - 1000) for i in range(10)]
        step = int(random.uniform(300, 900)) * MS
        begin = at if prefetched else at + burst
        begins.append(begin)
        durations.append(step)
        at = begin + step + int(slack_ms * random.uniform(0.8, 1.2) * MS)
    ios = [io._replace(nbytes=4096, offset=0) for io in ios]
    table = StepDurations("t", "tensorboard-input-pipeline", "node01",
                          np.arange(count, dtype=np.int32), np.array(durations))  # fmt: skip
    table = StepDurations(table.path, table.source, table.host, table.step[:-1],
                          table.duration_ns[:-1])  # fmt: skip
    log = darshan_log(ios, length_ns=60 * SECOND)
    return analyse(assemble(Group((log,), ()), {}, durations=[table])), np.array(begins) / 1e9


@pytest.mark.parametrize("prefetched", [True, False])
def test_the_true_place_of_each_step_lies_in_its_bounds(prefetched):
    results, begins = made(prefetched=prefetched, slack_ms=30)
    (row,) = results.placement.per_rank
    assert row.lag == 0
    true = begins[: row.steps]
    assert (row.earliest_s <= true + 1e-9).all()
    assert (true <= row.latest_s + 1e-9).all()


def test_slack_tells_reads_that_block_from_reads_ahead():
    ahead, blocking = (made(prefetched=p, slack_ms=30)[0].placement for p in (True, False))
    assert abs(ahead.per_rank[0].slope) < 0.5
    assert blocking.per_rank[0].slope == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize(
    ("prefetched", "slack_ms", "verdict"),
    [(True, 1, "hidden"), (True, 100, "not determined"), (False, 1, "not determined")],
)
def test_verdicts(prefetched, slack_ms, verdict):
    found = made(prefetched=prefetched, slack_ms=slack_ms)[0].placement
    assert found.verdict == verdict
    assert 0 <= found.hidden_low_s <= found.hidden_high_s <= found.io_s + 1e-9


def test_a_verdict_is_given_only_where_the_range_is_narrow():
    assert placement._decide_verdict(10, 9.5, 10) == "hidden"
    assert placement._decide_verdict(10, 0, 0.5) == "exposed"
    assert placement._decide_verdict(10, 0, 5) == "not determined"


def test_steps_that_all_fit_anywhere_are_not_placed():
    """Equal steps at equal distances: nothing tells one number of bursts from another."""
    ios = [Io(SECOND + k * SECOND + i * MS, SECOND + k * SECOND + i * MS + 1000, 0, 9)
           for k in range(20) for i in range(10)]  # fmt: skip
    table = StepDurations("t", "s", "node01", np.arange(19, dtype=np.int32),
                          np.full(19, 700 * MS, np.int64))  # fmt: skip
    log = darshan_log(ios, length_ns=60 * SECOND)
    results = analyse(assemble(Group((log,), ()), {}, durations=[table]))
    assert results.placement is None
