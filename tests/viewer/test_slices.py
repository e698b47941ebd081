"""What the trace viewer shows is what was recorded, to the nanosecond."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.test_laws import operations, spans, trace_of
from tests.viewer import unpacking
from vanidl import report
from vanidl.analyses.results import analyse
from vanidl.breakdown.overlap import Fate
from vanidl.model.selection import Selection
from vanidl.run import Run
from vanidl.viewer.content import Room, Slices, content_of
from vanidl.viewer.lanes import IO, SPAN_LANES, blocks, cut, fates_of, io_processes, lanes_of
from vanidl.viewer.payload import PALETTE, pack_columns, payload

OF_PART = ("start", "end", "offset", "nbytes", "file", "op")
SPLIT = {
    Fate.IN_WAIT: "in_wait_s",
    Fate.HIDDEN: "hidden_s",
    Fate.BEHIND_COMMUNICATION: "behind_communication_s",
    Fate.OTHER: "other_s",
    Fate.UNOBSERVED: "unobserved_s",
}


def run_of(ios, seen) -> Run:
    trace = trace_of(ios, seen)
    return Run(trace, analyse(trace), Selection())


def length_of(intervals) -> int:
    """Nanoseconds that are covered by any of the intervals: one point after the other."""
    total, reach = 0, -(2**63)
    for start, end in sorted(intervals):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total


@given(operations(), spans)
def test_every_operation_is_a_slice_with_all_that_is_known_of_it(ios, seen):
    run = run_of(ios, seen)
    since = run.trace.job.start_ns
    packed = payload(content_of(run), None)
    lanes = packed["lanes"]
    found = Counter(
        (s["process"], s["pieces"][0][0] + since, s["pieces"][-1][1] + since, s["offset"],
         s["nbytes"], s["name"], s["write"])
        for s in unpacking.slices(packed) if lanes[s["lane"]]["kind"] == IO
    )  # fmt: skip
    expected = Counter(
        (part.process, start, end, offset, nbytes, run.trace.files.path[file], op)
        for part in run.trace.io
        for start, end, offset, nbytes, file, op in zip(
            *(getattr(part, name).tolist() for name in OF_PART),
            strict=True,
        )
    )  # fmt: skip
    assert found == expected
    assert packed["held"] == packed["total"] == len(unpacking.slices(packed))


@given(operations(), spans)
def test_colours_add_up_to_the_split_of_the_overlap(ios, seen):
    run = run_of(ios, seen)
    packed = payload(content_of(run), None)
    rank = run.overlap.per_rank[0]
    by_fate: dict[int, list] = {fate: [] for fate in Fate}
    for each in unpacking.slices(packed):
        if packed["lanes"][each["lane"]]["kind"] == IO:
            assert all(
                a[1] == b[0] for a, b in zip(each["pieces"], each["pieces"][1:], strict=False)
            )
            for start, end, fate in each["pieces"]:
                by_fate[fate].append((start, end))
    for fate, name in SPLIT.items():
        if getattr(rank, name) is not None:
            assert length_of(by_fate[fate]) == round(getattr(rank, name) * 1e9), name
    whole = length_of([piece for pieces in by_fate.values() for piece in pieces])
    assert whole == sum(length_of(pieces) for pieces in by_fate.values())
    assert whole == round((rank.io_s or 0) * 1e9)


@given(operations(), spans, st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_pages_with_other_room_take_what_was_gathered(ios, seen, rooms):
    run = run_of(ios, seen)
    slices = Slices(run)
    for most in [12, *rooms]:
        room = Room(slices=most)
        assert payload(slices.content(room), None) == payload(content_of(run, room), None)


@given(operations(), spans)
def test_slices_of_a_row_do_not_overlap(ios, seen):
    run = run_of(ios, seen)
    lanes = lanes_of(run.trace, io_processes(run.trace))
    for block in blocks(run.trace, lanes):
        for row in range(5):  # the last one takes what has no row left
            mine = block.row == row
            assert (block.start[mine][1:] >= block.end[mine][:-1]).all()


@given(operations(), spans, st.integers(0, 12))
def test_what_is_left_out_is_in_the_bins(ios, seen, most):
    run = run_of(ios, seen)
    content = content_of(run, Room(slices=most))
    assert content.held_count <= most
    assert content.total_count == content_of(run).total_count
    lanes = content.lanes
    busy: dict[tuple[int, int, int], list] = {}
    for block in blocks(content.trace, lanes):
        pieces = cut(block, fates_of(lanes, block.lane, content.fates))
        for row, fate, start, end in zip(
            block.row[pieces.owner].tolist(), pieces.fate.tolist(), pieces.start.tolist(),
            pieces.end.tolist(), strict=True,
        ):  # fmt: skip
            busy.setdefault((block.lane, row, fate), []).append((start, end))
        for low, high in content.windows:
            inside = (block.start < high) & (block.end > low)
            held = sum(
                int(((b.start < high) & (b.end > low)).sum())
                for b in content.held if b.lane == block.lane and b.process[0] == block.process[0]
            )  # fmt: skip
            assert held >= int(inside.sum())
    for key, amounts in content.bins.amounts.items():
        assert key[0] not in content.whole
        assert int(amounts.sum()) == length_of(busy[key])
        assert (amounts <= np.diff(content.bins.edges)).all()
    missing = {key for key, all_ in busy.items() if length_of(all_)} - set(content.bins.amounts)
    assert all(key[0] in content.whole for key in missing)


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20), st.booleans())
def test_columns_come_back(values, deltas):
    if deltas:
        values = [v // 4 for v in values]  # differences of neighbours must fit as well
    packed = pack_columns(
        {"a": np.array(values, np.int64), "b": np.arange(3)}, deltas=["a"] if deltas else []
    )
    assert unpacking.columns(packed) == {"a": values, "b": [0, 1, 2]}


@pytest.mark.parametrize("name", ["torch_pfs_workers0"])
def test_slices_of_a_recorded_run(name, opened):
    from tests import DATA

    run = opened(DATA / name)
    packed = payload(content_of(run), run.timeline.job)
    kinds = Counter(packed["lanes"][s["lane"]]["kind"] for s in unpacking.slices(packed))
    assert kinds[IO] == run.summary.ops
    assert kinds["steps"] == len(run.steps.table.step)
    waits = unpacking.columns(packed["bandwidth"])
    assert sum(waits["read"]) == run.summary.bytes_read


def test_every_kind_of_lane_has_a_colour_and_a_name_in_the_legend():
    templates = Path(report.__file__).parent / "templates"
    script = (templates / "viewer.js").read_text("utf-8")
    listed = re.search(r"const KINDS = \[\[(.*?)\]\];", script, re.DOTALL)
    named = set(re.findall(r'"([a-z]+)", "', listed[1]))
    assert named == set(SPAN_LANES)
    assert set(PALETTE["kinds"]) == set(SPAN_LANES)
