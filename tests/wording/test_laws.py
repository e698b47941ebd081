"""Sentences over extreme values: numbers agree with their nouns, and no template shows through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest

from tests.advice.labeled import RECIPES, made
from tests.makers.accounts import account_of
from tests.makers.comparisons import EXAMPLE_COMPARISONS
from tests.makers.results import EXAMPLES, Example
from vanidl.advice.registry import find
from vanidl.compare.figures.registry import FIGURES
from vanidl.compare.text import write_headline as compared
from vanidl.report.brief import brief, plain
from vanidl.report.overview import make_overview
from vanidl.sections.registry import figures
from vanidl.survey.fleet import Fleet
from vanidl.survey.page import page
from vanidl.survey.rows import Job, build_unread_row
from vanidl.survey.store import build_table
from vanidl.wording.headline import make_headline

EXTREMES = (0.0, 1.0, None, 1e9)
NOUNS = (
    "rank|step|read|write|file|open|worker|host|operation|profile|epoch|process|burst|warning|array"
    "|line|job|pair|log|sample|batch|value"
)
FAULTS = {
    "one and many": rf"(?<![\d.,@])1 (?:{NOUNS})e?s\b",
    "many and one": rf"(?<![\d.,])(?:0|[2-9]|\d\d+|\d+,\d\d\d) (?:{NOUNS})\b(?! \d)",
    "Markdown": r"`|\*\*",
    "not recorded in another sentence": r"(?<!was )(?<!were )(?<!is )(?<!are )(?<!dash: )"
    r"(?<!means )\bnot recorded",
    "only nothing": r"\b[Oo]nly 0\b",
    "only most": r"\b[Oo]nly (?:> )?(?:[5-9]\d|100)(?:\.\d)? %",
    "too few digits": r"(?<![\d.,])(?:[1-9]\.\d|0\.0*[1-9]\d?) (?:ns|µs|ms|[KMGTPE]iB)\b",
    "too many digits": r"\d\d\.\d\dx|\d{4,}\.\d",
    "a value of Python": r"\bNone\b(?! of)|\bnan\b|\binf\b|[{}]",
    "a range of one value": r"\b(\d[\d.,]*) to \1(?:\s(?:ns|µs|ms|s|%|[KMGT]iB)\b|x)",
    "empty parts": r"  |(?<!\w)\(\)|\( |,,| ,|;;|(?<!\.)\.\.(?!\.)|: ;|, \.(?!\w)",
}
QUANTITY = re.compile(
    r"(?<![\d.,/:_@+-])(?<!\bat )(?<!\bto )(?<!\bfrom )(\d[\d,]*(?:\.\d+)?)"
    r"\s(?:ns|µs|ms|s|%|[KMGTPE]iB(?:/s)?|times)(?=\W|$)"
)
"""A measured amount; after at, from and to also a place in time, which keeps its digits."""
ALLOWED = re.compile(r"1 (?:reads|writes|opens|files|steps|profiles|processes) the\b")  # verbs


def faults(text: str) -> list[tuple[str, str]]:
    """(what is wrong, the sentence) of each fault."""
    return [
        (name, sentence)
        for sentence in re.split(r"(?<=[.;]) (?=[A-Z0-9])", text.replace("\n", " "))
        for name, pattern in FAULTS.items()
        if re.search(pattern, sentence) and not ALLOWED.search(sentence)
    ] + [("too exact", found[0]) for found in QUANTITY.finditer(text) if digits(found[1]) > 3]


def digits(number: str) -> int:
    """Significant digits; zeros at the end of a whole number are none."""
    whole, _, part = number.replace(",", "").partition(".")
    return len((whole + part).lstrip("0") if part else whole.strip("0"))


@cache
def example(name: str) -> Any:
    return EXAMPLES[name]()


def job(name: str) -> Any:
    run = made(name)
    return run.trace, run.results


def varied(record: Any) -> Iterator[Any]:
    """The record with each number set to each extreme; whole numbers stay whole."""
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for extreme in EXTREMES:
            if extreme is None and "None" not in str(field.type):
                continue
            whole = isinstance(value, int) and extreme is not None
            yield replace(record, **{field.name: int(extreme) if whole else extreme})


def runs_of(made: Any) -> Iterator[Any]:
    """The run with one number of one of its records at an extreme."""
    for name in ("overlap", "summary", "steps", "placement"):
        of_time = name == "overlap"
        record = getattr(made if of_time else made.results, name)
        if record is None:
            continue

        def changed(one: Any, name: str = name, of_time: bool = of_time) -> Any:
            return replace(made, overlap=one) if of_time else made.changed(**{name: one})

        for one in varied(record):
            yield changed(one)
        inner = getattr(record, "mean", None) or getattr(record, "time", None)
        if is_dataclass(inner):
            key = "mean" if getattr(record, "mean", None) is inner else "time"
            for one in varied(inner):
                yield changed(replace(record, **{key: one}))


@pytest.mark.parametrize("name", EXAMPLES)
def test_headlines_of_extreme_values_read_well(name):
    made = example(name)
    if len(made.trace.ranks) > 100:
        return
    for changed in (made, *runs_of(made)):
        said = str(make_headline(changed.trace, changed.results, account_of(changed)))
        assert faults(said) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_first_screens_and_summaries_read_well(name):
    run = example(name).run
    screen = make_overview(run)
    said = [screen.verdict, *screen.facts, *(link.text for link in screen.trust)]
    said += [screen.bar.label] if screen.bar else []
    for action in screen.actions:
        said += [action.title, action.effect, action.reason]
        said += [r.explanation for r in action.remedies]
        said += [link.text for link in action.show]
    for text in said:
        assert faults(text) == [], text
    assert (
        faults(" ".join(plain(brief(replace(run, name="run"))).replace("\n ", " ").split())) == []
    )


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n != "hostile"])
def test_what_pictures_show_reads_well(name):
    for figure in figures(example(name).run):
        for text in (figure.alt_text, figure.empty_reason, figure.caption):
            assert faults(text) == [], (figure.id, text)


@pytest.mark.parametrize("name", [n for n in EXAMPLE_COMPARISONS if n != "hostile"])
def test_comparisons_read_well(name):
    comparison = EXAMPLE_COMPARISONS[name]()
    assert faults(str(compared(comparison))) == []
    for figure in (draw(comparison) for draw in FIGURES):
        for text in (figure.alt_text, figure.empty_reason, figure.caption):
            assert faults(text) == [], (figure.id, text)


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("jobs", [1, 2, 30])
def test_surveys_read_well(extreme, jobs):
    row = build_unread_row(Job("1", ("a",), "", "key"), "why")
    known = dict.fromkeys(("io_share", "io_per_rank_mean_s", "size_median"), extreme)
    known |= {"problem": None, "ranks": 1, "run_time_s": 1e9, "bytes_read": 1, "bytes_written": 0}
    rows = [row | known | {"start": "2026-01-01T00:00:00Z"}] * jobs + [row]
    made = page(Fleet(build_table(rows)), "logs")
    assert faults(str(made.headline)) == []
    for tile in made.tiles:
        assert not QUANTITY.search(tile.value) or digits(tile.value.split()[0]) <= 3
    for figure in made.figures:
        assert faults(figure.caption) + faults(figure.alt_text) == [], figure.id


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_findings_read_well(name):
    for finding in find(*job(name)):
        assert finding.detail[-1] + finding.advice[-1] == "..", finding.code
        assert faults(f"{finding.title}. {finding.detail} {finding.advice}") == []


@pytest.mark.parametrize("name", ["slow_rank", "one_reader", "read_again", "tiny_files"])
def test_findings_of_extreme_values_read_well(name):
    run = made(name)
    example = Example(run.trace, run.results, run.overlap)
    found = {
        (finding.code, finding.title, finding.detail, finding.advice)
        for changed in runs_of(example)
        for finding in find(changed.trace, changed.results, changed.account)
    }  # most values change few sentences
    for code, title, detail, advice in found:
        assert detail[-1] + advice[-1] == "..", code
        assert faults(f"{title}. {detail} {advice}") == [], code


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1 ranks wait.", "one and many"),
        ("2 rank waits.", "many and one"),
        ("The clock is known to not recorded only.", "not recorded in another sentence"),
        ("Only 0 % of the reads were traced.", "only nothing"),
        ("Only 96 % of the reads were traced.", "only most"),
        ("It read 8.3 MiB of 4.97 MiB.", "too few digits"),
        ("11844.36x as much.", "too many digits"),
        ("It took None.", "a value of Python"),
        ("It took 15.86 s.", "too exact"),
        ("It read 1,479 MiB.", "too exact"),
        ("It took , and ended.", "empty parts"),
        ("2 logs, moved by 0 to 0 s.", "a range of one value"),
    ],
)
def test_faults_are_seen(text, fault):
    assert fault in [name for name, _ in faults(text)]


@pytest.mark.parametrize(
    "text",
    [
        "1 rank of 4 waits.",
        "Only 7 % of 1 MiB were read, in 8.30 ms.",
        "Input wait was not recorded.",
        "11,800 times as much.",
        "2.4 times it.",
        "It took 1,480 s of 15.9 s, at 1,234.567 s.",
    ],
)
def test_good_sentences_have_none(text):
    assert faults(text) == []
