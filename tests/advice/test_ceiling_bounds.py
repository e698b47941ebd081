"""No prediction goes below what was measured with batches from memory, wherever it is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.advice.labeled import made
from tests.makers.results import EXAMPLES
from tests.readers.test_run_folder import CEILING
from vanidl.advice.changes import Change
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.anonymize.trace import anonymous
from vanidl.model.run_facts import Ceiling
from vanidl.report.html import render_html
from vanidl.report.overview import make_overview
from vanidl.report.summary import summary_object, summary_text
from vanidl.run import Run

RUNS = ("slow_first_batches", "one_worker_slow_storage", "shared_shuffle", "very_slow_tail")


def costing(cost: float, width: float = 0.01) -> Ceiling:
    return replace(
        CEILING, free_s=(1 - cost) * CEILING.step_s, cost=cost, low=cost - width, high=cost + width
    )


def with_ceiling(run: Run, ceiling: Ceiling | None) -> Run:
    return Run(replace(run.trace, ceiling=ceiling), run.results)


@pytest.fixture(scope="module")
def bound() -> Run:
    return made("two_ranks")


def test_rows_beyond_the_ceiling_are_at_it(bound: Run) -> None:
    free = bound.what_if
    least = min(row.ratio for row in free.rows)
    cost = (1 - least) / 2
    held = with_ceiling(bound, costing(cost)).what_if
    limit = 1 - costing(cost).high
    assert held.beyond_ceiling == tuple(r.name for r in free.rows if r.ratio < limit)
    assert held.beyond_ceiling
    before = {row.name: row for row in free.rows}
    for row in held.rows:
        assert row.ratio >= limit - 1e-12
        assert row.ratio == pytest.approx(max(before[row.name].ratio, limit))
        assert row.step_s == pytest.approx(row.ratio * free.step_s)
        assert row.gain_at_most_s <= before[row.name].gain_at_most_s
        beyond = row.name in held.beyond_ceiling
        assert row.replayed_s == (before[row.name].step_s if beyond else None)


def test_a_ceiling_that_is_far_off_changes_nothing(bound: Run) -> None:
    assert with_ceiling(bound, costing(0.985)).what_if == bound.what_if


def test_where_input_costs_nothing_nothing_is_predicted(bound: Run) -> None:
    run = with_ceiling(bound, costing(-0.02))
    assert run.what_if.rows == ()
    assert len(run.what_if.beyond_ceiling) == len(bound.what_if.rows)
    assert run.predict(Change(workers=8)).ratio == 1.0


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("cost", [-0.02, 0.05, 0.9])
def test_no_diagnosis_saves_more_than_the_ceiling(name: str, cost: float) -> None:
    run = with_ceiling(made(name), costing(cost))
    for diagnosis in run.diagnoses:
        if diagnosis.step_s is not None:
            assert 1 - diagnosis.step_s / diagnosis.now_s <= max(cost + 0.01, 0) + 1e-9


def test_every_output_says_it(bound: Run) -> None:
    run = with_ceiling(bound, costing(0.05))
    content = summary_object(run)
    assert content["ceiling"]["cost"] == 0.05
    assert content["what_if"]["beyond_ceiling"]
    sentence = "Input costs 5 % (4 % to 6 %) of the wall time of steps, measured."
    assert sentence in content["headline"]
    text, page = summary_text(run), render_html(run)
    assert "Ceiling, measured" in text
    assert "Replaying promises more than the measured ceiling" in " ".join(text.split())
    assert 'id="ceiling"' in page
    assert make_overview(run).bar.ghosts[0].basis == "measured"


def test_names_of_loaders_are_not_for_the_public() -> None:
    trace = replace(EXAMPLES["full"]().trace, ceiling=CEILING)
    assert anonymous(trace, Pseudonyms()).ceiling == replace(CEILING, remarks=())
