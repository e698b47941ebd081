"""Arrows from the last read of a batch to the step that took it ("s" and "f" events)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.dataloader_batches import Deliveries, deliveries
from vanidl.export.chrome.tracks import STEPS, Track, Tracks, number_of
from vanidl.model.trace import READ, Part, SpanKind, Trace

Int64Array = NDArray[np.int64]

_EVENT = '{"ph":"%s","cat":"batch","name":"batch","id":%d,"pid":%d,"tid":%d,"ts":%d.%03d%s}'


class Flows:
    """Batches that workers delivered; learns the tracks of their reads as these are written.

    Args:
        whole: the run, from which follows who read what for which step.
        seen: the part of it that is exported: arrows need both ends in it.
        zero_ns: where the export's times count from.
    """

    def __init__(self, whole: Trace, seen: Trace, zero_ns: int) -> None:
        self._zero_ns = zero_ns
        self._ends = [_within_steps(each, seen) for each in deliveries(whole)]
        self._found: list[tuple[int, int, int, int, int]] = []  # worker, tid, read, trainer, taken

    def meet(self, part: Part, track: Int64Array) -> None:
        """Note which of these operations ended a batch, and their tracks."""
        for each in self._ends:
            mine = each.worker == part.process
            read_ns, taken_ns = each.read_ns[mine], each.taken_ns[mine]
            row = np.searchsorted(part.start, read_ns)
            inside = row < len(part)
            rows = row[inside]
            here = (part.start[rows] == read_ns[inside]) & (part.op[rows] == READ)
            ends = zip(
                track[rows][here].tolist(), read_ns[inside][here].tolist(),
                taken_ns[inside][here].tolist(), strict=True,
            )  # fmt: skip
            self._found += [
                (part.process, tid, read, each.trainer, taken) for tid, read, taken in ends
            ]

    def text(self, tracks: Tracks) -> Iterator[str]:
        """Two events an arrow, of those whose reads were met."""
        for number, (worker, tid, read_ns, trainer, taken_ns) in enumerate(self._found, 1):
            if read_ns <= taken_ns:
                step = tracks.number(Track(trainer, STEPS, "steps"))
                yield _EVENT % ("s", number, number_of(worker), tid, *self._time(read_ns), "")
                end = (number_of(trainer), step, *self._time(taken_ns), ',"bp":"e"')
                yield _EVENT % ("f", number, *end)

    def _time(self, ns: int) -> tuple[int, int]:
        return divmod(ns - self._zero_ns, 1000)


def _within_steps(each: Deliveries, seen: Trace) -> Deliveries:
    """Those that a step which is exported took."""
    spans = seen.spans
    steps = spans.pick((spans.kind == SpanKind.STEP) & (spans.process == each.trainer))
    if not len(steps):
        return each.pick(np.zeros(len(each), bool))
    step = np.searchsorted(steps.start, each.taken_ns, side="right") - 1
    keep = (step >= 0) & (each.taken_ns < steps.end[step])
    return each.pick(keep)
