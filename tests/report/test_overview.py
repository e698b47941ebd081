"""The first screen: what it says of runs of every shape, and that nothing is lost in it."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.labeled import made
from tests.makers.results import EXAMPLES
from vanidl.formatting.units import percent, seconds
from vanidl.report.html import render_html
from vanidl.report.overview import Overview, make_overview
from vanidl.report.page import tight
from vanidl.sections.step_bar import GHOSTS


def screen_of(name: str) -> Overview:
    return make_overview(made(name))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_shape_of_run_has_a_first_screen(name):
    run = EXAMPLES[name]().run
    screen = make_overview(run)
    assert screen.name
    assert screen.trust
    assert all(link.href.startswith("#") for link in screen.trust)
    if screen.bar is not None:
        assert sum(part.share for part in screen.bar.parts) == pytest.approx(100)
        assert all(part.name in screen.bar.label for part in screen.bar.parts)
        assert len(screen.bar.ghosts) <= GHOSTS
    said = [e.code for action in screen.actions for e in action.evidence]
    assert sorted(said) == sorted(f.code for f in run.findings)


def test_a_slow_run_shows_its_parts_and_the_best_changes():
    screen = screen_of("in_process_slow_storage")
    assert [part.name for part in screen.bar.parts][:1] == ["waiting for I/O"]
    assert screen.actions[0].title == "Read ahead with 2 DataLoader workers"
    assert screen.actions[0].effect.endswith("a step, predicted")
    assert screen.bar.ghosts[0].href == "#action-read_ahead"
    assert screen.bar.ghosts[0].name in screen.bar.label
    assert len(screen.actions[0].show) == 3
    assert screen.verdict == ""


def test_the_bar_is_a_table_too():
    run = made("in_process_slow_storage")
    bar = make_overview(run).bar
    (table,) = re.findall(r'<details class="bar-table">.*?</details>', render_html(run), re.S)
    cells = r'<th scope="row">(.*?)</th><td.*?>(.*?)</td><td.*?>(.*?)</td>'
    rows = re.findall(cells, html.unescape(table))
    shown = [(p.name, tight(p.amount), tight(p.percent)) for p in bar.parts]
    assert rows == shown + [(f"if: {g.name}", tight(g.amount), "") for g in bar.ghosts]


def test_a_profile_alone_is_on_one_clock():
    made = EXAMPLES["one_rank"]()
    steps = made.results.steps
    exact = replace(steps, clock=replace(steps.clock, uncertainty_s=0.0))
    alone = replace(made.changed(steps=exact), trace=replace(made.trace, logs=())).run
    assert "one clock" in [link.text for link in make_overview(alone).trust]


@pytest.mark.parametrize("name", ["healthy", "healthy_four_ranks", "healthy_in_process"])
def test_a_healthy_run_says_that_nothing_is_to_be_fixed(name):
    screen = screen_of(name)
    assert re.fullmatch(r"Input keeps up \(waits of [\d.]+ %\): nothing to fix\.", screen.verdict)
    assert screen.actions == ()
    assert screen.bar.ghosts == ()


@pytest.mark.parametrize("name", ["waits_not_recorded", "no_profile", "truncated", "other_clock"])
def test_nothing_is_said_to_be_well_that_was_not_recorded(name):
    assert screen_of(name).verdict == ""


@pytest.mark.parametrize("stdio_bytes", [0, 1_000, 1_000_000_000])
def test_what_was_traced_is_said_of_its_layer_where_another_holds_bytes(stdio_bytes):
    """All operations of POSIX are not all operations: STDIO is traced by nothing."""
    made = EXAMPLES["no_profile"]()
    summary = made.results.summary
    posix, stdio, *rest = summary.layers
    layers = (posix, replace(stdio, bytes_read=0, bytes_written=stdio_bytes), *rest)
    run = made.changed(summary=replace(summary, layers=layers)).run
    screen = make_overview(run)
    traced = [link.text for link in screen.trust if "traced" in link.text]
    assert [part.name for part in screen.bar.parts] == ["other I/O", "possibly I/O"]
    assert run.headline.startswith("Storage took")
    share = stdio_bytes / (posix.bytes_read + posix.bytes_written + stdio_bytes)
    if share > 0.01:
        missing = f"{percent(share)} of bytes through STDIO, not traced"
        assert traced == ["100 % of POSIX operations traced", missing]
    else:
        assert traced == ["100 % of POSIX operations traced"]


def test_bytes_that_were_not_traced_are_in_the_head_of_a_real_run(shared, opened):
    run = opened(shared / "data/public/vanidl_cosmictagger")
    assert "38 % of bytes through STDIO, not traced" in [x.text for x in make_overview(run).trust]


def test_scope_that_limits_the_answer_is_in_the_headline(shared, opened):
    run = opened(shared / "data/recorded/tf_tfrecord")
    assert run.answer.title.startswith("In 36 of about 511 steps, training waited")
    assert "36 of about 511 steps profiled" in [link.text for link in make_overview(run).trust]


def test_the_clock_is_as_uncertain_as_the_least_certain_log(opened):
    run = opened(Path(__file__).parents[1] / "data/torch_late_workers")
    clock = run.steps.clock
    assert clock.workers_uncertainty_s > 100 * clock.uncertainty_s
    texts = [link.text for link in make_overview(run).trust if link.doubtful]
    assert f"clock within {seconds(clock.workers_uncertainty_s)}" in texts


def test_a_run_is_named_by_its_folder_and_not_by_its_jobs(shared, opened):
    run = opened(shared / "data/recorded/ddp_two_hosts")
    screen = make_overview(run)
    assert screen.name == "ddp_two_hosts"
    assert "4 ranks on 2 hosts" in screen.facts
