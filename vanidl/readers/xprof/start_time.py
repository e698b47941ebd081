"""When a TensorFlow or JAX profile was recorded: where its times count from.

Profiles of today say when they began. Older ones, and trace viewer files, count from their
beginning, and all that is left is the name of the folder: the second at which the profile was
written, when its last event was over, in the local time of the machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from vanidl.errors import InputError
from vanidl.readers.xprof.events import SessionEvents

_FOLDER = re.compile(r"(\d{4})[_-](\d\d)[_-](\d\d)[_-](\d\d)[_:-](\d\d)(?:[_:-](\d\d))?")
_SECOND_NS = 1_000_000_000
_EPOCH_NS = (10**18, 4 * 10**18)  # 2001 to 2096: times that count from the epoch
_LONGEST_NS = 10**16  # four months: no profile is longer

ABSOLUTE = "absolute"
FOLDER = "second in the folder's name"


@dataclass(frozen=True, slots=True)
class Placed:
    """What to add to a profile's times to make them nanoseconds since the epoch."""

    zero_ns: int
    method: str = ABSOLUTE
    uncertainty_ns: int = 0  # half-width


def is_epoch(ns: int) -> bool:
    """Whether a time can be one since the epoch."""
    low, high = _EPOCH_NS
    return low <= ns < high


def is_absolute(events: SessionEvents) -> bool:
    """Whether the events count from the epoch themselves."""
    # The median, as one absurd time must not decide for all.
    return len(events.start_ns) > 0 and is_epoch(int(np.median(events.start_ns)))


def possible(events: SessionEvents) -> tuple[SessionEvents, int]:
    """The events whose times can be true, and how many others there were."""
    start, length = events.start_ns, events.end_ns - events.start_ns
    low, high = _EPOCH_NS if is_absolute(events) else (-_LONGEST_NS, _LONGEST_NS)
    good = (start >= low) & (start < high) & (length >= 0) & (length < _LONGEST_NS)
    return events if good.all() else events.pick(good), int(len(good) - good.sum())


def by_folder(path: Path, events: SessionEvents, utc_offset_s: int) -> Placed:
    """From the name of the folder and the end of the last event, to +- 1 s.

    Args:
        path: The profile.
        events: Its events, as they count.
        utc_offset_s: Local time minus UTC where it was recorded.

    Raises:
        InputError: The folder's name is no time.
    """
    match = _FOLDER.fullmatch(path.absolute().parent.name)
    if not match:
        raise InputError(
            f"{path}: expected a profile that says when it was recorded, or a folder named after "
            "that time as in plugins/profile/2026_11_21_00_02_36, found neither; keep the folder "
            "that the profiler made"
        )
    written_ns = (_as_utc_s(path, match) - utc_offset_s) * _SECOND_NS
    last_ns = int(events.end_ns.max(initial=0))
    return Placed(written_ns + _SECOND_NS // 2 - last_ns, FOLDER, _SECOND_NS)


def _as_utc_s(path: Path, match: re.Match[str]) -> int:
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        written = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError as error:
        raise InputError(
            f"{path}: expected a folder named after a time, found {match[0]} ({error}); give it "
            "back the name that the profiler chose"
        ) from error
    return int(written.timestamp())
