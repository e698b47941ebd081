"""A comparison in words: the answer, how sure it is, and the tables of a terminal.

Pure functions of the comparison, so that page, terminal and JSON say the same. `list_differences`
says what differs between the sides before anything is measured: commands, tracers, ranks.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from difflib import SequenceMatcher
from itertools import compress

from vanidl.breakdown import Cell
from vanidl.compare.comparison import (
    MIN_CHANGE,
    NO_DIFFERENCE,
    NO_INTERVAL,
    NOT_COMPARABLE,
    NOT_RECORDED,
    TOO_FEW,
    WINDOWS,
    Change,
    Comparison,
    Pairing,
    compare_cells,
)
from vanidl.compare.sides import Sample, Side
from vanidl.compare.statistics import ALPHA
from vanidl.formatting.terminal import aligned_table, paragraph, printable
from vanidl.formatting.units import count, number, percent, plural, relative, shown
from vanidl.model import warnings
from vanidl.model.run_facts import describe_ending
from vanidl.sections.breakdown import range_words
from vanidl.wording.headline import Headline
from vanidl.wording.results import describe_ceiling as ceiling_sentence

_SHOWN = 0.02  # of its window: cells that cannot have had more are left out


def render_text(comparison: Comparison) -> str:
    """The headline, the sides and a table for each side that is compared with the first."""
    answer = write_headline(comparison)
    blocks = [
        *(paragraph(said) for said in (answer.ending, answer.title) if said),
        *(paragraph(sentence) for sentence in answer.support),
        "",
        *(f"  {side.letter}  {_name_side(side)}" for side in comparison.sides),
        *(f"  {name} differs: {text}" for name, text in list_differences(comparison)),
        *(f"  {name}: {value}" for name, value in comparison.conditions),
        "",
        *(line for side in comparison.sides for line in _list_missing(side)),
        *(table for pairing in comparison.pairings for table in _make_tables(pairing)),
    ]
    return printable("\n".join(blocks)).rstrip("\n") + "\n"


def _name_side(side: Side) -> str:
    many = f" ({len(side.samples)} runs)" if len(side.samples) > 1 else ""
    return f"{side.name}{many}"


def _list_missing(side: Side) -> list[str]:
    """What is missing in the runs of a side, a paragraph for each warning that says so."""
    said = dict.fromkeys(
        (warning.code, warning.message)
        for sample in side.samples
        if sample.results is not None
        for warning in sample.results.coverage.warnings
        if warning.code in warnings.NOT_COMPARABLE and warning.severity == warnings.WARNING
    )
    return [f"{paragraph(f'! {side.letter}: {code}: {message}')}\n" for code, message in said]


def _make_tables(pairing: Pairing) -> tuple[str, ...]:
    """The metrics, and where the time of both sides went as far as it is known."""
    a, b = pairing.a.letter, pairing.b.letter
    # Intervals and verdicts have a column only where there are any.
    header = (f"{count_runs(pairing)}", a, b, "change", f"{CONFIDENCE} interval", "verdict")
    changes = [header, *(_format_change(change) for change in pairing.changes)]
    kept = [True] * 4 + [any(map(format_interval, pairing.changes)), has_verdicts(pairing)]
    shown_rows = [tuple(compress(row, kept)) for row in changes]
    metrics = aligned_table(f"{b} compared with {a}", shown_rows)
    rows: list[tuple[str, ...]] = [("Cause", a, b)]
    window = ""
    for row in compare_cells(pairing.a, pairing.b):
        # Rows that neither side could have much time in are left out.
        known = any(ends is not None and ends[0] > 0 for ends in (row.a, row.b))
        _, of, cause = row.key.split("/")
        if not known or row.share < _SHOWN:
            continue
        # A line for each window of time, above its causes.
        if of != window:
            window = of
            rows.append((WINDOWS[window], "", ""))
        rows.append(
            (f"  {cause.replace('_', ' ')}", *(_format_ends(ends) for ends in (row.a, row.b)))
        )
    accounts = aligned_table("Where the time went, mean over ranks", rows)
    return tuple(table for table in (metrics, accounts if rows[1:] else None) if table)


def _format_ends(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return "-"
    low_ns, high_ns = (round(end * 1e9) for end in ends)
    return range_words(Cell(low_ns, high_ns))


def _format_change(change: Change) -> tuple[str, ...]:
    unit = change.metric.unit
    return (
        change.metric.title,
        shown(change.a, unit),
        shown(change.b, unit),
        relative(change.ratio)
        if change.ratio is not None
        else describe_from_nothing(change) or "-",
        format_interval(change) or "-",
        change.verdict,
    )


# Sentences: what the page, the terminal and JSON say alike.

CONFIDENCE = percent(1 - ALPHA)
_NOUN = {
    "throughput": "throughput",
    "wall_time_s": "wall time",
    "run_time_s": "run time",
    "samples_per_s": "samples a second",
    "save_bytes_per_s": "rate of saves",
    "load_bytes_per_s": "rate of loads",
}
_SUPPORT = ("step_time_s", "input_wait_s", "lost_to_input_s", "exposed_io_s", "hidden_io_s")
UNBOUNDED = 1000.0
"""Factor beyond which a bound of an interval says nothing."""


def write_headline(comparison: Comparison) -> Headline:
    """What changed, by how much and how sure, and what a reader must know beside it."""
    first, *rest = (
        _capitalize(_answer_question(p, comparison.primary)) for p in comparison.pairings
    )
    # How programs failed: of each side the first, and how many runs of it did.
    said = []
    for side in comparison.sides:
        words = [how for sample in side.samples if (how := describe_ending(sample.ending))]
        many = f"{count(len(words))} of {plural(len(side.samples), 'run')}: "
        if words:
            said.append(f"{side.letter}: {many if len(side.samples) > 1 else ''}{words[0]}")
    endings = " ".join(said)
    return Headline(first, (*rest, *_list_support(comparison)), endings)


def format_interval(change: Change) -> str:
    """`+102 % to +129 %`, of a difference `+1.2 s to +1.4 s`; "" where there is none."""
    if change.p is not None and len({*change.values_a, *change.values_b}) == 1:
        return "equal in all runs"
    if change.low is not None and change.high is not None:
        if change.low < 1 / UNBOUNDED or change.high > UNBOUNDED:
            return "not bounded"
        return _format_range(change.low, change.high)
    if change.difference is not None:
        low, high = (format_signed(v, change.metric.unit) for v in change.difference[1:])
        return f"{low} to {high}"
    return ""


def has_verdicts(pairing: Pairing) -> bool:
    """Whether a column of verdicts says more than that one run each gives none."""
    return any(change.verdict != NO_INTERVAL for change in pairing.changes)


def describe_from_nothing(change: Change) -> str:
    """What stands in the place of a ratio to 0; "" where there is a ratio, or a side is unknown."""
    if change.a != 0 or change.b is None or change.ratio is not None:
        return ""
    return "equal" if change.b == 0 else f"from {shown(0, change.metric.unit)}"


def _format_range(low: float, high: float) -> str:
    """`1.97 to 2.31 times` where one is a factor, else `-58 % to -42 %`; equal ends are one."""
    if relative(low) == relative(high):
        return relative(low)
    if low >= 1 and high >= 2:
        return f"{number(low)} to {relative(high)}"
    return f"{relative(low)} to {relative(high)}"


def format_signed(value: float, unit: str) -> str:
    """A difference with its sign: `+1.20 s`, `-3.1 MiB`."""
    text = shown(abs(value), unit)
    return text if value == 0 else f"{'-' if value < 0 else '+'}{text}"


def format_values(change: Change) -> str:
    """`15.86 s -> 781 ms`, with an arrow."""
    a, b = (shown(value, change.metric.unit) for value in (change.a, change.b))
    return f"{a} \N{RIGHTWARDS ARROW} {b}"


def count_runs(pairing: Pairing) -> str:
    """`one run each`, `5 pairs`, `5 and 4 runs`."""
    a, b = len(pairing.a.samples), len(pairing.b.samples)
    if pairing.paired:
        return plural(a, "pair")
    if a == b:
        return "one run each" if a == 1 else f"{count(a)} runs each"
    return f"{count(a)} and {plural(b, 'run')}"


def _answer_question(pairing: Pairing, primary: str) -> str:
    change, noun = pairing.change(primary), _NOUN[primary]
    # From the least that can be said to the most: nothing, a ratio, an interval, a verdict.
    if change is None or change.ratio is None:
        why = change.note if change is not None else "not recorded"
        return f"Neither better nor worse can be said of {pairing.b.letter}: {noun} was {why}."
    if change.verdict == NO_INTERVAL:
        alone = len(pairing.a.samples) == len(pairing.b.samples) == 1
        why = count_runs(pairing) if alone else change.note.split(" give")[0]
        return (
            f"{_phrase_change(pairing, change, noun, relative(change.ratio))} ({why}: no interval)."
        )
    if change.verdict == TOO_FEW:
        return _phrase_few_runs(pairing, change, noun)
    sure = f"{CONFIDENCE} interval {format_interval(change)}, {count_runs(pairing)}"
    had = _phrase_change(pairing, change, noun, relative(change.ratio))
    if change.verdict == NO_DIFFERENCE:
        return f"no difference in {noun} shown: {had} ({sure})."
    return f"{had} ({sure}): {change.verdict}."


def _phrase_change(pairing: Pairing, change: Change, noun: str, amount: str) -> str:
    """`B has 2.2 times the throughput of A`, `B has -9 % throughput ...` in words."""
    a, b = pairing.a.letter, pairing.b.letter
    if amount == "equal":
        return f"{b} has the same {noun} as {a}"
    if amount.endswith("times"):
        return f"{b} has {amount} the {noun} of {a}"
    more = "less" if (change.ratio or 0.0) < 1 else "more"
    return f"{b} has {amount.lstrip('+-')} {more} {noun} than {a}"


def _phrase_few_runs(pairing: Pairing, change: Change, noun: str) -> str:
    """The changes seen in the runs, and that they are too few to judge."""
    # The ratio of every pair; of runs that are not paired, of their means.
    both = zip(change.values_a, change.values_b, strict=True) if pairing.paired else ()
    ratios = [b / a for a, b in both if a and b] or [change.ratio or 1.0]
    seen, a, b = ratios, pairing.a.letter, pairing.b.letter
    low, high = min(seen), max(seen)
    if relative(low) == relative(high):
        had = _phrase_change(pairing, change, noun, relative(change.ratio))
    elif low >= 1 and high >= 2:
        had = f"{b} had {_format_range(low, high)} the {noun} of {a}"
    else:
        had = f"{b}'s {noun} against {a}'s: {_format_range(low, high)}"
    bounds = format_interval(change)
    sure = f" ({CONFIDENCE} interval {bounds})" if bounds else ""
    return f"{count_runs(pairing)}, too few for a verdict; seen: {had}{sure}."


def _list_support(comparison: Comparison) -> tuple[str, ...]:
    sentences = [
        f"{side.letter}: {ceiling_sentence(side.ceiling)}"
        for side in comparison.sides
        if side.ceiling is not None
    ]
    for pairing in comparison.pairings:
        supported = [_phrase_support(pairing, name) for name in _SUPPORT]
        known = [words for words in (*supported, _list_not_recorded(pairing)) if words]
        # Of two sides it is clear which one is meant.
        lead = f"{pairing.b.letter}: " if len(comparison.pairings) > 1 else ""
        if known:
            words = "; ".join(known)
            sentences.append(f"{lead}{words}." if lead else f"{_capitalize(words)}.")
        sentences += [_phrase_resolution(pairing, comparison.primary), *pairing.notices]
    return tuple(sentence for sentence in sentences if sentence)


def _list_not_recorded(pairing: Pairing) -> str:
    """`input wait and hidden I/O were not recorded in A`, all that miss alike in one go."""
    # What is not recorded for the same reason, together.
    titles_by_note: dict[str, list[str]] = {}
    for name in _SUPPORT:
        change = pairing.change(name)
        if (
            change is not None
            and change.verdict == NOT_RECORDED
            and not _repeats_itself(name, pairing)
        ):
            titles_by_note.setdefault(change.note, []).append(change.metric.title)
    sentences = []
    for note, titles in titles_by_note.items():
        *rest, last = titles
        names = f"{', '.join(rest)} and {last}" if rest else last
        sentences.append(f"{names} {'were' if rest else 'was'} {note}")
    return "; ".join(sentences)


def _phrase_support(pairing: Pairing, name: str) -> str:
    """`input wait fell from 15.86 s to 781 ms`; "" where it says nothing new."""
    change = pairing.comparable(name)
    if change is None or change.a is None or change.b is None or _repeats_itself(name, pairing):
        return ""
    title = change.metric.title
    a, b = (shown(value, change.metric.unit) for value in (change.a, change.b))
    if change.verdict in (NO_DIFFERENCE, NOT_COMPARABLE):
        return f"{title}: {change.verdict} ({a} and {b})"
    if change.a == change.b:
        return f"{title} stayed at {a}"
    by = f" ({relative(change.ratio)})" if change.ratio is not None else ""
    return f"{title} {'rose' if change.b > change.a else 'fell'} from {a} to {b}{by}"


def _repeats_itself(name: str, pairing: Pairing) -> bool:
    """With one rank, lost to input and input wait are the same."""
    return name == "lost_to_input_s" and all(
        len(sample.ranks) <= 1 for side in (pairing.a, pairing.b) for sample in side.samples
    )


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _phrase_resolution(pairing: Pairing, primary: str) -> str:
    """How small a change such runs can show, where they showed none.

    A change as large as half of the interval is shown by every second repetition of the whole
    comparison, for 3 runs a side as for 5 (tests/compare/test_statistics.py).
    """
    change = pairing.change(primary)
    if change is None or change.verdict != NO_DIFFERENCE:
        return ""
    if change.low is None or change.high is None or change.ratio is None:
        return ""
    reach = max(change.high / change.ratio - 1, MIN_CHANGE)
    return (
        f"That is not proof of none: {count_runs(pairing)} as noisy as these show a change of "
        f"{relative(1 + reach)} about every second time."
    )


_NOTHING = "nothing"
_LONGEST = 2000  # words of a command; longer ones are compared as a whole


def list_differences(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """(what, how the other sides' differs from the first's), without what is the same."""
    first, *others = comparison.sides
    changes = []
    for side in others:
        prefix = f"{side.letter}: " if len(others) > 1 else ""
        for what, read in _READ:
            a, b = _read_common(first, read), _read_common(side, read)
            if a and b and a != b:
                text = _diff_words(a, b) if what == "command" else _draw_arrow(a, b)
                changes.append((prefix + what, text))
    return tuple(changes)


def _read_common(side: Side, read: Callable[[Sample], str]) -> str:
    """What all runs of the side have, "" where they differ among themselves."""
    texts = {read(sample) for sample in side.samples}
    return texts.pop() if len(texts) == 1 else ""


_READ: tuple[tuple[str, Callable[[Sample], str]], ...] = (
    ("command", lambda sample: sample.job.command if sample.job is not None else ""),
    ("tracer", lambda sample: sample.job.tracer if sample.job is not None else ""),
    ("ranks", lambda sample: plural(len(sample.ranks), "rank") if sample.ranks else ""),
)


def _diff_words(a: str, b: str) -> str:
    """`--workers 0 -> --workers 4`: the words that differ, an option with its value."""
    x, y = _split_words(a), _split_words(b)
    if max(len(x), len(y)) > _LONGEST:
        return _draw_arrow("one command", "another")
    parts = [
        _draw_arrow(" ".join(x[i:j]), " ".join(y[k:n]))
        for tag, i, j, k, n in SequenceMatcher(None, x, y, autojunk=False).get_opcodes()
        if tag != "equal"
    ]
    return "; ".join(parts)


def _split_words(command: str) -> list[str]:
    """Words of a command; an option and the value behind it are one."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is not closed: as it stands
        words = command.split()
    joined: list[str] = []
    for word in words:
        if joined and _takes_value(joined[-1]) and not word.startswith("-"):
            joined[-1] = f"{joined[-1]} {word}"
        else:
            joined.append(word)
    return joined


def _takes_value(word: str) -> bool:
    return word.startswith("--") and "=" not in word and " " not in word


def _draw_arrow(a: str, b: str) -> str:
    return f"{a or _NOTHING} \N{RIGHTWARDS ARROW} {b or _NOTHING}"
