"""A comparison in words: the answer, and how sure it is.

A pure function of the comparison, so that page, terminal and JSON say the same.
"""

from __future__ import annotations

from vanidl.compare.comparison import (
    BETTER,
    MIN_CHANGE,
    NO_DIFFERENCE,
    NO_INTERVAL,
    NOT_COMPARABLE,
    WORSE,
    Change,
    Comparison,
    Pairing,
)
from vanidl.compare.statistics import ALPHA
from vanidl.formatting.units import count, percent, plural, ratio, shown
from vanidl.wording.headline import Headline

CONFIDENCE = percent(1 - ALPHA)
_NOUN = {
    "step_time_s": ("typical step takes", "step time"),
    "wall_time_s": ("command takes", "wall time"),
    "run_time_s": ("job takes", "run time"),
}
_SUPPORT = ("throughput", "input_wait_s", "lost_to_input_s", "exposed_io_s", "hidden_io_s")
_JUDGED = (BETTER, WORSE)


def headline(comparison: Comparison) -> Headline:
    """What changed, by how much and how sure, and what a reader must know beside it."""
    first, *rest = (_capital(_answer(p, comparison.primary)) for p in comparison.pairings)
    return Headline(first, (*rest, *_support(comparison)))


def interval(change: Change) -> str:
    """`0.44 to 0.48`, of a difference `+1.2 s to +1.4 s`; "" where there is none."""
    if change.p is not None and len({*change.values_a, *change.values_b}) == 1:
        return "equal in all runs"
    if change.low is not None and change.high is not None:
        return f"{ratio(change.low)} to {ratio(change.high)}"
    if change.difference is not None:
        low, high = (signed(v, change.metric.unit) for v in change.difference[1:])
        return f"{low} to {high}"
    return ""


def signed(value: float, unit: str) -> str:
    """A difference with its sign: `+1.20 s`, `-3.1 MiB`."""
    text = shown(abs(value), unit)
    return text if value == 0 else f"{'-' if value < 0 else '+'}{text}"


def values(change: Change) -> str:
    """`15.86 s -> 781 ms`, with an arrow."""
    return f"{shown(change.a, change.metric.unit)} \N{RIGHTWARDS ARROW} {_b(change)}"


def runs(pairing: Pairing) -> str:
    """`one run each`, `5 pairs`, `5 and 4 runs`."""
    a, b = len(pairing.a.samples), len(pairing.b.samples)
    if pairing.paired:
        return plural(a, "pair")
    if a == b:
        return "one run each" if a == 1 else f"{count(a)} runs each"
    return f"{count(a)} and {plural(b, 'run')}"


def _b(change: Change) -> str:
    return shown(change.b, change.metric.unit)


def _answer(pairing: Pairing, primary: str) -> str:
    change, throughput = pairing.change(primary), pairing.change("throughput")
    if change is None or change.ratio is None:
        why = change.note if change is not None else "not recorded"
        noun = _NOUN[primary][1]
        return f"Neither better nor worse can be said of {pairing.b.letter}: {noun} was {why}."
    if primary != "step_time_s" or throughput is None or throughput.verdict not in _JUDGED:
        return f"{_taken(pairing, change, primary)}."
    if throughput.verdict == change.verdict:
        return f"{_taken(pairing, change, primary)}."
    return f"{_many(pairing, throughput)}, though {_taken(pairing, change, primary)}."


def _taken(pairing: Pairing, change: Change, primary: str) -> str:
    """`B's typical step takes 1.10 times A's time (98 % interval ..., 5 pairs): worse`."""
    verb, noun = _NOUN[primary]
    value = change.ratio or 0.0
    a, b = pairing.a.letter, pairing.b.letter
    of = "of" if value < 1 else "times"
    taken = f"{b}'s {verb} {ratio(value)} {of} {a}'s time"
    if change.verdict == NO_INTERVAL:
        alone = len(pairing.a.samples) == len(pairing.b.samples) == 1
        why = runs(pairing) if alone else change.note.split(" give")[0]
        return f"{taken} ({why}: no interval)"
    sure = f"{CONFIDENCE} interval {interval(change)}, {runs(pairing)}"
    if change.verdict == NO_DIFFERENCE:
        return f"no difference in {noun} shown: {taken} ({sure})"
    return f"{taken} ({sure}): {change.verdict}"


def _many(pairing: Pairing, change: Change) -> str:
    """The throughput, where it says something else than the typical step."""
    a, b = pairing.a.letter, pairing.b.letter
    sure = f"{CONFIDENCE} interval {interval(change)}, {runs(pairing)}"
    return (
        f"{b} does {ratio(change.ratio)} times {a}'s steps per second ({sure}): {change.verdict} "
        "by the steps that wait longest"
    )


def _support(comparison: Comparison) -> tuple[str, ...]:
    sentences = []
    for pairing in comparison.pairings:
        found = [_support_words(pairing, name) for name in _SUPPORT]
        known = [words for words in found if words]
        lead = f"{pairing.b.letter}: " if len(comparison.pairings) > 1 else ""
        if known:
            words = "; ".join(known)
            sentences.append(f"{lead}{words}." if lead else f"{_capital(words)}.")
        sentences += [_resolution(pairing, comparison.primary), *pairing.notices]
    return tuple(sentence for sentence in sentences if sentence)


def _support_words(pairing: Pairing, name: str) -> str:
    """`input wait fell from 15.86 s to 781 ms`; "" where it says nothing new."""
    change = pairing.change(name)
    if change is None or (name == "lost_to_input_s" and _one_rank(pairing)):
        return ""
    title = change.metric.title
    if change.a is None or change.b is None:
        return f"{title} was {change.note}"
    a, b = (shown(value, change.metric.unit) for value in (change.a, change.b))
    if change.verdict in (NO_DIFFERENCE, NOT_COMPARABLE):
        return f"{title}: {change.verdict} ({a} and {b})"
    if change.a == change.b:
        return f"{title} stayed at {a}"
    return f"{title} {'rose' if change.b > change.a else 'fell'} from {a} to {b}"


def _one_rank(pairing: Pairing) -> bool:
    """With one rank, lost to input and input wait are the same."""
    return all(len(sample.ranks) <= 1 for side in (pairing.a, pairing.b) for sample in side.samples)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _resolution(pairing: Pairing, primary: str) -> str:
    """How small a change such runs can show, where they showed none."""
    change = pairing.change(primary)
    if change is None or change.verdict != NO_DIFFERENCE:
        return ""
    if change.low is None or change.high is None or change.ratio is None:
        return ""
    reach = max(change.high / change.ratio - 1, MIN_CHANGE)
    return (
        f"That is not proof of none: runs as noisy as these show a change from about "
        f"{percent(reach)} on."
    )
