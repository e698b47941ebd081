"""Numbers as people read them: the one place that turns a quantity into text.

Seconds, bytes in powers of 1024, shares in per cent. None is "not recorded" everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

UNKNOWN = "not recorded"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def seconds(value: float | None) -> str:
    """A duration: `15.86 s`, `3.20 ms`, `988 s`, `3 h 12 min`."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if value < 0:
        return f"-{seconds(-value)}"
    if value == 0:
        return "0 s"
    if value < 0.9995:
        return _below_a_second(value)
    if value < 99.995:
        return f"{value:.2f} s"
    if value < 7199.5:
        return f"{value:,.0f} s"
    return _hours(value)


def change(now_s: float, then_s: float) -> str:
    """`423 to 169 ms`, `1.20 s to 870 ms`: one unit where both have the same."""
    now, then = seconds(now_s), seconds(then_s)
    number, _, unit = now.rpartition(" ")
    return f"{number} to {then}" if then.rpartition(" ")[2] == unit else f"{now} to {then}"


def range_words(low_s: float, high_s: float) -> str:
    """An interval of offsets as text, in ms where both are below a second."""
    if max(abs(low_s), abs(high_s)) < 1:
        return f"{low_s * 1e3:.3f} to {high_s * 1e3:.3f} ms"
    return f"{low_s:.6f} to {high_s:.6f} s"


def iso_time(ns: int) -> str:
    """An instant as ISO 8601 in UTC, to the microsecond."""
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (epoch + timedelta(microseconds=ns // 1000)).isoformat().replace("+00:00", "Z")


def _below_a_second(value: float) -> str:
    if value < 1e-6:
        return f"{value * 1e9:.3g} ns"
    if value < 999.5e-6:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms"


def _hours(value: float) -> str:
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours:,} h {minutes} min"


def byte_scale(largest: float) -> tuple[int, str]:
    """Divisor and unit in which the largest value of an axis or column reads well."""
    power = 0
    while power + 1 < len(_BYTE_UNITS) and largest >= 1023.5 * 1024**power:
        power += 1
    return int(1024**power), _BYTE_UNITS[power]


def nbytes(value: float | None) -> str:
    """An amount of data: `512 B`, `1.51 GiB`."""
    if value is None or math.isnan(value):
        return UNKNOWN
    divisor, unit = byte_scale(value)
    scaled = value / divisor
    return f"{scaled:.0f} {unit}" if scaled >= 99.95 or divisor == 1 else f"{scaled:.3g} {unit}"


def bandwidth(value: float | None) -> str:
    """Bytes per second: `312 MiB/s`."""
    return UNKNOWN if value is None else f"{nbytes(value)}/s"


def percent(share: float | None) -> str:
    """A share as per cent. Neither 0 % nor 100 % is said of anything that is not exactly so."""
    if share is None or math.isnan(share):
        return UNKNOWN
    value = share * 100
    if value in (0, 100):
        return f"{value:.0f} %"
    if 0 < value < 0.1:
        return "< 0.1 %"
    if 99.9 < value < 100:
        return "> 99.9 %"
    if value > 999.5:
        return f"{_three_digits(value)} %"
    return f"{value:.1f} %" if value < 10 or 99 < value < 100 else f"{value:.0f} %"


def count(value: float | None) -> str:
    """A number of things, with thousands separated: `313,872`."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def factor(value: float | None) -> str:
    """A ratio: `1.25x`, `11,800x`: three digits of it."""
    return UNKNOWN if value is None else f"{_three_digits(value)}x"


def _three_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    digits = max(len(str(int(value))) - 3, 0)
    return f"{round(value, -digits):,.0f}"


def times(value: float) -> str:
    """`2.4 times`, `11,800 times`: a large factor in words, three digits of it."""
    if value < 10:
        return f"{value:.1f} times"
    return f"{_three_digits(value)} times" if value >= 99.95 else f"{value:.0f} times"


def ratio(value: float | None) -> str:
    """Of what it was: `0.46`, `1.004`, `0.0492`; without a sign of multiplication."""
    if value is None:
        return UNKNOWN
    if 0.995 <= value < 1.005 and value != 1:
        return f"{value:.3f}"
    return f"{value:.2f}" if 0.095 <= value < 99.5 else f"{value:.3g}"


def relative(value: float | None) -> str:
    """A ratio as a change: `2.18 times`, `+18 %`, `-95 %`; `equal` of 1."""
    if value is None:
        return UNKNOWN
    if value == 1:
        return "equal"
    if value >= 2:
        return f"{value:.2f} times" if value < 10 else times(value)
    share = percent(abs(value - 1))
    return share if share.startswith("<") else f"{'+' if value > 1 else '-'}{share}"


def steps_per_second(value: float | None) -> str:
    """A throughput: `2.40 steps/s`."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f} steps/s" if value >= 99.95 else f"{value:#.3g} steps/s"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """A number with its noun: `1 rank`, `8 ranks`."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def text(value: str | float | None) -> str:
    """A word or name as it is."""
    return UNKNOWN if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number with a unit of its own, for a column whose rows are different quantities."""

    value: float | None
    unit: str


Cell = str | int | float | Amount | None

_FORMATS: dict[str, Callable[[float | None], str]] = {
    "s": seconds,
    "bytes": nbytes,
    "bytes/s": bandwidth,
    "share": percent,
    "count": count,
    "factor": factor,
    "ratio": ratio,
    "relative": relative,
    "steps/s": steps_per_second,
}


def shown(value: Cell, unit: str) -> str:
    """A cell as text. `unit` is s, bytes, bytes/s, steps/s, share, count, factor, ratio or text.

    An `Amount` brings its own unit.
    """
    if isinstance(value, Amount):
        return shown(value.value, value.unit)
    if unit == "text" or isinstance(value, str):
        return text(value)
    return _FORMATS[unit](value)
