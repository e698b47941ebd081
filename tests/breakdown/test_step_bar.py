"""The mean step divided: against the recipe that made the run, and what holds for every run."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.advice.labeled import RECIPES, made
from tests.makers.training_jobs import trace_of
from vanidl.analyses import analyse
from vanidl.run import Run, open_run
from vanidl.wording.step_parts import part_meaning, part_name


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
    assert part_name("rest", found, lossy=False) == "computing or waiting"


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
        run.breakdown.cell(part.key)
        for lossy in (False, True):
            assert part_name(part.code, found, lossy=lossy)
            assert part_meaning(part.code, found, lossy=lossy).endswith(".")


def test_a_loop_without_a_profiler_is_not_called_computing():
    """Marks tell waits from the rest; what the rest was no record tells."""
    run = open_run(ROOT / "tests" / "data" / "torch_fetches")
    found = run.step_parts
    assert "compute" not in {part.code for part in found.parts}
    assert part_name("rest", found, lossy=False) == "computing, or other work"
