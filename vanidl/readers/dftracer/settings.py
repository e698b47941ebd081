"""What DFTracer was told to record: settings of the whole run, as its traces state them.

Traces of 2.1 and later state them in the event that ends the process, earlier ones in none or
in lines of metadata. Where none states them they are not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vanidl.readers.dftracer.lines import ABSENT, integer

TICK_NS = {"NS": 1, "US": 1_000, "MS": 1_000_000, "S": 1_000_000_000, "SEC": 1_000_000_000}

_KNOWN = ("io", "posix", "stdio", "trace_all_files", "aggregation_enable", "trace_interval_ms")
_VERSION = re.compile(r"v?(\d{1,6}(\.\d{1,6}){1,3})")
_METRIC = "time_metric"
_MOST_DIGITS = {19: 1, 16: 1_000, 13: 1_000_000, 10: 1_000_000_000}
"""Digits of a moment between 2001 and 2286 to the unit that it is given in."""


class Settings:
    """The settings that one file states; later ones replace earlier ones."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.tick_ns: int | None = None

    def take(self, name: str, value: object) -> None:
        """One setting; what is none that is used here is left out."""
        if name == _METRIC:
            self.tick_ns = TICK_NS.get(str(value).upper(), self.tick_ns)
        elif name in _KNOWN and (number := integer(value)) != ABSENT:
            self.values[name] = number

    def take_all(self, stated: object) -> None:
        """Those of the end event."""
        if isinstance(stated, Mapping):
            for name in (_METRIC, *_KNOWN):
                if name in stated:
                    self.take(name, stated[name])


def likely_tick_ns(moment: int) -> int:
    """The unit of a moment, by its size; microseconds, the default, where that tells nothing."""
    return _MOST_DIGITS.get(len(str(abs(moment))), 1_000)


def version(stated: object) -> str:
    """A version as people write it: "2.0.3" of "v2.0.3" and 20003, "1.0.5" of 100005."""
    number = integer(stated)
    if number < 0:
        found = _VERSION.match(str(stated))
        return found[1] if found else ""
    first = 100_000 if number >= 100_000 else 10_000  # of the major number, until 2.0 and since
    return f"{number // first}.{number % first // 100}.{number % 100}"
