"""What logs say that once were summed up wrongly: each against its own counters."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import vanidl
from tests import DATA, SHARED
from vanidl.breakdown.account import MEAN
from vanidl.formatting.units import percent
from vanidl.merge.pipeline import Inputs
from vanidl.model.run_facts import Ceiling
from vanidl.run import Run
from vanidl.sections.step_bar import draw_bar
from vanidl.wording.headline import make_headline

PUBLIC = SHARED / "data" / "public"
LOGS = PUBLIC / "darshan_logs"
CASES = PUBLIC / "cases"
DURATION_TOLERANCE = 0.01


@cache
def run_of(path: Path) -> Run:
    if not path.exists():
        pytest.skip(f"no {path.name} beside the repository")
    return vanidl.open_run(path)


def low_high_s(run: Run, cell: str) -> tuple[float, float]:
    return run.breakdown.cell(f"{MEAN}/{cell}").range_s


ROWS = {
    # Seconds a rank in storage by its counters; of its window; what moved the bytes.
    "imbalanced-io": (LOGS / "imbalanced-io.darshan", 1149.6, 0.78, "writes through MPI-IO"),
    "skew-app": (LOGS / "skew-app.darshan", 753.2, 0.020, "writes through MPI-IO"),
    "e3sm": (LOGS / "e3sm_io_heatmap_only.darshan", 686.0, 0.94, "writes through MPI-IO"),
    "nonmpi_dxt": (LOGS / "nonmpi_dxt_anonymized.darshan", 1.427, 0.048, ""),
    "stdio_metadata": (CASES / "pub_stdio_metadata", 0.1704, 0.021, "metadata calls through STDIO"),
    "partial_stdio": (LOGS / "partial_data_stdio.darshan", 5.461, 0.36, "writes through STDIO"),
}


@pytest.mark.parametrize("name", ROWS)
def test_storage_of_a_rank_is_what_its_counters_say(name: str) -> None:
    path, spent_s, share, calls = ROWS[name]
    run = run_of(path)
    low_s, high_s = low_high_s(run, "run/storage")
    assert low_s == pytest.approx(spent_s, rel=DURATION_TOLERANCE)
    assert low_s <= spent_s * (1 + DURATION_TOLERANCE)
    assert high_s >= spent_s * (1 - DURATION_TOLERANCE)
    assert low_s / (run.breakdown.window_ns / 1e9) == pytest.approx(share, abs=0.01)
    assert calls in run.headline


def test_what_lies_beneath_explains_and_is_not_added() -> None:
    beneath = {
        "imbalanced-io.darshan": (13.05, 0.23),
        "skew-app.darshan": (0.54, 0.0),
        "e3sm_io_heatmap_only.darshan": (28.47, 0.0),
    }
    for name, (posix_s, stdio_s) in beneath.items():
        layers = run_of(LOGS / name).breakdown.layers
        assert sum(layers["POSIX"]) == pytest.approx(posix_s, rel=0.01)
        assert sum(layers.get("STDIO", ())) == pytest.approx(stdio_s, abs=0.005)


def test_checkpoints_of_a_rank_are_no_mean_times_the_ranks() -> None:
    run = run_of(CASES / "pub_checkpoint_sum")
    longest_s = [save.busiest_s for save in run.phases.checkpoints if save.busiest_s is not None]
    assert "284 ms" not in run.headline
    assert longest_s
    assert all(spent_s <= 0.0599 * 1.01 for spent_s in longest_s)


def test_bytes_of_heat_maps_are_io() -> None:
    run = run_of(CASES / "heatmap_only")
    read = sum(int(each.bytes_read.sum()) for each in run.trace.heatmaps)
    assert read == pytest.approx(583.6e9, rel=0.01)
    assert "543 GiB" in run.headline
    assert low_high_s(run, "run/storage")[0] == 0.0


@pytest.mark.parametrize("name", ["torch_fetches", "ddp_two_hosts"])
def test_headline_and_bar_have_one_step_and_one_wait(name: str) -> None:
    run = run_of(DATA / name)
    parts = run.step_parts
    assert parts is not None
    step_s = run.breakdown.length_ns("step") / 1e9
    assert parts.mean_s == pytest.approx(step_s)
    waits = sum(p.seconds for p in parts.parts if "_wait" in p.key or p.code.endswith("wait"))
    steps = run.breakdown.steps.mean()
    # Of a device only idle time counts as waiting.
    assert waits <= run.breakdown.length_ns("input_wait") / 1e9 / steps * (1 + 1e-9)


def test_one_cause_has_one_bound() -> None:
    """Whoever takes away the same has the same bound, and none is above that of the whole cause."""
    run = run_of(DATA / "ddp_two_hosts")
    assert run.gains is not None
    most: dict[tuple[str, str], set[float]] = {}
    for finding in run.findings:
        if finding.gain_s is not None and finding.cause.startswith("storage"):
            most.setdefault((finding.cause, finding.keeps), set()).add(finding.gain_s[1])
            assert finding.gain_s[1] <= run.gains.without(finding.cause).high_ns / 1e9 + 1e-9
    assert len(most) >= 2
    assert all(len(each) == 1 for each in most.values()), most


def test_the_bar_of_hosts_that_never_meet_is_one_of_a_host() -> None:
    folder = SHARED / "data" / "cases" / "dftracer_clock_skew"
    if not folder.exists():
        pytest.skip("no cases beside the repository")
    run = vanidl.open_run(folder, inputs=Inputs(job_ids=("@1", "@2")))
    bar = draw_bar(run)
    assert bar is not None
    assert bar.title.startswith("A host")
    assert run.breakdown.window_ns == pytest.approx(501e6, rel=0.01)
    assert sum(part.share for part in bar.parts) == pytest.approx(100, abs=1)
    assert "20 %" in run.headline
    assert max(part.share for part in bar.parts if part.style == "run-io") == pytest.approx(
        20, abs=1
    )


def test_what_a_ceiling_has_beyond_the_waits_is_said_to_be_no_wait() -> None:
    """51 % waits, and input that costs 99 %: computing was slower under the tracer."""
    run = run_of(DATA / "torch_fetches")
    waited = run.breakdown.waited_share
    assert waited is not None
    said = []
    for cost in (waited, 0.99):
        ceiling = Ceiling(
            ranks=1, steps=40, step_s=0.1, free_s=0.1 * (1 - cost), median_step_s=0.1,
            median_free_s=0.1 * (1 - cost), copying_s=0.0, cost=cost, low=cost - 0.01,
            high=cost + 0.01, replayed=1, kept=20, kept_nbytes=1000,
        )  # fmt: skip
        trace = replace(run.trace, ceiling=ceiling)
        said.append(str(make_headline(trace, run.results, run.breakdown)))
    assert "no input wait" not in said[0]
    assert f"{percent(0.98 - waited)} of the steps at least is no input wait" in said[1]
