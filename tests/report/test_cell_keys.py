"""One number, one answer: what carries the key of a cell of the account says what the cell says."""

from __future__ import annotations

import html
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="a figure for papers is one of the surfaces")
pytest.importorskip("tensorboard", reason="its tab is one of the surfaces")

from matplotlib.text import Text

import vanidl
from tests import DATA
from tests.advice.labeled import RECIPES, made
from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import MEAN
from vanidl.compare import compare
from vanidl.compare.json import make_object
from vanidl.compare.sides import Side, sample_of
from vanidl.formatting.units import change, change_between, percent, seconds
from vanidl.interactive.run import card
from vanidl.mcp.answers import Answers
from vanidl.paper import registry
from vanidl.report.html import render_html
from vanidl.report.summary import summary_object
from vanidl.run import Run
from vanidl.sections.breakdown import account_lines, range_words
from vanidl.sections.overlap import CELLS
from vanidl.tensorboard.plugin import RENDER
from vanidl.watch import view
from vanidl.watch.watched import WatchedRun
from vanidl.wording.account import divide_waits
from vanidl.wording.cells import cells_of, mark_cell, settle
from vanidl.wording.results import describe_benchmark

RECORDED = ("ddp_two_hosts", "torch_fetches", "torch_late_workers", "torch_pfs_workers0",
            "torch_pfs_workers4")  # fmt: skip
MADE = sorted(RECIPES)[: 20 - len(RECORDED)]
RUNS = (*RECORDED, *MADE)
ROUNDED_S = 3e-9  # cells are in whole ns, outwards
WINDOWS = ("run", "step", "input_wait")

Ends = tuple[float, float]
Gain = tuple[Ends, set[str]]


@cache
def run_of(name: str) -> Run:
    return vanidl.open_run(DATA / name) if name in RECORDED else made(name)


@cache
def page_of(name: str) -> str:
    return render_html(run_of(name))


def numbers(run: Run) -> Iterator[tuple[str, str, Ends]]:
    """Surface, key and both ends in seconds of every number of a cell in JSON."""
    content = summary_object(run)
    for who, row in (("mean", content["breakdown"]["mean"]),
                     ("0", next(iter(content["breakdown"]["per_rank"]), {}))):  # fmt: skip
        for window in WINDOWS:
            for cause, ends in (row.get(window) or {}).items():
                yield "breakdown", f"{who}/{window}/{cause}", tuple(ends)
        waited_s = row.get("input_wait_s")
        if waited_s is not None:
            yield "breakdown", f"{who}/input_wait/", (waited_s, waited_s)
    for part in (content["step_parts"] or {"parts": ()})["parts"]:
        if part["key"]:
            low_s = part["seconds"]
            yield "step_parts", part["key"], (low_s, run.breakdown.cell(part["key"]).range_s[1])
    yield from of_overlap(content["overlap"])
    side = [Side(letter, letter, (sample_of(run, Path(letter)),)) for letter in "AB"]
    compared = make_object(compare(side))
    for key, of_sides in compared["cells"].items():
        assert of_sides["a"] == of_sides["b"]
        if of_sides["a"] is not None:
            yield "compare", key, tuple(of_sides["a"])
    for metric in compared["metrics"].values():
        if metric["cell"] and metric["a"] is not None:
            yield "compare", metric["cell"], (metric["a"], metric["b"])


def of_overlap(content: dict[str, Any] | None) -> Iterator[tuple[str, str, Ends]]:
    """The cells that the overlap holds, of the mean and of the first rank."""
    if content is None:
        return
    assert content["cells"] == CELLS
    for name, cell in CELLS.items():
        for who, row in (("mean", content["mean"]), ("0", content["per_rank"][0])):
            value = row[name]
            if value is not None:
                ends = value if isinstance(value, list) else [value, value]
                yield "overlap", f"{who}/{cell}", tuple(ends)


def marked_in(page: str) -> Iterator[tuple[str, str]]:
    """Key and words of every number of a cell in HTML."""
    for key, text in re.findall(r'data-cell="([^"]+)">([^<]*)<', page):
        yield html.unescape(key), html.unescape(text)


def drawn_for_papers(run: Run) -> Iterator[tuple[str, str]]:
    """The same in the table of a paper; its SVG has the keys as ids."""
    figure = registry.draw_figure("summary", run, 3.5)
    texts = figure.findobj(lambda each: isinstance(each, Text) and bool(each.get_gid()))
    picture = BytesIO()
    figure.savefig(picture, format="svg")
    for each in texts:
        assert f'id="{each.get_gid()}"' in picture.getvalue().decode()
        yield each.get_gid().removeprefix("cell:"), each.get_text()


def watched(name: str) -> Iterator[tuple[str, str]]:
    """The same of what `watch` says of the ended run, on its screen and below it."""
    if not (DATA / name / "steps").is_dir():
        return
    state = WatchedRun(DATA / name).look(time.time_ns())
    lines = [*view.final(state), *(line for line, _ in view.screen(state))]
    for cell in cells_of(*lines):
        yield cell.key, cell.text


