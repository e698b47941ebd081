"""The third arm of `vanidl ab --ceiling`: what the steps of both sides take without input.

Each pair has a run of command A with batches from memory. The steps of either side are held
against that of their own pair; over pairs the interval is that of other comparisons: Student's t
on the logarithms of ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, fsum, log, nextafter
from pathlib import Path

from vanidl.ceiling import measure
from vanidl.compare import statistics
from vanidl.errors import InputError
from vanidl.model.ceiling import Ceiling


@dataclass(frozen=True, slots=True)
class Measured:
    """The ceiling of one side, or why there is none."""

    ceiling: Ceiling | None
    why_not: str = ""


def over_pairs(pairs: Sequence[tuple[Path, Path]]) -> Measured:
    """The ceiling over (run, run of the same pair with batches from memory)."""
    each = [_measured(*pair) for pair in pairs]
    found = [one.ceiling for one in each if one.ceiling is not None]
    if found:
        return Measured(together(found))
    return each[-1] if each else Measured(None)


def _measured(run: Path, free: Path) -> Measured:
    try:
        return Measured(measure(run, free))
    except InputError as error:
        return Measured(None, str(error))


def together(each: Sequence[Ceiling]) -> Ceiling:
    """One ceiling of several pairs: geometric means, counts of all; that of one pair is its own."""
    first = each[0]
    if len(each) == 1:
        return first
    step_s, free_s = (_mean([getattr(c, name) for c in each]) for name in ("step_s", "free_s"))
    low = _bounds(each, [c.free_s for c in each])[0]
    high = _bounds(each, [max(c.free_s - c.copying_s, nextafter(0, 1)) for c in each])[1]
    cost = 1 - free_s / step_s
    return replace(
        first,
        steps=min(c.steps for c in each),
        step_s=step_s,
        free_s=free_s,
        median_step_s=_mean([c.median_step_s for c in each]),
        median_free_s=_mean([c.median_free_s for c in each]),
        copying_s=fsum(c.copying_s for c in each) / len(each),
        cost=cost,
        low=min(low, cost),
        high=min(max(high, cost), nextafter(1.0, 0.0)),
        pairs=len(each),
        remarks=tuple(dict.fromkeys(remark for c in each for remark in c.remarks)),
    )


def _mean(values: Sequence[float]) -> float:
    return exp(fsum(map(log, values)) / len(values))


def _bounds(each: Sequence[Ceiling], free_s: Sequence[float]) -> tuple[float, float]:
    found = statistics.paired([c.step_s for c in each], free_s)
    if found is None:
        raise ValueError("expected at least two pairs")
    return 1 - found.high, 1 - found.low
