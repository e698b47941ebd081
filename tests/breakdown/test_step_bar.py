"""The mean step divided: against the recipe that made the run, and what holds for every run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import ROOT
from tests.advice.labeled import RECIPES, made
from tests.makers.training_jobs import trace_of
from vanidl.analyses.results import analyse
from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import Column
from vanidl.breakdown.step_bar import divide_step
from vanidl.run import Run, open_run
from vanidl.sections.step_bar import explain_part, name_part


def parts(recipe) -> dict[str, float]:
    trace = trace_of(recipe)
    found = Run(trace, analyse(trace)).step_parts
    return {part.code: part.seconds for part in found.parts}


def test_reads_in_the_training_process_are_waited_for():
    found = parts(RECIPES["in_process_slow_storage"])
    assert found["io_wait"] == pytest.approx(0.080, rel=0.02)
    assert found["compute"] == pytest.approx(0.040, rel=0.02)
    assert sum(found.values()) - found["io_wait"] - found["compute"] < 0.002


def test_decoding_is_told_from_reading():
    found = parts(RECIPES["reading_and_decoding"])
    assert found["io_wait"] == pytest.approx(0.024, rel=0.05)
    assert found["other_wait"] == pytest.approx(0.016, rel=0.05)


def test_unknown_waits_are_not_zero():
    trace = trace_of(RECIPES["waits_not_recorded"])
    found = Run(trace, analyse(trace)).step_parts
    assert not found.waits_known
    assert not {"io_wait", "other_wait", "input_wait"} & {p.code for p in found.parts}
    assert name_part("rest", found, lossy=False) == "computing or waiting"


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_parts_add_up_to_the_mean_step(name):
    run = made(name)
    found = run.step_parts
    if found is None:
        assert not run.breakdown.observed.any()
        return
    assert found.mean_s == pytest.approx(run.breakdown.length_ns("step") / 1e9)
    assert sum(p.seconds for p in found.parts) == pytest.approx(found.mean_s)
    assert sum(p.share for p in found.parts) == pytest.approx(1)
    assert all(p.seconds > 0 for p in found.parts)
    for part in found.parts:
        if part.key:
            least_s = run.breakdown.cell(part.key).range_s[0]
            assert part.seconds == pytest.approx(least_s, abs=3e-9), part.code
        for lossy in (False, True):
            assert name_part(part.code, found, lossy=lossy)
            assert explain_part(part.code, found, lossy=lossy).endswith(".")


def test_a_loop_without_a_profiler_is_not_called_computing():
    """Marks tell waits from the rest; what the rest was no record tells."""
    run = open_run(ROOT / "tests" / "data" / "torch_fetches")
    found = run.step_parts
    assert "compute" not in {part.code for part in found.parts}
    assert name_part("rest", found, lossy=False) == "computing, or other work"


def marked_parts() -> Breakdown:
    """An account of one rank: 100 ms a step, 20 of them waiting, the loop's parts marked."""
    step_part = {"input_wait": 20, "prepare": 30, "forward": 10, "backward": 15, "optimizer": 5}
    cells = {"step/": 100, "input_wait/": 20, "input_wait/input_cpu": 12, "input_wait/storage": 3}
    cells |= {f"step_part/{name}": ms for name, ms in step_part.items()} | {"step_part/rest": 20}
    cells |= {"step/storage": 3 + 8, "step_part/rest/storage": 8}
    one = {name: np.array([ms * 1_000_000]) for name, ms in cells.items()}
    columns = {name: Column(ns, ns, float(ns[0]), float(ns[0])) for name, ns in one.items()}
    return Breakdown(("rank 0",), (0,), 100_000_000, np.array([1]), columns)


def test_the_parts_of_the_loop_stand_beside_its_waits_and_calls():
    found = {p.code: round(1e3 * p.seconds, 6) for p in divide_step(marked_parts()).parts}
    assert found == {
        "io_wait": 3, "decoding_wait": 12, "other_wait": 5, "own_io": 8, "prepare": 30,
        "forward": 10, "backward": 15, "optimizer": 5, "behind": 12,
    }  # fmt: skip


def test_a_device_at_work_is_not_divided_by_what_its_host_does():
    account = marked_parts()
    idle = Column(np.array([0]), np.array([10_000_000]), 0.0, 1e7)
    account = replace(account, columns={**account.columns, "step/device_idle": idle})
    codes = {p.code for p in divide_step(account).parts}
    assert not codes & {"prepare", "forward", "backward", "optimizer", "behind"}
