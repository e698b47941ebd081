"""Numbers as people read them: the one place that turns a quantity into text.

Seconds, bytes in powers of 1024 and ratios have three significant digits, zeros at the end kept
(`8.30 MiB` beside `4.97 MiB`); shares in per cent have one decimal below 10 % and above 99 %, else
none. An amount of data or a share that is a whole number of its unit, exactly, has no decimals:
`1 MiB` is 1,048,576 bytes, `1.00 MiB` about as much; `1 %` is a hundredth, `1.0 %` about that.
Of times only those that were chosen are so: `20 ms` is a border, `20.0 ms` was measured.
Counts and places in time have all digits. None is "not recorded" everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from vanidl.schema.dataclass import dataclass

UNKNOWN = "not recorded"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def seconds(value: float | None) -> str:
    """A duration: `15.9 s`, `3.20 ms`, `988 s`, `3 h 12 min`, `27.8 h`."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if value < 0:
        return f"-{seconds(-value)}"
    if value == 0:
        return "0 s"
    if value < 0.9995:
        if value < 0.5e-9:
            return "< 1 ns"
        for scale, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
            # From 999.5 on three digits round up to the next unit.
            if value * scale < 999.5:
                return f"{_format_significant(value * scale)} {unit}"
        return "1.00 s"
    return f"{_format_three_digits(value)} s" if value < 7195 else _format_hours(value)


def border(value: float | None) -> str:
    """A duration that was chosen, as the limits of a class: `20 ms`, `2.5 ms`, `1 s`."""
    number, _, unit = seconds(value).rpartition(" ")
    return f"{float(number):g} {unit}" if "." in number else seconds(value)


def instant(value: float | None) -> str:
    """A place in time, in seconds after the start of the run, to the millisecond: `1,234.567 s`."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:,.3f} s"


def change(now_s: float, then_s: float) -> str:
    """`423 to 169 ms`, `1.20 s to 870 ms`: one unit where both have the same."""
    return _write_in_one_unit(seconds(now_s), seconds(then_s))


def change_between(now_s: float, least_s: float, most_s: float) -> str:
    """`423 to 169-200 ms`, `1.20 s to 870 ms - 1.05 s`: one unit where all have the same."""
    texts = [seconds(value) for value in (now_s, least_s, most_s)]
    numbers, units = zip(*(text.rsplit(" ", 1) for text in texts), strict=True)
    if len(set(units)) == 1:
        return f"{numbers[0]} to {numbers[1]}-{texts[2]}"
    return f"{texts[0]} to {texts[1]} - {texts[2]}"


def _write_in_one_unit(now: str, then: str) -> str:
    number, _, unit = now.rpartition(" ")
    return f"{number} to {then}" if then.rpartition(" ")[2] == unit else f"{now} to {then}"


def range_words(low_s: float, high_s: float) -> str:
    """An interval of offsets as text, in one unit; from a second on to the microsecond.

    What is the same at both ends is said once.
    """
    low, high = offset(low_s), offset(high_s)
    if low == high:
        return low
    if max(abs(low_s), abs(high_s)) < 1:
        return _write_in_one_unit(low, high)
    return f"{low_s:.6f} to {high_s:.6f} s"


@lru_cache(1024)  # the clocks of thousands of logs end alike
def offset(value_s: float) -> str:
    """An offset between clocks: a place in time from a second on, to the microsecond."""
    return seconds(value_s) if abs(value_s) < 1 else f"{value_s:.6f} s"


def iso_time(ns: int) -> str:
    """An instant as ISO 8601 in UTC, to the microsecond."""
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (epoch + timedelta(microseconds=ns // 1000)).isoformat().replace("+00:00", "Z")


def _format_hours(value: float) -> str:
    minutes = round(value / 60)
    if minutes > 999:
        return f"{_format_three_digits(value / 3600)} h"
    return f"{minutes // 60} h {minutes % 60} min"


def byte_scale(largest: float) -> tuple[int, str]:
    """Divisor and unit in which the largest value of an axis or column reads well."""
    power = 0
    while power + 1 < len(_BYTE_UNITS) and largest >= 1023.5 * 1024**power:
        power += 1
    return int(1024**power), _BYTE_UNITS[power]


def nbytes(value: float | None) -> str:
    """An amount of data: `512 B`, `1.51 GiB`, `64 KiB` of exactly that."""
    if value is None or math.isnan(value):
        return UNKNOWN
    divisor, unit = byte_scale(value)
    amount = value / divisor
    if divisor == 1:
        return "< 1 B" if 0 < amount < 0.5 else f"{amount:,.0f} {unit}"
    whole = amount < 999.5 and _is_whole(amount)
    return f"{amount:.0f} {unit}" if whole else f"{_format_significant(amount)} {unit}"


def bandwidth(value: float | None) -> str:
    """Bytes per second: `312 MiB/s`."""
    return UNKNOWN if value is None else f"{nbytes(value)}/s"


def percent(share: float | None) -> str:
    """A share as per cent: `1.6 %`, `63 %`, `99.4 %`, and `2 %` of exactly that.

    Neither 0 % nor 100 % is said of anything that is not exactly so.
    """
    if share is None or math.isnan(share):
        return UNKNOWN
    value = share * 100
    # Only what is exactly none or all is said to be.
    if value in (0, 100):
        return f"{value:.0f} %"
    if 0 < value < 0.1:
        return "< 0.1 %"
    if 99.9 < value < 100:
        return "> 99.9 %"
    if value > 100:
        return f"{_format_three_digits(value)} %"
    # One decimal where it matters: of small shares, and just below all.
    finer = not _is_whole(value) and (value < 9.95 or 99 < value < 100)
    return f"{value:.1f} %" if finer else f"{value:.0f} %"


def count(value: float | None) -> str:
    """A number of things, with thousands separated: `313,872`."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def factor(value: float | None) -> str:
    """A ratio: `1.25x`, `11,800x`: three digits of it."""
    return UNKNOWN if value is None else f"{number(value)}x"


