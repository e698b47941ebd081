"""Slices, bins, names and arrows as the page reads them (`templates/viewer-data.js`).

Columns of whole numbers are sent in few bytes, exact and quick to read: a column is laid out byte
by byte, the lowest byte of every value, then the next. So bytes that hardly differ lie together,
which deflate makes small (`pack_columns`).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.dataloader_batches import find_deliveries
from vanidl.analyses.timeline import JobTimeline
from vanidl.breakdown.overlap import RankFates
from vanidl.figures import palette
from vanidl.formatting.names import elided
from vanidl.model.ordering import stable_order
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass
from vanidl.viewer.content import Content, Room, Slices
from vanidl.viewer.lanes import Block, Lanes, cut, fates_of, joined_blocks

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
        spec = payload(content, io) | {"server": room.served}
        packed = (spec["pieces"]["data"], spec["entries"]["data"], spec["names"])
        if sum(map(len, packed)) <= MOST_LETTERS or not content.held_count:
            return content, spec
        most = min(most, content.held_count) // 2


def payload(content: Content, io: JobTimeline | None) -> Spec:
    """Everything that the trace viewer of a page needs, as JSON."""
    trace, lanes = content.trace, content.lanes
    since = trace.job.start_ns
    used = np.unique(_join_columns([block.process for block in content.held])).tolist()
    processes = {str(p): label_process(trace, p) for p in used if p >= 0}
    # Bytes of the whole job in equal bins, exact.
    bandwidth = None
    if io is not None:
        low, high = (round(float(at) * 1e9) for at in (io.edges_s[0], io.edges_s[-1]))
        columns = pack_columns({"read": io.bytes_read, "written": io.bytes_written})
        bandwidth = {"low": low, "high": high, **columns}
    return {
        "low": content.low_ns - since,
        "high": content.high_ns - since,
        "lanes": [
            {"label": elided(lane.label, limit=60), "kind": lane.kind, "rank": lane.rank}
            for lane in lanes.lanes
        ],
        "ranks": {
            str(r): elided(trace.processes[trace.ranks[r]].label, limit=60) if r >= 0 else "no rank"
            for r in {lane.rank for lane in lanes.lanes}
        },
        "processes": processes,
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
        "bins": pack_bins(content.bins.amounts, len(content.bins.edges) - 1),
        "arrows": _pack_arrows(trace, lanes) if content.total_count <= _MOST_MAPPED else None,
        "bandwidth": bandwidth,
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
    for (lane, row), block in _group_by_track(held).items():
        # A slice is drawn in pieces of one fate each; its name and place stand once, in `entries`.
        found = cut(block, fates_of(known.lanes, lane, known.fates))
        code = found.fate + np.where(found.first, 0, CONTINUED).astype(np.uint8)
        pieces.append((found.start - known.since_ns, found.end - found.start, code))
        entries.append(block)
        tracks.append([lane, row, len(found), len(block)])
    # Columns by themselves, times as differences: they compress best so.
    joined = [_join_columns(column) for column in zip(*pieces, strict=True)] or [
        _join_columns(())
    ] * 3
    columns = dict(zip(("start", "length", "code"), joined, strict=True))
    names, coded = _collect_names(entries, known)
    kept = {name: _join_columns([getattr(b, name) for b in entries]) for name in _KEPT}
    return {
        "tracks": tracks,
        "pieces": pack_columns(columns, deltas=_DELTAS, fast=fast),
        "entries": pack_columns(kept | {"name": coded}, deltas=_DELTAS, fast=fast),
        "names": pack_texts(names, fast=fast),
    }


_KEPT = ("offset", "nbytes", "thread", "process", "write")


def _group_by_track(held: Sequence[Block]) -> dict[tuple[int, int], Block]:
    """(lane, row) -> its slices in order of start."""
    by_lane: dict[int, list[Block]] = {}
    for block in held:
        by_lane.setdefault(block.lane, []).append(block)
    tracks: dict[tuple[int, int], Block] = {}
    for lane in sorted(by_lane):
        whole = joined_blocks(by_lane[lane])  # of thousands of blocks: a few calls a lane
        for row in np.unique(whole.row).tolist():
            mine = np.flatnonzero(whole.row == row)
            order = stable_order(whole.start[mine])
            tracks[lane, row] = whole.pick(mine[order])
    return tracks


def _join_columns(columns: Sequence[NDArray[np.integer]]) -> Int64Array:
    if not columns:
        return np.empty(0, np.int64)
    return np.concatenate([c.astype(np.int64) for c in columns])


def _collect_names(entries: Sequence[Block], known: Labels) -> tuple[list[str], Int64Array]:
    """The names that are used most, and of each entry the number of its name, -1 for none."""
    files = len(known.paths)
    # Files and spans have numbers of their own: spans come behind all files.
    keys = [b.name.astype(np.int64) + np.where(b.process >= 0, 0, files) for b in entries]
    used, place, counts = np.unique(_join_columns(keys), return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_NAMES])
    number = np.full(len(used), -1, np.int64)
    number[kept] = np.arange(len(kept))
    names = [
        elided(known.paths[i] if i < files else known.span_names[i - files])
        for i in used[kept].tolist()
    ]
    return names, number[place.ravel()]


def label_process(trace: Trace, process: int) -> str:
    """Where a process ran, as far as that is known."""
    found = trace.processes[process]
    where = f"{found.host}:{found.pid}" if found.host and found.pid is not None else found.label
    return elided(where, limit=60)


def pack_bins(
    amounts: Mapping[tuple[int, int, int], Int64Array], count: int, *, fast: bool = False
) -> Spec | None:
    """Busy ns by (lane, row, fate) in `count` bins; those that are not 0 with their numbers."""
    if not amounts:
        return None
    keys, places, values = [], [], []
    for (lane, row, fate), busy in sorted(amounts.items()):
        # Most bins are empty: the others are sent, with their places.
        at = np.flatnonzero(busy)
        keys.append([lane, row, fate, len(at)])
        places.append(at)
        values.append(busy[at])
    columns = {"place": _join_columns(places), "busy": _join_columns(values)}
    return {
        "count": count,
        "series": keys,
        **pack_columns(columns, deltas=("place",), fast=fast),
    }


def _pack_arrows(trace: Trace, lanes: Lanes) -> Spec | None:
    """From the last read of a batch, in a worker, to the end of the wait that took it."""
    # Lanes are cut where there are many; an arrow needs both of its ends.
    rows = [
        (
            lanes.of_process[w],
            read,
            lanes.of_spans[find_trace_rank(trace, each.trainer), "waits"],
            taken,
        )
        for each in find_deliveries(trace)
        if (find_trace_rank(trace, each.trainer), "waits") in lanes.of_spans
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
    return pack_columns(columns, deltas=("read", "taken"))


def find_trace_rank(trace: Trace, process: int) -> int:
    """The position in Trace.ranks that a process counts for."""
    return int(trace.family[process])


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


Spec = dict[str, Any]

_SMALL = 6  # level of zlib for a page that is kept
_FAST = 1


def pack_columns(
    columns: Mapping[str, NDArray[np.integer]], *, deltas: Sequence[str] = (), fast: bool = False
) -> Spec:
    """The columns as JSON: how to read each, and all bytes, deflated, in base64.

    Columns in `deltas` are stored as differences of neighbours. Values below zero are stored
    zigzag: 0, -1, 1, -2 as 0, 1, 2, 3.
    """
    about, blob = [], []
    for name, values in columns.items():
        whole = np.ascontiguousarray(values, np.int64)
        # As few bytes as the largest number needs, byte by byte: the high ones are mostly equal,
        # which deflates well.
        stored = np.diff(whole, prepend=np.int64(0)) if name in deltas else whole
        signed = bool(len(stored)) and bool((stored < 0).any())
        zigzag = (stored << 1) ^ (stored >> 63) if signed else stored
        bits = zigzag.view(np.uint64)
        width = max(1, -(-int(bits.max(initial=0)).bit_length() // 8))
        planes = bits.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T
        blob.append(np.ascontiguousarray(planes).tobytes())
        about.append([name, len(whole), width, int(signed), int(name in deltas)])
    return {"columns": about, "data": _deflate(b"".join(blob), fast=fast)}


def pack_texts(texts: Sequence[str], *, fast: bool = False) -> str:
    """A list of texts, as JSON, deflated, in base64."""
    return _deflate(json.dumps(texts, ensure_ascii=True).encode(), fast=fast)


def _deflate(raw: bytes, *, fast: bool) -> str:
    return base64.b64encode(zlib.compress(raw, _FAST if fast else _SMALL)).decode("ascii")
