"""How sure a change is: intervals and tests for few runs.

The unit is the run. Steps of one run are no independent repeats: they share the state of the
machine and follow each other, so their number says nothing of how far the next run will be
off. A run gives one value a metric; n pairs of runs give n logarithms of ratios.

Assumed: pairs are independent of each other, and log ratios of their values are about normal.
A mean over many steps is, and Student's t is forgiving otherwise: outliers widen it, so it
errs towards "no difference shown". Alternating the order (ABBA) turns a steady drift of the
machine into spread, not into a difference.

No test that only ranks or flips signs can serve here: with five pairs the smallest two-sided
p of a sign-flip test is 2 / 2^5 = 0.0625.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.model.student_t import t_above, t_tail
from vanidl.schema.dataclass import dataclass

ALPHA = 0.02
"""How often a metric may be called different where nothing is.

At the usual 0.05, a hundred comparisons of like with like give six or more false alarms in 38
of 100 cases; at 0.02 in fewer than 2.
"""

_LARGEST_EXPONENT = 700.0  # two runs far apart give bounds that no float64 holds

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The change from a to b, its 98 % interval, and the p of "there is none".

    On scale "ratio" the three numbers are b / a, on scale "difference" b - a.
    """

    scale: str
    value: float
    low: float
    high: float
    p: float


def paired(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """The change over pairs (a[i], b[i]); None for fewer than two pairs.

    Student's paired t with n - 1 degrees of freedom, on logarithms where all values are above
    zero (so that the estimate is the geometric mean of the pairs' ratios), else on plain
    differences.
    """
    if len(a) != len(b):
        raise ValueError(f"expected pairs, found {len(a)} and {len(b)} values")
    if len(a) < 2:
        return None
    scale, x, y = _scaled(a, b)
    change = y - x
    error = float(np.std(change, ddof=1)) / math.sqrt(len(change))
    return _estimate(scale, float(change.mean()), error, len(change) - 1)


def unpaired(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """The change between two groups of runs; None where a group has fewer than two.

    Welch's t with the degrees of freedom of Satterthwaite (Biometrics Bulletin 2, 1946), on
    the scale that `paired` uses.
    """
    if min(len(a), len(b)) < 2:
        return None
    scale, x, y = _scaled(a, b)
    vx, vy = float(np.var(x, ddof=1)) / len(x), float(np.var(y, ddof=1)) / len(y)
    spread = vx + vy
    weights = vx**2 / (len(x) - 1) + vy**2 / (len(y) - 1)
    freedom = spread**2 / weights if weights > 0 else float(len(x) + len(y) - 2)
    return _estimate(scale, float(y.mean() - x.mean()), math.sqrt(spread), freedom)


def holm(p: Sequence[float]) -> list[float]:
    """Values of p corrected for their number, in the order given, at most 1.

    Holm, Scandinavian Journal of Statistics 6 (1979): the k-th smallest of m times m - k + 1,
    never below the one before. Whatever the metrics have to do with each other, at most
    `ALPHA` of all comparisons call any of them different wrongly.
    """
    corrected = [0.0] * len(p)
    reach = 0.0
    for k, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        reach = max(reach, min(1.0, (len(p) - k) * p[i]))
        corrected[i] = reach
    return corrected


def middle(values: Sequence[float]) -> float | None:
    """The geometric mean where all are above zero, else the mean; None of nothing."""
    if not values:
        return None
    if min(values) > 0:
        return values[0] if len(set(values)) == 1 else math.exp(float(np.log(values).mean()))
    return sum(values) / len(values)


def _scaled(a: Sequence[float], b: Sequence[float]) -> tuple[str, FloatArray, FloatArray]:
    x, y = np.asarray(a, float), np.asarray(b, float)
    if min(x.min(), y.min()) > 0:
        return "ratio", np.log(x), np.log(y)
    return "difference", x, y


def _estimate(scale: str, change: float, error: float, freedom: float) -> Estimate:
    if error > 1e-12 * max(abs(change), 1.0):
        reach = error * t_above(ALPHA / 2, freedom)
        p = 2 * t_tail(abs(change) / error, freedom)
    else:  # the same in every run: a count, not a measurement
        error = reach = 0.0
        p = 0.0 if abs(change) > 1e-12 else 1.0
    bounds = [change, change - reach, change + reach]
    if scale == "ratio":
        bounds = [math.exp(min(bound, _LARGEST_EXPONENT)) for bound in bounds]
    value, low, high = bounds
    return Estimate(scale, value, low, high, p)
