"""Filters: which operations an analysis looks at.

A filter is a mask on one part at a time, never a copy of all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import UsageError
from vanidl.model import intervals
from vanidl.model.counter_tables import CounterTable, Heatmap
from vanidl.model.intervals import Intervals
from vanidl.model.parts import Parts, sizes_of
from vanidl.model.states import States
from vanidl.model.trace import OBJECT, POSIX, Part, SpanKind, Spans, Trace
from vanidl.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """Which operations to look at.

    `layer` "" is POSIX, or OBJECT where requests to object storage alone were recorded.
    `only` is a kind of file; `include` and `exclude` are glob patterns on whole paths, any of
    which may match; `from_s` and `to_s` are seconds since the start of the job: operations
    and steps that start in [from_s, to_s) count. `steps` are numbers of training steps: what
    started during them, each rank by its own, counts. `epochs` and `ranks` are numbers as frames
    have them; `Run.select` takes them.
    """

    layer: str = ""
    only: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    from_s: float | None = None
    to_s: float | None = None
    codes: frozenset[int] | None = None  # only these files, where names no longer tell them
    steps: Collection[int] | None = None
    epochs: Collection[int] | None = None
    ranks: Collection[int] | None = None

    @property
    def timed(self) -> bool:
        """Whether what started at other times is left out."""
        return self.from_s is not None or self.to_s is not None or self.steps is not None


def fitted(selection: Selection, trace: Trace) -> Selection:
    """The selection with its layer by name."""
    if selection.layer:
        return selection
    layers = {*trace.layers_traced, *trace.counters}
    return replace(selection, layer=OBJECT if layers == {OBJECT} else POSIX)


class SelectedParts(Sequence[Part]):
    """The parts of one layer with only the chosen rows, masked when they are asked for."""

    def __init__(self, parts: Sequence[Part], keep: _Keep) -> None:
        layers = parts.layers if isinstance(parts, Parts) else [p.layer for p in parts]
        self._parts = parts
        self._at = [i for i, layer in enumerate(layers) if layer == keep.layer]
        self._keep = keep

    @property
    def whole(self) -> bool:
        """Whether the layer's parts are chosen with all their rows."""
        return not self._keep.masks

    @property
    def processes(self) -> tuple[int, ...]:
        """The process of each part of the layer, some perhaps without a row; reads none."""
        if isinstance(self._parts, Parts):
            of_parts = self._parts.processes
            return tuple(of_parts[i] for i in self._at)
        return tuple(self._parts[i].process for i in self._at)

    @property
    def spilled(self) -> bool:
        """Whether the parts lie in a file."""
        return isinstance(self._parts, Parts) and self._parts.spilled

    @property
    def sizes(self) -> tuple[int, ...]:
        """At most how many operations each part keeps; reads none where they lie in a file."""
        sizes = sizes_of(self._parts)
        return tuple(sizes[i] for i in self._at)

    def at(self, indices: Iterable[int]) -> SelectedParts:
        """The parts of these indices, masked when they are asked for."""
        chosen = [self._at[i] for i in indices]
        if isinstance(self._parts, Parts):
            return SelectedParts(self._parts.at(chosen), self._keep)
        return SelectedParts([self._parts[i] for i in chosen], self._keep)

    @property
    def others(self) -> Sequence[Part]:
        """The parts of the other layers."""
        mine = set(self._at)
        rest = [i for i in range(len(self._parts)) if i not in mine]
        return (
            self._parts.at(rest)
            if isinstance(self._parts, Parts)
            else [self._parts[i] for i in rest]
        )

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        """One part, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self._keep(self._parts[i]) for i in self._at[index]]
        return self._keep(self._parts[self._at[index]])

    def __iter__(self) -> Iterator[Part]:
        """The parts that keep at least one row."""
        all_of_them = len(self._at) == len(self._parts)
        chosen = self._parts if all_of_them else (self._parts[i] for i in self._at)
        return (p for p in (map(self._keep, chosen) if self._keep.masks else chosen) if len(p))


@dataclass(frozen=True, slots=True)
class _Keep:
    layer: str
    files: NDArray[np.bool_] | None
    from_ns: int
    to_ns: int
    timed: bool
    windows: Mapping[int, Intervals] | None = None  # process -> when its chosen steps were

    @property
    def masks(self) -> bool:
        """Whether rows of the layer may be left out."""
        return self.timed or self.files is not None

    def __call__(self, part: Part) -> Part:
        mask: NDArray[np.bool_] | None = None if self.files is None else self.files[part.file]
        if self.timed:
            inside = (part.start >= self.from_ns) & (part.start < self.to_ns)
            if self.windows is not None:
                inside &= _starts_within(self.windows.get(part.process), part.start)
            mask = inside if mask is None else mask & inside
        return part if mask is None else part.rows(mask)


def select(trace: Trace, selection: Selection) -> Trace:
    """The trace as the selection sees it: masked operations, counters, spans and run time.

    Counters know no time: with a time window they are left out. Heat maps know no files:
    where files are chosen they are left out, and with a time window their bins that start in
    it count.

    Raises:
        UsageError: the layer, kind or window is not in the trace.
    """
    selection = fitted(selection, trace)
    _check_selection(trace, selection)
    files = _mask_files(trace, selection)
    timed = selection.timed
    job = trace.job  # one without a moment in it has no window to choose from, but is a run
    start, end = _find_window(trace, selection) if timed else (job.start_ns, job.end_ns)
    # Windows of single steps narrow the one of the whole trace.
    windows = None if selection.steps is None else _find_step_windows(trace, selection.steps)
    if windows is not None:
        start = max(start, min(int(each.start[0]) for each in windows.values()))
        end = min(end, max(int(each.end[-1]) for each in windows.values()))
    io = SelectedParts(trace.io, _Keep(selection.layer, files, start, end, timed, windows))
    # What knows no time is left out with a time window, what knows no files where files are chosen.
    counters = {} if timed else {n: _mask_counters(t, files) for n, t in trace.counters.items()}
    spans = _cut_spans(trace.spans, start, end) if timed else trace.spans
    if selection.steps is not None:
        numbers = np.fromiter(selection.steps, np.int64)
        spans = spans.pick((spans.kind != SpanKind.STEP) | np.isin(spans.step, numbers))
    job = replace(job, start_ns=start, end_ns=end)
    heatmaps = trace.heatmaps if files is None else ()
    if timed:
        heatmaps = tuple(_cut_bins(h, start, end) for h in heatmaps)
    calls = trace.object_calls if selection.layer == OBJECT else trace.metadata_calls
    calls = calls if files is None else {}  # they know no files
    by_kind = trace.calls if files is None else {}
    # Fetches by when they began, of single steps within the windows of their process.
    begun = (trace.fetches.begin >= start) & (trace.fetches.begin < end)
    if windows is not None:
        for process in np.unique(trace.fetches.trainer).tolist():
            of_process = trace.fetches.trainer == process
            begun[of_process] &= _starts_within(
                windows.get(process), trace.fetches.begin[of_process]
            )
    fetches = trace.fetches.pick(begun) if timed else trace.fetches
    calls_of = tuple(c for c in trace.checkpoint_calls if start <= c.start < end or not timed)
    return replace(
        trace, io=io, counters=counters, spans=spans, job=job, heatmaps=heatmaps,
        metadata_calls=calls, calls=by_kind, fetches=fetches, checkpoint_calls=calls_of,
    )  # fmt: skip


def _check_selection(trace: Trace, selection: Selection) -> None:
    layers = sorted({*trace.layers_traced, *trace.counters})
    if layers and selection.layer not in layers and selection.layer != POSIX:
        raise UsageError(
            f"--layer {selection.layer}: this run has no such layer. It has: {', '.join(layers)}."
        )
    if selection.only is not None and selection.only not in trace.files.kind:
        kinds = ", ".join(sorted(set(trace.files.kind))) or "none"
        raise UsageError(f"--only {selection.only}: no file of that kind. Kinds here: {kinds}.")


def of_ranks(trace: Trace, numbers: Collection[int]) -> Trace:
    """The trace of some ranks: their processes, and nothing that others did or that all share.

    Raises:
        UsageError: there is no rank of such a number.
    """
    rank_numbers = trace.rank_numbers
    if not numbers or not set(numbers) <= set(rank_numbers):
        there = ", ".join(str(number) for number in rank_numbers[:20] if number is not None)
        raise UsageError(f"ranks: expected some of {there}, found {sorted(numbers)}.")
    # Processes that work for these ranks; others stay in their places, without a part.
    position = np.array([number in numbers for number in rank_numbers])
    kept = np.array([k >= 0 and bool(position[k]) for k in trace.family.tolist()] or [False])
    others = (replace(p, role="unassigned", trainer=None) for p in trace.processes)
    processes = tuple(
        process if mine else other
        for process, mine, other in zip(trace.processes, kept.tolist(), others, strict=True)
    )
    # Their operations, and the threads that were sampled of them.
    whole = trace.io if isinstance(trace.io, Parts) else None
    of_parts = whole.processes if whole is not None else [part.process for part in trace.io]
    mine = [i for i, process in enumerate(of_parts) if kept[process]]
    threads = {(trace.processes[i].host, trace.processes[i].pid) for i in np.flatnonzero(kept)}
    return replace(
        trace,
        processes=processes,
        io=whole.at(mine) if whole is not None else [trace.io[i] for i in mine],
        spans=trace.spans.pick(kept[trace.spans.process]),
        counters={
            name: _pick_rows(table, (table.process >= 0) & kept[table.process])
            for name, table in trace.counters.items()
        },
        heatmaps=tuple(h for h in trace.heatmaps if h.process >= 0 and kept[h.process]),
        mpi=tuple(each for each in trace.mpi if kept[each.process]),
        step_durations=tuple(each for each in trace.step_durations if kept[each.process]),
        metadata_calls={i: calls for i, calls in trace.metadata_calls.items() if kept[i]},
        calls={i: calls for i, calls in trace.calls.items() if kept[i]},
        object_calls={i: calls for i, calls in trace.object_calls.items() if kept[i]},
        fetches=trace.fetches.pick(kept[trace.fetches.trainer]),
        checkpoint_calls=tuple(c for c in trace.checkpoint_calls if kept[c.process]),
        states=States(tuple(t for t in trace.states.threads if (t.host, t.pid) in threads)),
    )


def _find_step_windows(trace: Trace, numbers: Collection[int]) -> dict[int, Intervals]:
    """Process -> when the chosen steps of its rank were.

    Raises:
        UsageError: no rank has such a step with a place in time.
    """
    chosen = np.isin(trace.spans.step, np.fromiter(numbers, np.int64))
    steps = trace.spans.pick((trace.spans.kind == SpanKind.STEP) & chosen)
    position = trace.family[steps.process]
    of_rank = {
        k: intervals.union(steps.start[position == k], steps.end[position == k])
        for k in np.unique(position[position >= 0]).tolist()
    }
    if not of_rank:
        raise UsageError("steps: expected numbers of recorded steps, found none of them.")
    families = enumerate(trace.family.tolist())
    return {process: of_rank[k] for process, k in families if k in of_rank}


def _starts_within(windows: Intervals | None, start: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which instants lie in some windows; none where there are no windows."""
    if windows is None:
        return np.zeros(len(start), bool)
    row = np.searchsorted(windows.start, start, side="right") - 1
    inside: NDArray[np.bool_] = (row >= 0) & (start < windows.end[np.maximum(row, 0)])
    return inside


