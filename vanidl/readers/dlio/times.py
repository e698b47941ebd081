"""`per_epoch_stats.json`: when epochs, their blocks, validation and checkpoints began and ended.

Releases of today write one for each rank; older ones one, by rank 0. Times are of the local time
of the host: without its distance from UTC, which nothing in a result says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vanidl.encoding.budget import bounded_name, whole_number
from vanidl.readers.dlio.document import local_ns, objects, read_object, unusable
from vanidl.readers.dlio.output import rank_of

EXPECTED = "the times of epochs"
CHECKPOINT, LOAD = "ckpt", "load"

Interval = tuple[int, int]
"""Start and end in ns since the epoch."""


@dataclass(frozen=True, slots=True)
class EpochStamps:
    """When one epoch was, and what happened in it: name -> interval."""

    whole: Interval
    parts: dict[str, Interval]


@dataclass(frozen=True, slots=True)
class Times:
    """Epochs by number; `rank` is None in the only file of an older release."""

    path: str
    rank: int | None
    epochs: dict[int, EpochStamps]
    losses: tuple[str, ...] = ()

    def checkpoints_s(self, *, loaded: bool) -> tuple[float, ...]:
        """How long each save, or each load, of a checkpoint took, in their order."""
        parts = [each for epoch in self.epochs.values() for each in epoch.parts.items()]
        found = [when for name, when in parts if CHECKPOINT in name and (LOAD in name) == loaded]
        return tuple((end - start) / 1e9 for start, end in sorted(found))


def read_times(path: Path, utc_offset_s: int = 0) -> Times:
    """The times in a file; of epochs that did not end nothing.

    Args:
        path: The file.
        utc_offset_s: Local time minus UTC where it was written.

    Raises:
        InputError: It cannot be read, or holds no times.
    """
    epochs: dict[int, EpochStamps] = {}
    lost = 0
    for key, value in read_object(path, EXPECTED).items():
        at = whole_number(key)
        if at is None:
            continue
        found = _interval(value, utc_offset_s)
        if found is None:
            lost += 1
            continue
        parts = {
            bounded_name(str(name)): part
            for name, inner in objects(value).items()
            if (part := _interval(inner, utc_offset_s)) is not None
        }
        epochs[at] = EpochStamps(found, parts)
    if not epochs:
        raise unusable(path, EXPECTED, "none")
    losses = (f"epochs left out as their start or end is missing: {lost:,}",) if lost else ()
    return Times(str(path), rank_of(path), dict(sorted(epochs.items())), losses)


def _interval(value: object, utc_offset_s: int) -> Interval | None:
    inner = objects(value)
    start, end = local_ns(inner.get("start")), local_ns(inner.get("end"))
    if start is None or end is None or end < start:
        return None
    shift = utc_offset_s * 10**9
    return start - shift, end - shift
