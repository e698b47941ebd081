"""Costly lines of the program in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePath

from vanidl.analyses.lines import Line, Lines, PartLines
from vanidl.breakdown import step_bar as parts
from vanidl.breakdown.step_bar import StepParts
from vanidl.formatting.names import elided
from vanidl.formatting.units import percent

MATTERS = 0.1
"""Of a part: a line with less is not named in the answer."""
ENOUGH = 4
"""Samples of a part: with fewer of them a line may have been costly by chance."""
_MOST_TEXT = 60
_CPU, _BLOCKED = 0.75, 0.25  # of a line's time, from and to which it is on the processor or blocked

_ALL: Callable[[Line], float] = lambda line: line.share  # noqa: E731
_BY_CPU: Callable[[Line], float] = lambda line: line.cpu_share  # noqa: E731
_BY_BLOCKED: Callable[[Line], float] = lambda line: line.blocked_share  # noqa: E731
_OF_WAITS = {parts.IO_WAIT: _BY_BLOCKED, parts.OTHER_WAIT: _BY_CPU, parts.INPUT_WAIT: _ALL}
_OF_STEPS = (parts.PREPARE, parts.BEHIND, parts.COMPUTED, parts.REST)


def place(line: Line) -> str:
    """`data.py:42`."""
    return f"{elided(PurePath(line.file).name, limit=40)}:{line.line}"


def named(line: Line) -> str:
    """`img.resize(...) data.py:42`."""
    return f"{elided(line.text, limit=_MOST_TEXT)} {place(line)}" if line.text else place(line)


def how(line: Line) -> str:
    """Whether its time was on the processor: `blocked`, `on the processor`, or both shares."""
    share = line.cpu_s / line.wall_s if line.wall_s else 0.0
    if share >= _CPU:
        return "on the processor"
    return "blocked" if share <= _BLOCKED else f"{percent(share)} on the processor"


def sentences(lines: Lines | None) -> Iterator[str]:
    """The costliest line of fetches and that of the loop, where they matter."""
    if lines is None:
        return
    for where, part in (("fetches", lines.fetch), ("the loop between its batches", lines.loop)):
        if part is not None and part.samples >= ENOUGH and part.lines[0].share >= MATTERS:
            line = part.lines[0]
            yield f"Of {where}, {percent(line.share)} is {named(line)} ({how(line)})."


def line_of_part(code: str, whole: StepParts, lines: Lines | None) -> str:
    """The costliest line of a part of the step, with its share of the step; "" for none.

    Waits have the lines of fetches: those of storage what was blocked, other work what was on the
    processor. What lies between waits has the lines of the loop.
    """
    if lines is None:
        return ""
    if code in _OF_WAITS:
        share = next(part.share for part in whole.parts if part.code == code)
        return _costliest(lines.fetch, _OF_WAITS[code], share)
    codes = [part.code for part in whole.parts]
    if code == next((c for c in reversed(_OF_STEPS) if c in codes), None):
        between = sum(part.share for part in whole.parts if part.code not in parts.WAITS)
        return _costliest(lines.loop, _ALL, between)
    return ""


def _costliest(part: PartLines | None, cost: Callable[[Line], float], of_step: float) -> str:
    if part is None or part.samples < ENOUGH:
        return ""
    line = max(part.lines, key=cost)
    return f"{named(line)} {percent(cost(line) * of_step)}" if cost(line) >= MATTERS else ""