def _find_window(trace: Trace, selection: Selection) -> tuple[int, int]:
    start, end = trace.job.start_ns, trace.job.end_ns
    low = start if selection.from_s is None else start + round(selection.from_s * 1e9)
    high = end if selection.to_s is None else start + round(selection.to_s * 1e9)
    if low >= high or low >= end or high <= start:
        raise UsageError(
            f"--from/--to: expected a window inside 0 to {trace.job.run_time_s:.3f} s of the job, "
            f"found {(low - start) / 1e9:.3f} to {(high - start) / 1e9:.3f} s."
        )
    return low, high


def _mask_files(trace: Trace, selection: Selection) -> NDArray[np.bool_] | None:
    chosen = (selection.only, selection.include, selection.exclude, selection.codes)
    if chosen == (None, (), (), None):
        return None
    mask = np.zeros(len(trace.files), bool)
    mask[sorted(chosen_files(trace, selection))] = True
    return mask


def chosen_files(trace: Trace, selection: Selection) -> frozenset[int]:
    """Codes of the files that the selection keeps."""
    rows = enumerate(zip(trace.files.path, trace.files.kind, strict=True))
    kept = (code for code, (path, kind) in rows if _is_wanted(path, kind, selection))
    return frozenset(kept if selection.codes is None else selection.codes.intersection(kept))


