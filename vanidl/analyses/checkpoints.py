"""When checkpoints were written: saves as the program's libraries know them, else by writes.

Where no library saved, bursts of writes to checkpoint files are saves. Bursts that follow on one
another are one save where the second goes on with a file of the first, where their files carry the
same number (model_3.pt, optimizer_3.pt), or where they are of different files and the profile shows
no training step between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import Rows
from vanidl.model import intervals
from vanidl.model.counter_totals import count_by_record, prefix_of
from vanidl.model.file_kinds import is_named_checkpoint
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import stable_order
from vanidl.model.trace import STORAGE_LAYERS, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

GAP_NS = 250_000_000
_LARGE = 1 << 20  # a file without a telling name counts from this size on
_MOST_NAMES = 3
_PAUSE_NS = 5_000_000_000  # within a save
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Burst:
    """One checkpoint, however many files it has."""

    name: str
    start_ns: int
    end_ns: int
    evidence: str
    nbytes: int  # written
    traced: bool  # False: part of it is known from counters only, without single operations


_Writes = tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]
"""Start, end, file, bytes, offset (-1: not recorded)."""
_NONE = np.empty(0, np.int64)
NOTHING: _Writes = (_NONE, _NONE, _NONE, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class OfWrites:
    """The reduction to the traced writes of checkpoint files, in any order."""

    wanted: NDArray[np.bool_]  # for each file code
    NOTHING: _Writes = NOTHING

    def partial(self, rows: Rows, trace: Trace) -> _Writes:  # noqa: ARG002
        """The writes among the rows."""
        mine = rows.writes.groups(self.wanted[rows.writes.file])
        return mine.start, mine.end, mine.each_row(mine.file), mine.nbytes, mine.offset

    def combine(self, a: _Writes, b: _Writes) -> _Writes:
        """The writes of both."""
        start, end, file, nbytes, offset = (np.concatenate(c) for c in zip(a, b, strict=True))
        return start, end, file, nbytes, offset


def make_reduction(trace: Trace) -> OfWrites:
    """The reduction for the checkpoint files of a trace."""
    return OfWrites(_mark_checkpoint_files(trace))


def find_checkpoints(writes: _Writes, trace: Trace) -> tuple[Burst, ...]:
    """Saves in order of time, each one or more bursts; pauses up to GAP_NS belong to a burst.

    `writes` are the traced ones. A layer without single operations counts from the first to
    the last write of each file.
    """
    rows = [writes, *(_get_counted_writes(trace, layer) for layer in STORAGE_LAYERS)]
    start, end, file, nbytes, offset = (np.concatenate(c) for c in zip(*rows, strict=True))
    called = _group_calls(trace, start, nbytes)
    untraced = np.arange(len(start)) >= len(rows[0][0])
    if called:
        # Counters know first and last write of a file alone: beside calls they tell of no save.
        saved = intervals.union(*np.array([(c.start_ns, c.end_ns) for c in called], np.int64).T)
        place = np.searchsorted(saved.start, start, side="right") - 1
        inside = (place >= 0) & (start < saved.end[np.maximum(place, 0)])
        keep = ~inside & ~untraced
        start, end, file, nbytes, offset, untraced = (
            column[keep] for column in (start, end, file, nbytes, offset, untraced)
        )
    if len(start) == 0:
        return _name_saves(called)
    # A write that took no time lasts a nanosecond: an empty interval would be dropped.
    bursts = intervals.union(start, np.maximum(end, start + 1) + GAP_NS)
    burst = np.searchsorted(bursts.start, start, side="right") - 1
    save = _number_saves(trace, bursts, _split_by_group(burst), file, offset)
    written = [
        Burst(
            "",
            int(start[mine].min()),
            int(np.maximum(end, start + 1)[mine].max()),
            _describe_files(trace, file[mine]),
            int(nbytes[mine].sum()),
            not untraced[mine].any(),
        )
        for mine in _split_by_group(save[burst])
    ]
    return _name_saves([*called, *written])


def _name_saves(bursts: Sequence[Burst]) -> tuple[Burst, ...]:
    """Saves in order of time, with their names."""
    ordered = sorted(bursts, key=lambda burst: (burst.start_ns, burst.end_ns))
    return tuple(replace(burst, name=f"checkpoint {i + 1}") for i, burst in enumerate(ordered))


def _group_calls(trace: Trace, start: Int64Array, nbytes: Int64Array) -> list[Burst]:
    """Saves that libraries made; those of several ranks that overlap are one."""
    saves = [call for call in trace.checkpoint_calls if not call.is_load]
    if not saves:
        return []
    joined = intervals.union(*np.array([(c.start, c.end) for c in saves], np.int64).T)
    of_call = np.searchsorted(joined.start, [c.start for c in saves], side="right") - 1
    found = []
    for i, (low, high) in enumerate(zip(joined.start.tolist(), joined.end.tolist(), strict=True)):
        mine = [call for call, at in zip(saves, of_call.tolist(), strict=True) if at == i]
        names = list(dict.fromkeys(c.path.rsplit("/", 1)[-1] for c in mine if c.path))
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        of = f" of {', '.join(names[:_MOST_NAMES])}{more}" if names else ""
        # Bytes as the library tells them, else what was written meanwhile.
        known = sum(call.nbytes or 0 for call in mine)
        traced = int(nbytes[(start >= low) & (start < high)].sum())
        called = " and ".join(dict.fromkeys(call.call for call in mine))
        aside = "" if any(call.in_loop for call in mine) else ", beside the training thread"
        evidence = f"{called}{of}{aside}"
        found.append(Burst("", low, high, evidence, known or traced, traced=True))
    return found


def _split_by_group(group: Int64Array) -> list[NDArray[np.intp]]:
    """The rows of each group 0, 1, ..."""
    order = stable_order(group)
    return np.split(order, np.searchsorted(group[order], np.arange(1, int(group.max()) + 1)))


def _number_saves(
    trace: Trace,
    bursts: Intervals,
    members: list[NDArray[np.intp]],
    file: Int64Array,
    offset: Int64Array,
) -> Int64Array:
    """For each burst the number of the save that it is a part of."""
    low, high = bursts.end[:-1] - GAP_NS, bursts.start[1:]
    # A training step between two bursts shows that they are two saves.
    # Whether any rank began and ended a step between two times; None outside of profiles.
    stepped: list[bool | None] = [None] * len(low)
    if len(trace.spans):
        from vanidl.analyses.profiled_steps import group_rank_spans

        for own in group_rank_spans(trace).values():
            steps = own.steps
            seen = intervals.covered_within(own.windows, low, high) == high - low
            for i in np.flatnonzero(seen).tolist():
                inside = bool(((steps.start >= low[i]) & (steps.end <= high[i])).any())
                stepped[i] = bool(stepped[i]) or inside
    written = [_Burst(trace, file[rows], offset[rows]) for rows in members]
    joined = [
        _is_same_save(before, after, int(pause), between)
        for (before, after), pause, between in zip(
            pairwise(written), (high - low).tolist(), stepped, strict=True
        )
    ]
    return np.cumsum([0, *(not one for one in joined)])


class _Burst:
    """Which files a burst writes, from which offset on, and which number their names end with."""

    def __init__(self, trace: Trace, file: Int64Array, offset: Int64Array) -> None:
        codes, place = np.unique(file, return_inverse=True)
        lowest = np.full(len(codes), np.iinfo(np.int64).max)
        np.minimum.at(lowest, place, offset)
        self.lowest: dict[int, int] = dict(zip(codes.tolist(), lowest.tolist(), strict=True))
        self.numbers = {
            numbers[-1]
            for code in self.lowest
            if (numbers := _NUMBER.findall(trace.files.path[code].rsplit("/", 1)[-1]))
        }


def _is_same_save(before: _Burst, after: _Burst, pause_ns: int, stepped: bool | None) -> bool:
    """Whether two bursts that follow on one another are of one save.

    `stepped`: a training step lay between them, None where the profile does not show that.
    """
    if stepped or pause_ns > _PAUSE_NS:
        return False
    both = before.lowest.keys() & after.lowest.keys()
    if both:
        # The rest of ckpt-0 may be written with ckpt-1: what begins there has a number of its own.
        begun = after.numbers - before.numbers
        goes_on = any(after.lowest[file] > before.lowest[file] >= 0 for file in both)
        return goes_on and not (begun and stepped is None)
    return stepped is False or bool(before.numbers & after.numbers)


def _describe_files(trace: Trace, files: Int64Array) -> str:
    names = [trace.files.path[code].rsplit("/", 1)[-1] for code in np.unique(files).tolist()]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"writes to {', '.join(names[:_MOST_NAMES])}{more}"


def _mark_checkpoint_files(trace: Trace) -> NDArray[np.bool_]:
    """Checkpoint files that are named so or large: others were only written and never read."""
    written = np.zeros(len(trace.files), np.int64)
    for layer in STORAGE_LAYERS:
        if layer in trace.counters:
            table = trace.counters[layer]
            np.add.at(written, table.file, count_by_record(table, "BYTES_WRITTEN"))
    return np.array(
        [
            kind == "checkpoint" and (is_named_checkpoint(path) or written[i] >= _LARGE)
            for i, (path, kind) in enumerate(zip(trace.files.path, trace.files.kind, strict=True))
        ],
        bool,
    )


def _get_counted_writes(trace: Trace, layer: str) -> _Writes:
    """First to last write of each record of a layer without single operations."""
    table = trace.counters.get(layer)
    if table is None or layer in trace.layers_traced:
        return NOTHING
    prefix = prefix_of(layer)
    low = table.seconds.get(f"{prefix}_F_WRITE_START_TIMESTAMP")
    high = table.seconds.get(f"{prefix}_F_WRITE_END_TIMESTAMP")
    if low is None or high is None:
        return NOTHING
    # Darshan leaves 0 where a file was never written.
    mine = _mark_checkpoint_files(trace)[table.file] & (low > 0) & (high >= low)
    # When the log of each record began, ns: its timestamps count from there.
    starts = [trace.job.start_ns if p.start_ns is None else p.start_ns for p in trace.processes]
    start = np.array([*starts, trace.job.start_ns], np.int64)[table.process]
    since = start[mine]
    return (
        since + np.round(low[mine] * 1e9).astype(np.int64),
        since + np.round(high[mine] * 1e9).astype(np.int64),
        table.file[mine].astype(np.int64),
        count_by_record(table, "BYTES_WRITTEN")[mine],
        np.full(int(mine.sum()), -1, np.int64),
    )
