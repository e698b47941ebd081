"""`vanidl ab --ceiling`: both sides against the runs of their pairs with batches from memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ceiling.test_measure import COMPUTE, INPUT, WARM_UP, journal
from tests.makers.comparisons import timed
from tests.readers.test_run_folder import CEILING
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.compare import compare
from vanidl.compare.json import make_object
from vanidl.compare.page import render_comparison
from vanidl.compare.runs import CEILING as SIDE
from vanidl.compare.runs import (
    WARM,
    Experiment,
    RecordedRun,
    combine_ceilings,
    measure_ceiling,
    open_recorded,
    save,
)
from vanidl.compare.sides import anonymous_side
from vanidl.compare.text import render_text
from vanidl.run import open_run


def test_one_pair_is_its_own_ceiling() -> None:
    assert combine_ceilings([CEILING]) == CEILING


def test_over_pairs_the_interval_is_of_the_pairs() -> None:
    each = [
        replace(CEILING, step_s=0.1 * f, free_s=0.04 * g, cost=1 - 0.4 * g / f, copying_s=0.0)
        for f, g in ((1.0, 1.0), (1.1, 1.12), (0.9, 0.88), (1.05, 1.04))
    ]
    found = combine_ceilings(each)
    assert found.cost == pytest.approx(1 - found.free_s / found.step_s)
    assert found.low < found.cost < found.high
    assert found.low == pytest.approx(0.6, abs=0.03)
    assert (found.pairs, found.steps) == (4, CEILING.steps)
    copying = combine_ceilings([replace(one, copying_s=0.01) for one in each])
    assert copying.low == found.low
    assert copying.high > found.high


def test_runs_that_are_all_alike_need_no_width() -> None:
    found = combine_ceilings([replace(CEILING, copying_s=0.0)] * 3)
    assert (found.low, found.high) == (pytest.approx(0.6), pytest.approx(0.6))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ab")
    runs = [
        RecordedRun(side, pair, f"{side}-{pair}", 1.0, 0, "none")
        for pair in range(3)
        for side in ("a", "b", SIDE)
    ]
    for run in runs:
        path = journal(folder / run.folder, WARM_UP if run.side == SIDE else None)
        path.rename(path.with_name(f"{run.folder}.steps"))
    save(Experiment("python a.py", "python b.py", WARM, tuple(runs)), folder)
    return folder


def test_both_sides_are_held_against_it(recorded: Path) -> None:
    (a, b), conditions = open_recorded(recorded, open_run)
    for side in (a, b):
        assert len(side.samples) == 2
        assert side.ceiling.pairs == 2
        assert side.ceiling.shortest_s == pytest.approx(COMPUTE / 1e3)
        assert side.ceiling.high == pytest.approx(INPUT / (COMPUTE + INPUT))
    assert dict(conditions)["order"].startswith("A B memory A B memory")
    found = compare((a, b), conditions)
    text, page = render_text(found), render_comparison(found)
    assert "B: Input costs 59 % (59 % to 60 %) of the wall time of steps" in " ".join(text.split())
    assert "The ceiling: steps with batches from memory" in page
    content = json.loads(json.dumps(make_object(found)))
    assert [side["ceiling"]["pairs"] for side in content["sides"]] == [2, 2]
    public = anonymous_side(replace(a, ceiling=CEILING), Pseudonyms())
    assert public.ceiling == replace(CEILING, remarks=())


def test_what_could_not_be_measured_is_said(tmp_path: Path) -> None:
    for name in ("run", "free"):
        journal(tmp_path / name, None)
    found = measure_ceiling([(tmp_path / "run", tmp_path / "free")])
    assert found.ceiling is None
    assert "found 0 steps" in found.why_not
    assert measure_ceiling([]).why_not == ""


def test_without_it_nothing_is_said() -> None:
    found = compare([timed("A", [1.0, 1.1]), timed("B", [1.0, 1.1])])
    assert 'id="ceiling"' not in render_comparison(found)
    assert [side["ceiling"] for side in make_object(found)["sides"]] == [None, None]
