"""What I/O of a rank comes to at each time: waited for, hidden, behind communication and so on.

The same split as that of the overlap, as a function of time: of a rank's busy time, the part in
cells of one fate is that of `RankOverlap` with the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.overlap import Split
from vanidl.model import intervals
from vanidl.model.intervals import Intervals

Int64Array = NDArray[np.int64]

_EVER = np.iinfo(np.int64).min


class Fate(IntEnum):
    """What became of the time of an operation."""

    IN_WAIT = 0
    HIDDEN = 1
    BEHIND_COMMUNICATION = 2
    OTHER = 3  # within the steps, under nothing that was recorded
    UNOBSERVED = 4  # outside the steps that were recorded
    UNKNOWN = 5  # within the steps; what else went on was not recorded


@dataclass(frozen=True, slots=True)
class RankFates:
    """All time in cells: fate[i] holds from start[i] up to start[i + 1], the last for ever."""

    start: Int64Array  # ns since the epoch, the first before all time
    fate: NDArray[np.uint8]

    def at(self, times: Int64Array) -> NDArray[np.intp]:
        """The cell that each time lies in."""
        return np.searchsorted(self.start, times, side="right") - 1


NEVER_OBSERVED = RankFates(np.array([_EVER], np.int64), np.array([Fate.UNOBSERVED], np.uint8))
"""The fates of a rank without a profiled step."""


def finish(splits: Mapping[int, Split]) -> dict[int, RankFates]:
    """Position in Trace.ranks -> its fates, for ranks with at least one profiled step."""
    return {position: _of_rank(split) for position, split in splits.items()}


def _of_rank(split: Split) -> RankFates:
    windows, did = split.spans.windows, split.did
    unknown = split.other is None
    layers: list[tuple[Intervals, Fate]] = [
        (windows, Fate.UNKNOWN if unknown else Fate.OTHER),
    ]  # the last that covers a time holds
    if split.behind_communication is not None:
        layers.append((did.communication, Fate.BEHIND_COMMUNICATION))
    if split.hidden is not None:
        layers.append((did.compute, Fate.HIDDEN))
    if split.in_wait is not None:
        layers.append((did.starving, Fate.IN_WAIT))
    edges = [edge for spans, _ in layers for edge in spans]
    start = np.unique(np.concatenate([np.array([_EVER], np.int64), *edges]))
    fate = np.full(len(start), Fate.UNOBSERVED, np.uint8)
    for spans, code in layers:
        fate[_covered(spans, start)] = code
    outside = ~_covered(windows, start)
    fate[outside] = Fate.UNOBSERVED
    changes = np.append(True, fate[1:] != fate[:-1])
    return RankFates(start[changes], fate[changes])


def _covered(spans: Intervals, at: Int64Array) -> NDArray[np.bool_]:
    """Which of the times are covered."""
    if not len(spans.start):
        return np.zeros(len(at), bool)
    last = np.searchsorted(spans.start, at, side="right") - 1
    inside: NDArray[np.bool_] = (last >= 0) & (at < spans.end[np.maximum(last, 0)])
    return inside


def busy_by_fate(busy: Intervals, fates: RankFates) -> dict[Fate, Intervals]:
    """The parts of a busy time by what became of them; those that are empty are left out."""
    found = {}
    for fate in Fate:
        cells = np.flatnonzero(fates.fate == fate)
        ends = np.append(fates.start[1:], np.iinfo(np.int64).max)
        part = intervals.intersect(busy, Intervals(fates.start[cells], ends[cells]))
        if len(part.start):
            found[fate] = part
    return found
