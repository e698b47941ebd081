"""Slices, bins, names and arrows as the page reads them (`templates/viewer-data.js`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.dataloader_batches import deliveries
from vanidl.analyses.timeline import JobTimeline
from vanidl.breakdown.overlap import RankFates
from vanidl.figures import palette
from vanidl.formatting.names import elided
from vanidl.model.ordering import stable_order
from vanidl.model.trace import Trace
from vanidl.viewer.blocks import Block, cut, fates_of, joined_blocks
from vanidl.viewer.content import Content, Room, Slices
from vanidl.viewer.lanes import Lanes
from vanidl.viewer.pack import Spec, packed_columns, packed_texts

Int64Array = NDArray[np.int64]

MOST_NAMES = 20_000
MOST_ARROWS = 5_000
_MOST_MAPPED = 1_000_000  # slices of a run whose batches are looked for
CONTINUED = 8
"""Added to the fate of a piece that goes on with the operation of the piece before."""

_DELTAS = ("start", "offset")


MOST_LETTERS = 1_300_000
"""Of the slices in a page."""


def fitted(slices: Slices, io: JobTimeline | None, room: Room) -> tuple[Content, Spec]:
    """As many slices of a run as a page has room for, and how it holds them."""
    most = room.slices
    while True:
        content = slices.content(replace(room, slices=most))
        found = payload(content, io) | {"server": room.served}
        packed = (found["pieces"]["data"], found["entries"]["data"], found["names"])
        if sum(map(len, packed)) <= MOST_LETTERS or not content.held_count:
            return content, found
        most = min(most, content.held_count) // 2


def payload(content: Content, io: JobTimeline | None) -> Spec:
    """Everything that the trace viewer of a page needs, as JSON."""
    trace, lanes = content.trace, content.lanes
    since = trace.job.start_ns
    return {
        "low": content.low_ns - since,
        "high": content.high_ns - since,
        "lanes": [
            {"label": elided(lane.label, limit=60), "kind": lane.kind, "rank": lane.rank}
            for lane in lanes.lanes
        ],
        "ranks": {str(r): _rank_label(trace, r) for r in {lane.rank for lane in lanes.lanes}},
        "processes": _process_labels(trace, content.held),
        "total": content.total_count,
        "held": content.held_count,
        "whole": sorted(content.whole),
        "windows": [[low - since, high - since] for low, high in content.windows],
        "ranksCut": content.ranks_cut,
        "worst": [
            [w.rank, w.step, round(w.start_s * 1e9), round(w.end_s * 1e9), w.wait_s]
            for w in content.worst
        ],
        "byFate": bool(content.fates),
        "palette": PALETTE,
        **slices(content.held, Labels.of(content)),
        "bins": packed_bins(content.bins.amounts, len(content.bins.edges) - 1),
        "arrows": _arrows(trace, lanes) if content.total_count <= _MOST_MAPPED else None,
        "bandwidth": None if io is None else _bandwidth(io),
    }


@dataclass(frozen=True, slots=True)
class Labels:
    """What the numbers in slices stand for."""

    since_ns: int  # start of the job
    paths: Sequence[str]
    span_names: Sequence[str]
    lanes: Lanes
    fates: Mapping[int, RankFates]

    @classmethod
    def of(cls, content: Content) -> Labels:
        """Those of a run."""
        trace = content.trace
        names = (trace.files.path, trace.spans.names)
        return cls(trace.job.start_ns, *names, content.lanes, content.fates)


def slices(held: Sequence[Block], known: Labels, *, fast: bool = False) -> Spec:
    """Pieces and what they belong to, track by track, and the names in them."""
    tracks, pieces, entries = [], [], []
    for (lane, row), block in _by_track(held).items():
        found = cut(block, fates_of(known.lanes, lane, known.fates))
        code = found.fate + np.where(found.first, 0, CONTINUED).astype(np.uint8)
        pieces.append((found.start - known.since_ns, found.end - found.start, code))
        entries.append(block)
        tracks.append([lane, row, len(found), len(block)])
    joined = [_joined(column) for column in zip(*pieces, strict=True)] or [_joined(())] * 3
    columns = dict(zip(("start", "length", "code"), joined, strict=True))
    names, coded = _names(entries, known)
    kept = {name: _joined([getattr(b, name) for b in entries]) for name in _KEPT}
    return {
        "tracks": tracks,
        "pieces": packed_columns(columns, deltas=_DELTAS, fast=fast),
        "entries": packed_columns(kept | {"name": coded}, deltas=_DELTAS, fast=fast),
        "names": packed_texts(names, fast=fast),
    }


_KEPT = ("offset", "nbytes", "thread", "process", "write")


def _by_track(held: Sequence[Block]) -> dict[tuple[int, int], Block]:
    """(lane, row) -> its slices in order of start."""
    by_lane: dict[int, list[Block]] = {}
    for block in held:
        by_lane.setdefault(block.lane, []).append(block)
    found: dict[tuple[int, int], Block] = {}
    for lane in sorted(by_lane):
        whole = joined_blocks(by_lane[lane])  # of thousands of blocks: a few calls a lane
        for row in np.unique(whole.row).tolist():
            mine = np.flatnonzero(whole.row == row)
            order = stable_order(whole.start[mine])
            found[lane, row] = whole.pick(mine[order])
    return found


def _joined(columns: Sequence[NDArray[np.integer]]) -> Int64Array:
    if not columns:
        return np.empty(0, np.int64)
    return np.concatenate([c.astype(np.int64) for c in columns])


def _names(entries: Sequence[Block], known: Labels) -> tuple[list[str], Int64Array]:
    """The names that are used most, and of each entry the number of its name, -1 for none."""
    files = len(known.paths)
    keys = [b.name.astype(np.int64) + np.where(b.process >= 0, 0, files) for b in entries]
    used, place, counts = np.unique(_joined(keys), return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_NAMES])
    number = np.full(len(used), -1, np.int64)
    number[kept] = np.arange(len(kept))
    names = [
        elided(known.paths[i] if i < files else known.span_names[i - files])
        for i in used[kept].tolist()
    ]
    return names, number[place.ravel()]


def _rank_label(trace: Trace, rank: int) -> str:
    return elided(trace.processes[trace.ranks[rank]].label, limit=60) if rank >= 0 else "no rank"


def _process_labels(trace: Trace, held: Sequence[Block]) -> Spec:
    used = np.unique(_joined([block.process for block in held])).tolist()
    return {str(p): process_label(trace, p) for p in used if p >= 0}


def process_label(trace: Trace, process: int) -> str:
    """Where a process ran, as far as that is known."""
    found = trace.processes[process]
    where = f"{found.host}:{found.pid}" if found.host and found.pid is not None else found.label
    return elided(where, limit=60)


def packed_bins(
    amounts: Mapping[tuple[int, int, int], Int64Array], count: int, *, fast: bool = False
) -> Spec | None:
    """Busy ns by (lane, row, fate) in `count` bins; those that are not 0 with their numbers."""
    if not amounts:
        return None
    keys, places, values = [], [], []
    for (lane, row, fate), busy in sorted(amounts.items()):
        at = np.flatnonzero(busy)
        keys.append([lane, row, fate, len(at)])
        places.append(at)
        values.append(busy[at])
    columns = {"place": _joined(places), "busy": _joined(values)}
    return {
        "count": count,
        "series": keys,
        **packed_columns(columns, deltas=("place",), fast=fast),
    }


def _arrows(trace: Trace, lanes: Lanes) -> Spec | None:
    """From the last read of a batch, in a worker, to the end of the wait that took it."""
    rows = [
        (lanes.of_process[w], read, lanes.of_spans[trace_rank(trace, each.trainer), "waits"], taken)
        for each in deliveries(trace)
        if (trace_rank(trace, each.trainer), "waits") in lanes.of_spans
        for w, read, taken in zip(
            each.worker.tolist(), each.read_ns.tolist(), each.taken_ns.tolist(), strict=True
        )
        if w in lanes.of_process
    ][:MOST_ARROWS]
    if not rows:
        return None
    lane, read, to_lane, taken = np.array(rows, np.int64).T
    since = trace.job.start_ns
    columns = {"lane": lane, "read": read - since, "to": to_lane, "taken": taken - since}
    return packed_columns(columns, deltas=("read", "taken"))


def trace_rank(trace: Trace, process: int) -> int:
    """The position in Trace.ranks that a process counts for."""
    return int(trace.family[process])


def _bandwidth(io: JobTimeline) -> Spec:
    """Bytes of the whole job in equal bins, exact."""
    bounds = [round(float(at) * 1e9) for at in (io.edges_s[0], io.edges_s[-1])]
    columns = packed_columns({"read": io.bytes_read, "written": io.bytes_written})
    return {"low": bounds[0], "high": bounds[1], **columns}


PALETTE: Spec = {
    "fates": [
        {"label": "in input wait", "colour": palette.IN_WAIT, "hatch": ""},
        {"label": "hidden", "colour": palette.HIDDEN, "hatch": ""},
        {"label": "behind communication", "colour": palette.COMMUNICATION, "hatch": "/"},
        {"label": "other exposed", "colour": palette.OTHER, "hatch": "x"},
        {"label": "unobserved", "colour": palette.UNOBSERVED, "hatch": "."},
        {"label": "in steps, fate not known", "colour": palette.BUSY, "hatch": "-"},
    ],
    "kinds": {
        "epochs": palette.FIRST,
        "steps": palette.STEP,
        "validation": palette.BACKWARD,
        "waits": palette.IN_WAIT,
        "kernels": palette.HIDDEN,
        "operators": palette.HIDDEN,
        "copies": palette.OTHER,
        "communication": palette.COMMUNICATION,
        "checkpoints": palette.WRITE,
        "model": palette.HIDDEN,
        "phases": palette.OTHER,
        "workers": palette.OTHER,
        "preprocessing": palette.OTHER,
    },
    "read": palette.READ,
    "write": palette.WRITE,
    "busy": palette.BUSY,
    "match": palette.INK,
    "ink": palette.INK,
    "soft": palette.SOFT,
    "faint": palette.FAINT,
    "paper": palette.PAPER,
}
"""Light colours by what they mean, in the order of `Fate`; dark ones are `palette.DARK`."""