def _is_wanted(path: str, kind: str, selection: Selection) -> bool:
    if selection.only is not None and kind != selection.only:
        return False
    if selection.include and not any(fnmatchcase(path, g) for g in selection.include):
        return False
    return not any(fnmatchcase(path, g) for g in selection.exclude)


def _mask_counters(table: CounterTable, files: NDArray[np.bool_] | None) -> CounterTable:
    if files is None:
        return table
    return _pick_rows(table, files[table.file])


def _pick_rows(table: CounterTable, mask: NDArray[np.bool_]) -> CounterTable:
    return CounterTable(
        table.layer,
        table.process[mask],
        table.file[mask],
        {name: values[mask] for name, values in table.counters.items()},
        {name: values[mask] for name, values in table.seconds.items()},
    )


def _cut_bins(heatmap: Heatmap, start: int, end: int) -> Heatmap:
    at = heatmap.start_ns + heatmap.bin_ns * np.arange(len(heatmap.bytes_read), dtype=np.int64)
    inside = np.flatnonzero((at >= start) & (at < end))
    low, high = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
    return replace(
        heatmap,
        start_ns=heatmap.start_ns + low * heatmap.bin_ns,
        bytes_read=heatmap.bytes_read[low:high],
        bytes_written=heatmap.bytes_written[low:high],
    )


def _cut_spans(spans: Spans, start: int, end: int) -> Spans:
    """Steps that start in the window, and everything else (it counts only inside steps)."""
    is_step = spans.kind == SpanKind.STEP
    return spans.pick(~is_step | ((spans.start >= start) & (spans.start < end)))