def _format_three_digits(value: float) -> str:
    """Of a number of 1 or more three digits, of a smaller one two decimals."""
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    digits = max(len(str(int(value))) - 3, 0)
    return f"{round(value, -digits):,.0f}"


def _is_whole(value: float) -> bool:
    """Whether it is a whole number, but for what binary fractions are off: 0.07 * 100 is not 7."""
    return math.isclose(value, round(value), rel_tol=1e-9)


def _format_significant(value: float) -> str:
    """Three significant digits of any positive number, zeros at the end kept."""
    return f"{value:#.3g}" if value < 0.9995 else _format_three_digits(value)


def times(value: float) -> str:
    """`2.4 times`, `11,800 times`: a large factor in words, three digits of it."""
    if value < 9.95:
        return f"{value:.1f} times" if value >= 0.95 else f"{number(value)} times"
    return f"{_format_three_digits(value)} times" if value >= 99.95 else f"{value:.0f} times"


def number(value: float | None) -> str:
    """A ratio, or what has its unit elsewhere: `0.0383`, `15.9`, `1,480`; `< 0.001` of less."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if value < 0:
        return f"-{number(-value)}"
    if 0 < value < 0.001:
        return "< 0.001"
    if value == 0:
        return "0"
    return _format_significant(value)


def scaled(values: Sequence[float | None], unit: str) -> tuple[str, list[float | None]]:
    """The name of one unit in which most values read well, and the values in it.

    `unit` is s, bytes or share.
    """
    found = sorted(value for value in values if value)
    divisor, name = _SCALES[unit](found[len(found) // 2] if found else 0.0)
    return name, [None if value is None else value / divisor for value in values]


def _choose_time_scale(usual: float) -> tuple[float, str]:
    names = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
    return next(scale for scale in names if usual >= scale[0] or scale[1] == "ms")


_SCALES: dict[str, Callable[[float], tuple[float, str]]] = {
    "s": _choose_time_scale,
    "bytes": byte_scale,
    "share": lambda _: (0.01, "%"),
}


def relative(value: float | None) -> str:
    """A ratio as a change: `2.18 times`, `+18 %`, `-95 %`; `equal` of 1."""
    if value is None:
        return UNKNOWN
    if value == 1:
        return "equal"
    if value >= 2:
        return f"{_format_three_digits(value)} times"
    share = percent(abs(value - 1))
    if share.startswith(">"):
        return f"{share} less"
    return share if share.startswith("<") else f"{'+' if value > 1 else '-'}{share}"


def steps_per_second(value: float | None) -> str:
    """A throughput: `2.40 steps/s`."""
    if value is None:
        return UNKNOWN
    return f"{number(value)} steps/s"


def four_digits(value: float) -> str:
    """At least four digits and no power of ten: `12,557`, `66.38`, `5.291`, `1`."""
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:,.4g}"


def samples_per_second(value: float | None) -> str:
    """A rate of samples: `2.40 samples/s`."""
    return UNKNOWN if value is None else f"{number(value)} samples/s"


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


@dataclass(frozen=True, slots=True)
class Link:
    """A word and the file, beside the page, that it leads to."""

    text: str
    href: str


Cell = str | int | float | Amount | Link | None

_FORMATS: dict[str, Callable[[float | None], str]] = {
    "s": seconds,
    "border": border,
    "instant": instant,
    "number": number,
    "bytes": nbytes,
    "bytes/s": bandwidth,
    "share": percent,
    "count": count,
    "factor": factor,
    "ratio": number,
    "relative": relative,
    "steps/s": steps_per_second,
    "samples/s": samples_per_second,
}


def shown(value: Cell, unit: str) -> str:
    """A cell as text. `unit` is text or one of _FORMATS: s, bytes, share, count and so on.

    An `Amount` brings its own unit.
    """
    if isinstance(value, Amount):
        return shown(value.value, value.unit)
    if isinstance(value, Link):
        return value.text
    if unit == "text" or isinstance(value, str):
        return text(value)
    return _FORMATS[unit](value)