@cache
def words(name: str) -> tuple[tuple[str, str, str], ...]:
    """Surface, key and words of every number of a cell on the page and all other surfaces."""
    return tuple(collect_words(name))


def collect_words(name: str) -> Iterator[tuple[str, str, str]]:
    run = run_of(name)
    for line in account_lines(run.breakdown):
        if line.key:
            yield "text", line.key, line.time
    shown = {
        "page": marked_in(page_of(name)),
        "notebook": marked_in(card(run)),
        "paper": drawn_for_papers(run),
        "watch": watched(name),
    }
    if name in RECORDED:
        shown["tensorboard"] = marked_in(RENDER["report"]([DATA / name]).decode())
    for surface, cells in shown.items():
        for key, text in cells:
            yield surface, key, text
    for cell in run.answer.cells:
        yield "headline", cell.key, cell.text
    for finding in run.findings:
        for cell in cells_of(finding.title, finding.detail, finding.advice):
            yield "findings", cell.key, cell.text


def ways_to_say(now_s: float, step_s: float, most_s: float) -> set[str]:
    """One end of a gain, or both."""
    return {change(now_s, step_s), change_between(now_s, step_s, most_s)}


def gains_of(run: Run) -> dict[str, Gain]:
    """What each action, finding and predicted change gains, by key: both ends, and its words."""
    gains: dict[str, Gain] = {}
    for each in run.diagnoses:
        if each.gain_s is not None:
            said = {percent(each.saved_share or 0)}
            if each.now_s is not None and each.step_s is not None:
                said |= ways_to_say(each.now_s, each.step_s, each.step_at_most_s)
            gains[f"gain/action/{each.code}"] = each.gain_s, said
    for finding in run.findings:
        if (most_s := finding.gain_at_most_s) is not None:
            key = f"gain/finding/{finding.code}"
            assert key not in gains, "a code has two gains"
            gains[key] = (most_s, most_s), {seconds(most_s)}
    for row in run.what_if.rows if run.what_if else ():
        ends = row.gain_at_most_s, row.gain_at_most_s
        gains[f"gain/what_if/{row.name}"] = ends, {seconds(row.gain_at_most_s)}
    return gains


def gain_numbers(run: Run) -> Iterator[tuple[str, str, Ends]]:
    """Surface, key and both ends of every gain in JSON, in frames and in answers to MCP."""
    content = summary_object(run)
    answers = Answers(OneRun(run))  # type: ignore[arg-type]
    asked = json.loads(answers.findings("run")), json.loads(answers.what_if("run"))
    for surface, lists in (("json", content), ("mcp", asked[0] | {"what_if": asked[1]["what_if"]})):
        for each in (*lists.get("actions", ()), *lists["diagnoses"]):
            if each["gain_cell"]:
                yield surface, each["gain_cell"], tuple(each["gain_s"])
        rows = (lists["what_if"] or {"rows": ()})["rows"]
        for each in (*lists["findings"], *rows):
            if each["gain_cell"]:
                yield surface, each["gain_cell"], (each["gain_at_most_s"],) * 2
    table = run.frame("actions")
    for code, low, high in zip(
        table["code"], table["gain_at_least_s"], table["gain_at_most_s"], strict=True
    ):
        if low is not None and low == low:
            yield "frame", f"gain/action/{code}", (low, high)


@dataclass(frozen=True)
class OneRun:
    """The run that MCP is asked of."""

    run: Run

    def open(self, _: str) -> Run:
        return self.run


def is_said_of(text: str, key: str, account: Breakdown) -> bool:
    """Whether words say the ends, or the middle, of a cell: its time, or its share of a window."""
    cell = account.cell(key)
    ends_ns = (cell.low_ns, cell.high_ns, cell.middle_ns)
    whole_ns = {account.length_ns(window) for window in (*WINDOWS, "run")} | {account.steps_ns}
    said = {seconds(ns / 1e9) for ns in ends_ns}
    said |= {percent(min(ns / whole, 1)) for ns in ends_ns for whole in whole_ns - {0.0}}
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    for words in ("at most ", "at least ", "less than "):
        text = text.removeprefix(words)
    less = {each.removeprefix("< ") for each in said}
    return all(each in said | less for part in text.split(", ") for each in part.split(" to "))


@pytest.mark.parametrize("name", RUNS)
def test_no_key_has_two_values(name):
    run = run_of(name)
    found: dict[str, list[Ends]] = defaultdict(list)
    for _, key, ends in numbers(run):
        found[key].append(ends)
    for key, values in found.items():
        cell = run.breakdown.cell(key)
        for ends in values:
            assert ends == pytest.approx(cell.range_s, abs=ROUNDED_S), key
    gains = gains_of(run)
    for surface, key, text in words(name):
        if key in gains:
            assert text.replace("\N{NO-BREAK SPACE}", " ") in gains[key][1], (surface, key, text)
            continue
        cell = run.breakdown.cell(key)
        if surface == "text":
            assert text == range_words(cell), key
            continue
        assert is_said_of(text, key, run.breakdown), (surface, key, text)


