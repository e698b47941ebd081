"""What differs between the sides before anything is measured: commands, tracers, ranks."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from difflib import SequenceMatcher

from vanidl.compare.comparison import Comparison
from vanidl.compare.sides import Sample, Side
from vanidl.formatting.units import plural

_NOTHING = "nothing"
_LONGEST = 2000  # words of a command; longer ones are compared as a whole


def differences(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """(what, how the other sides' differs from the first's), without what is the same."""
    first, *others = comparison.sides
    found = []
    for side in others:
        prefix = f"{side.letter}: " if len(others) > 1 else ""
        found += [(prefix + what, text) for what, text in _between(first, side)]
    return tuple(found)


def _between(a: Side, b: Side) -> list[tuple[str, str]]:
    known = [(what, _one(a, read), _one(b, read)) for what, read in _READ]
    told = [(what, x, y) for what, x, y in known if x and y and x != y]
    return [
        (what, _changed_words(x, y) if what == "command" else _arrow(x, y)) for what, x, y in told
    ]


def _one(side: Side, read: Callable[[Sample], str]) -> str:
    """What all runs of the side have, "" where they differ among themselves."""
    found = {read(sample) for sample in side.samples}
    return found.pop() if len(found) == 1 else ""


def _command(sample: Sample) -> str:
    return sample.job.command if sample.job is not None else ""


def _tracer(sample: Sample) -> str:
    return sample.job.tracer if sample.job is not None else ""


def _ranks(sample: Sample) -> str:
    return plural(len(sample.ranks), "rank") if sample.ranks else ""


_READ: tuple[tuple[str, Callable[[Sample], str]], ...] = (
    ("command", _command),
    ("tracer", _tracer),
    ("ranks", _ranks),
)


def _changed_words(a: str, b: str) -> str:
    """`--workers 0 -> --workers 4`: the words that differ, an option with its value."""
    x, y = _words(a), _words(b)
    if max(len(x), len(y)) > _LONGEST:
        return _arrow("one command", "another")
    parts = [
        _arrow(" ".join(x[i:j]), " ".join(y[k:n]))
        for tag, i, j, k, n in SequenceMatcher(None, x, y, autojunk=False).get_opcodes()
        if tag != "equal"
    ]
    return "; ".join(parts)


def _words(command: str) -> list[str]:
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


def _arrow(a: str, b: str) -> str:
    return f"{a or _NOTHING} \N{RIGHTWARDS ARROW} {b or _NOTHING}"
