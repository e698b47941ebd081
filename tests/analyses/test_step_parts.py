"""The mean step divided: against the recipe that made the run, and what holds for every run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.findings.labeled import RECIPES
from tests.makers.results import EXAMPLES
from tests.makers.training_jobs import trace_of
from vanidl.analyses import analyse
from vanidl.report import first_screen
from vanidl.run import Run
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
    assert part_name("rest", found, lossy=False, on_device=False) == "computing or waiting"


@pytest.mark.parametrize("name", EXAMPLES)
def test_parts_add_up_to_the_mean_step(name):
    run = Run(*EXAMPLES[name]())
    found = run.step_parts
    if found is None:
        assert run.overlap is None or run.steps is None
        return
    assert sum(p.seconds for p in found.parts) == pytest.approx(run.steps.mean_s)
    assert sum(p.share for p in found.parts) == pytest.approx(1)
    assert all(p.seconds > 0 for p in found.parts)
    for part in found.parts:
        for lossy in (False, True):
            for device in (False, True):
                assert part_name(part.code, found, lossy=lossy, on_device=device)
                said = part_meaning(part.code, found, lossy=lossy, on_device=device)
                assert said.endswith(".")


def test_waits_that_count_only_while_the_device_is_idle_are_called_so():
    trace, results = EXAMPLES["full"]()
    overlap = results.overlap
    for basis, idle in (("device", True), ("cpu", False)):
        run = Run(trace, replace(results, overlap=replace(overlap, basis=basis)))
        said = {part.name: part.meaning for part in first_screen._bar(run).parts}
        waits = [meaning for name, meaning in said.items() if "waiting for I/O" in name]
        assert all(
            name.startswith("idle, ") == idle
            for name in said
            if "waiting for" in name and name != "waiting for other ranks"
        )
        assert waits
        assert all(("device was idle" in meaning) == idle for meaning in waits)


def test_collectives_beside_a_wait_do_not_count_twice():
    trace, results = EXAMPLES["full"]()
    mean = results.overlap.mean
    crowded = replace(mean, communication_s=mean.window_s, compute_s=0.5 * mean.window_s)
    run = Run(trace, replace(results, overlap=replace(results.overlap, mean=crowded)))
    assert sum(p.share for p in run.step_parts.parts) == pytest.approx(1)