@pytest.mark.parametrize("name", RUNS)
def test_no_gain_has_two_values(name):
    run = run_of(name)
    gains, shown = gains_of(run), defaultdict(set)
    for surface, key, ends in gain_numbers(run):
        assert ends == pytest.approx(gains[key][0]), (surface, key)
        shown[surface].add(key)
    assert shown["json"] == set(gains)


DURATION = re.compile(r"(?<![\w.])\d[\d,.]* (?:ns|us|ms|s|min|h)\b(?: \d+ (?:min|s)\b)?")


def said_of(account: Breakdown) -> set[str]:
    """Every cell of the account and every length of a window, as words say it."""
    whos = (MEAN, *map(str, range(len(account.ranks))))
    windows = ("run", "step", "input_wait", "epoch_end")
    lengths_ns = {account.length_ns(window, who) for window in windows for who in whos}
    said_ns = {*lengths_ns, account.steps_ns}
    steps = account.steps_ns / max(account.length_ns("step"), 1)
    for who in whos:
        for name in account.columns:
            cell = account.cell(f"{who}/{name}")
            ends_ns = (cell.low_ns, cell.high_ns, cell.middle_ns)
            of_all_steps = name.startswith(("step/", "step_part/"))
            said_ns |= {ns * times for ns in ends_ns for times in (1, *[steps] * of_all_steps)}
    return {seconds(ns / 1e9) for ns in said_ns}


def named(run: Run) -> set[str]:
    """Durations that are of no cell, and are said to be what they are."""
    found = {part.cell.middle_ns / 1e9 for part in divide_waits(run.breakdown) if not part.key}
    found |= {end_s for part in divide_waits(run.breakdown) for end_s in part.cell.range_s}
    if run.overlap is not None:
        mean = run.overlap.mean
        # Over steps the longest wait of any rank; I/O of a rank, and what of it lies outside.
        found |= {run.overlap.lost_to_input_s, mean.io_s, mean.unobserved_s} - {None}
    return {seconds(each) for each in found}


@pytest.mark.parametrize("name", RUNS)
def test_the_headline_says_no_duration_that_the_account_has_not(name):
    run = run_of(name)
    headline = describe_benchmark(run.benchmarks)
    durations = DURATION.findall(run.headline.replace(headline, "") if headline else run.headline)
    assert durations
    assert set(durations) <= said_of(run.breakdown) | named(run)


@pytest.mark.parametrize("name", RUNS)
def test_an_action_gains_the_same_everywhere(name):
    """In both lists of JSON, in the table, on the page; and a step after it is what is left."""
    run = run_of(name)
    content, page = summary_object(run), html.unescape(page_of(name))
    actions = {each["code"]: each for each in content["actions"]}
    table = run.frame("actions")
    assert list(actions) == [each["code"] for each in content["diagnoses"]] == list(table["code"])
    for row, each in enumerate(content["diagnoses"]):
        action, gain_s = actions[each["code"]], each["gain_s"]
        assert action["gain_s"] == gain_s
        if gain_s is None:
            continue
        assert action["gain_at_most_s"] == gain_s[1]
        assert [table[f"gain_at_{end}_s"][row] for end in ("least", "most")] == list(gain_s)
        step_ns = run.breakdown.length_ns("step")
        if each["now_s"] is not None:
            assert each["now_s"] == pytest.approx(step_ns / 1e9)
            steps = (each[name] for name in ("now_s", "step_s", "step_at_most_s"))
            assert any(words in page for words in ways_to_say(*steps))


def test_many_cells_are_shown_in_three_places_or_more():
    """Else it would be no wonder that they agree."""
    shown: dict[str, set[str]] = defaultdict(set)
    surfaces = set[str]()
    for name in RUNS:
        run = run_of(name)
        for surface, key, _ in (*numbers(run), *gain_numbers(run), *words(name)):
            shown[key].add(surface)
            surfaces.add(surface)
    assert sum(len(by) >= 3 for by in shown.values()) >= 10
    assert surfaces >= {"page", "notebook", "paper", "watch", "tensorboard", "json", "mcp", "text"}


def test_words_know_where_their_numbers_stand() -> None:
    marked = f"It took {mark_cell('mean/run/storage', '3 s')} of {mark_cell('', '8 s')}."
    said = settle(marked)
    assert said == "It took 3 s of 8 s."
    (cell,) = cells_of(said, "no sentence of cells")
    assert (cell.key, said[cell.at : cell.at + len(cell.text)]) == ("mean/run/storage", "3 s")
    assert settle(str(said)).cells == ()


@pytest.mark.parametrize("name", RUNS)
def test_json_lists_the_cells_that_words_say(name: str) -> None:
    content = summary_object(run_of(name))
    for said, cells in (
        (content["headline"], content["headline_cells"]),
        *((" ".join(f[w] for w in ("title", "detail", "advice")), f["cells"])
          for f in content["findings"]),
    ):  # fmt: skip
        at = 0
        for cell in cells:
            at = said.index(cell["text"], at) + len(cell["text"])
