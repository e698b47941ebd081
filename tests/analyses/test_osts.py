"""Lustre's targets: stripes laid over operations, against a walk over every byte's stripe."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.records import Io, darshan_log
from vanidl.analyses.osts import OstTimeline
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.trace import READ
from vanidl.readers.records import CounterFile, StripeRecord
from vanidl.report.summary import summary_text
from vanidl.run import Run

MS = 10**6
END = 1 << 40


def trace_of(ios: list[Io], stripes: list[StripeRecord]):
    names = {1: "/lustre/a", 2: "/lustre/b", 3: "/home/c"}
    log = darshan_log(ios, names=names, length_ns=1000 * MS)
    return assemble(Group((log,), ()), {log.path: CounterFile((), stripes=tuple(stripes))})


def osts_of(ios: list[Io], stripes: list[StripeRecord]) -> OstTimeline | None:
    return analyse(trace_of(ios, stripes)).osts


def find_target(at: int, parts: list[StripeRecord]) -> int | None:
    """The target of one byte of a file: that of the first component that holds it."""
    for part in parts:
        if part.extent_start <= at < (END if part.extent_end is None else part.extent_end):
            if not part.stripe_count:
                return None
            return part.osts[at // part.stripe_nbytes % len(part.osts)]
    return -2


def walk(ios: list[Io], stripes: list[StripeRecord]) -> dict[int | None, list[int]]:
    """Target -> reads, writes, bytes read and written, ns of both."""
    sums: dict[int | None, list[int]] = defaultdict(lambda: [0] * 6)
    for io in ios:
        parts = [part for part in stripes if part.file == io.file]
        moved: dict[int | None, int] = defaultdict(int)
        for at in range(io.offset, io.offset + io.nbytes):
            target = find_target(at, parts)
            if target != -2:
                moved[target] += 1
        side = 0 if io.op == READ else 1
        for target, nbytes in moved.items():
            sums[target][side] += 1
            sums[target][2 + side] += nbytes
            sums[target][4 + side] += io.end - io.start
    return dict(sums)


layouts = st.one_of(
    st.builds(
        lambda size, osts: [StripeRecord(1, size, len(osts), tuple(osts))],
        st.integers(1, 40),
        st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
    ),
    st.builds(
        lambda dom, size, middle, osts: [
            StripeRecord(1, 64, 0, (), 0, dom),
            StripeRecord(1, size, 1, (osts[0],), dom, dom + middle),
            StripeRecord(1, 2 * size, len(osts), tuple(osts), dom + middle, None),
        ],
        st.integers(1, 60),
        st.integers(1, 40),
        st.integers(1, 80),
        st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True),
    ),
)
operations = st.lists(
    st.builds(
        lambda start, took, offset, nbytes, file, op: Io(
            start * MS, (start + took) * MS, offset=offset, nbytes=nbytes, file=file, op=op
        ),
        st.integers(0, 900),
        st.integers(0, 90),
        st.integers(0, 200),
        st.integers(0, 300),
        st.integers(1, 3),
        st.integers(0, 1),
    ),
    max_size=12,
)


@given(operations, layouts, layouts)
def test_targets_move_the_bytes_of_their_stripes(ios, first, second):
    second = [StripeRecord(2, *part_of(part)) for part in second]
    found = osts_of(ios, [*first, *second])
    expected = walk(ios, [*first, *second])
    rows = {} if found is None else {row.ost: row for row in found.rows}
    assert rows.keys() == expected.keys()
    for target, (reads, writes, read, written, read_ns, write_ns) in expected.items():
        row = rows[target]
        assert (row.reads, row.writes) == (reads, writes)
        assert (row.bytes_read, row.bytes_written) == (read, written)
        assert (row.read_s, row.write_s) == (read_ns / 1e9, write_ns / 1e9)
    if found is not None:
        by_target = [row.bytes_read + row.bytes_written for row in found.rows]
        assert found.bytes_moved.sum(axis=1).tolist() == by_target


def part_of(part: StripeRecord) -> tuple[int, int, tuple[int, ...], int, int | None]:
    return part.stripe_nbytes, part.stripe_count, part.osts, part.extent_start, part.extent_end


def test_a_mirror_is_looked_at_once():
    one = StripeRecord(1, 10, 1, (3,), 0, None)
    found = osts_of(
        [Io(0, MS, offset=0, nbytes=25, file=1, op=READ)], [one, StripeRecord(1, 10, 1, (5,))]
    )
    assert found is not None
    assert [(row.ost, row.bytes_read) for row in found.rows] == [(3, 25)]


@pytest.mark.parametrize("stripes", [[], [StripeRecord(1, 10, 4, ())]])
def test_targets_that_were_not_recorded_are_not_made_up(stripes):
    assert osts_of([Io(0, MS, offset=0, nbytes=25, file=1, op=READ)], stripes) is None


def test_bytes_lie_where_the_operations_were():
    ios = [
        Io(0, MS, offset=0, nbytes=8, file=1, op=READ),
        Io(900 * MS, 901 * MS, offset=10, nbytes=6, file=1, op=READ),
    ]
    found = osts_of(ios, [StripeRecord(1, 10, 2, (4, 7))])
    assert found is not None
    when = [np.flatnonzero(line) for line in found.bytes_moved]
    assert found.edges_s[when[0]].max() < 0.002
    assert found.edges_s[when[1]].min() > 0.89


def test_the_summary_names_the_targets():
    trace = trace_of(
        [Io(0, MS, offset=0, nbytes=25, file=1, op=READ)], [StripeRecord(1, 10, 2, (4, 7))]
    )
    text = summary_text(Run(trace, analyse(trace)))
    assert "Lustre targets (POSIX)" in text
    assert "OST 4" in text
