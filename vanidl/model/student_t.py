"""Student's t distribution, without the 143 MB of SciPy that an installation would need for it."""

from __future__ import annotations

import math

_TINY = 1e-300
_PRECISION = 1e-15
_MOST_TERMS = 10_000


def t_tail(t: float, freedom: float) -> float:
    """The probability that a t of `freedom` degrees (not only whole ones) is above `t`."""
    whole = freedom + t * t
    beyond = 0.5 * _incomplete_beta(freedom / whole, t * t / whole, freedom / 2, 0.5)
    return beyond if t >= 0 else 1.0 - beyond


def t_above(tail: float, freedom: float) -> float:
    """The t that is exceeded with a probability of `tail`, from 0 exclusive to 0.5."""
    high = 1.0
    while t_tail(high, freedom) > tail:
        high *= 2
    low = 0.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if t_tail(middle, freedom) > tail else (low, middle)
    return middle


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by its continued fraction.

    `rest` is 1 - x, which a subtraction would round where x is near 1.

    DLMF 8.17.22, evaluated by Lentz's method (Thompson and Barnett 1986, section 2); where it
    converges slowly by the symmetry I_x(a, b) = 1 - I_(1-x)(b, a), DLMF 8.17.4.
    """
    if not x or not rest:
        return float(rest == 0)

    # Where the fraction converges slowly, the other tail.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(rest, x, b, a)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logarithm + a * math.log(x) + b * math.log(rest)) / a

    # Lentz's method, two terms a round.
    c, d = 1.0, 1.0 / _away_from_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            fraction *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return front * fraction


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
