"""Parts of steps: what the model did tells what lies before, between and behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.makers.records import JOB_START_NS, Span, darshan_log, profile
from tests.makers.results import EXAMPLES
from tests.makers.step_journals import MS, START, journal_of
from vanidl.breakdown import assumptions
from vanidl.breakdown.windows import (
    NO_PART,
    PART_NAMES,
    TRAINING,
    UNOBSERVED,
    Tiles,
    measure_hosts_apart,
    tile_rank,
)
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import Options, assemble
from vanidl.model.selection import select
from vanidl.model.trace import SpanKind
from vanidl.run import open_run


def parts(folder: Path, text: str) -> list[tuple[int, int, str]]:
    """The parts of steps in ms, those that touch and are alike as one."""
    journal_of(folder, text)
    run = open_run(folder)
    tiles = tile_rank(select(run.trace, run.selection), 0)
    assert tiles is not None
    assert (tiles.start[1:] == tiles.end[:-1]).all()
    found: list[tuple[int, int, str]] = []
    for start, end, part, step in zip(
        tiles.start.tolist(), tiles.end.tolist(), tiles.part.tolist(), tiles.step.tolist(),
        strict=True,
    ):  # fmt: skip
        begin, stop, name = (start - START) // MS, (end - START) // MS, PART_NAMES[part]
        if step < 0:
            assert part == NO_PART or tiles.phase[tiles.start == start] == TRAINING
        elif found and found[-1][1:] == (begin, name):
            found[-1] = (found[-1][0], stop, name)
        else:
            found.append((begin, stop, name))
    return found


LAST = " w0:90-91 F0:91-92 b0:92-93 o:93-94 w0:94-95"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "w0:0-2 F0:5-10 b0:10-20 o:23-30",
            [
                (0, 2, "input_wait"),
                (2, 5, "prepare"),
                (5, 10, "forward"),
                (10, 20, "backward"),
                (20, 30, "optimizer"),
                (30, 90, "rest"),
            ],
        ),
        # two batches, their gradients added up
        (
            "w0:0-2 F0:2-5 b0:5-10 w0:15-17 F0:20-25 b0:25-30 o:30-40",
            [
                (0, 2, "input_wait"),
                (2, 5, "forward"),
                (5, 10, "backward"),
                (10, 15, "rest"),
                (15, 17, "input_wait"),
                (17, 20, "prepare"),
                (20, 25, "forward"),
                (25, 30, "backward"),
                (30, 40, "optimizer"),
                (40, 90, "rest"),
            ],
        ),
        # two models with an optimizer each
        (
            "w0:0-2 F0:2-5 b0:5-8 o:8-10 F0:12-15 b0:15-18 o:19-20",
            [
                (0, 2, "input_wait"),
                (2, 5, "forward"),
                (5, 8, "backward"),
                (8, 10, "optimizer"),
                (10, 12, "prepare"),
                (12, 15, "forward"),
                (15, 18, "backward"),
                (18, 20, "optimizer"),
                (20, 90, "rest"),
            ],
        ),
        # a closure that the optimizer calls
        (
            "w0:0-2 F0:12-15 b0:15-18 F0:20-21 b0:21-22 o:10-30",
            [
                (0, 2, "input_wait"),
                (2, 10, "prepare+forward+backward"),
                (10, 12, "optimizer"),
                (12, 15, "forward"),
                (15, 18, "backward"),
                (18, 20, "optimizer"),
                (20, 21, "forward"),
                (21, 22, "backward"),
                (22, 30, "optimizer"),
                (30, 90, "rest"),
            ],
        ),
        # no module was called that is known; and one that was called for the batch before
        (
            "w0:0-2 b0:10-20 o:20-30",
            [
                (0, 2, "input_wait"),
                (2, 10, "prepare+forward"),
                (10, 20, "backward"),
                (20, 30, "optimizer"),
                (30, 90, "rest"),
            ],
        ),
        # one with a wait in it was called for another batch
        (
            "w0:0-2 F0:3-8 w1:5-6 b0:10-20 o:20-30",
            [
                (0, 2, "input_wait"),
                (2, 5, "prepare"),
                (5, 6, "input_wait"),
                (6, 10, "prepare+forward"),
                (10, 20, "backward"),
                (20, 30, "optimizer"),
                (30, 90, "rest"),
            ],
        ),
        # a save within the rest is cut out of it
        (
            "w0:0-2 F0:2-10 b0:10-20 o:20-30 C1:40-50",
            [
                (0, 2, "input_wait"),
                (2, 10, "forward"),
                (10, 20, "backward"),
                (20, 30, "optimizer"),
                (30, 40, "rest"),
                (50, 90, "rest"),
            ],
        ),
        # two loaders side by side
        (
            "w0:0-2 w1:3-5 F0:7-10 b0:10-20 o:20-30",
            [
                (0, 2, "input_wait"),
                (2, 3, "prepare"),
                (3, 5, "input_wait"),
                (5, 7, "prepare"),
                (7, 10, "forward"),
                (10, 20, "backward"),
                (20, 30, "optimizer"),
                (30, 90, "rest"),
            ],
        ),
    ],
)
def test_parts_of_a_step(tmp_path: Path, text: str, expected: list) -> None:
    found = parts(tmp_path, text + LAST)
    assert [part for part in found if part[1] <= 90] == expected


def test_without_backward_passes_the_step_is_one(tmp_path: Path) -> None:
    found = parts(tmp_path, "w0:0-2 o:20-30 w0:90-91 o:95-98 w0:99-100")
    whole = "prepare+forward+backward+optimizer+rest"
    assert found[:2] == [(0, 2, "input_wait"), (2, 90, whole)]


def test_stopping_workers_at_the_end_of_an_epoch_is_of_workers(tmp_path: Path) -> None:
    text = "i0:0-8 u5:1-7 w0:8-10 o:12-15 w0:20-22 o:25-28 e0:30-50 d5:32-48 w1:60-61"
    journal_of(tmp_path, text)
    account = open_run(tmp_path).breakdown
    spent = account.cell("mean/run/workers")
    assert spent.low_ns == 16 * MS
    assert account.length_ns("epoch_end") == 20 * MS


def tiles_of(
    *steps: tuple[int, int, int],
    assume: frozenset[str] = assumptions.ALL,
    marks_loop: bool = False,
    run_ms: int = 10_000,
) -> Tiles:
    """Of profiled steps (number, start, end) in ms; waits are marked as the loop is."""
    spans = [Span(SpanKind.STEP, a * MS, b * MS, number) for number, a, b in steps]
    log = darshan_log([], length_ns=run_ms * MS)
    made = assemble(Group((log,), (profile(spans, base_ns=JOB_START_NS),)), {}, (), Options())
    marks = {"marks_loop": marks_loop, "has_wait_spans": marks_loop}
    job = replace(made.job, end_ns=JOB_START_NS + run_ms * MS)
    made = replace(made, job=job, profiles=tuple(replace(p, **marks) for p in made.profiles))
    tiles = tile_rank(made, 0, assume=assume)
    assert tiles is not None
    return tiles


def gap_of(*steps: tuple[int, int, int], **how: Any) -> tuple[int, int]:
    """Phase of what lies between the last two of these, and the step that it belongs to."""
    tiles = tiles_of(*steps, **how)
    at = int(np.searchsorted(tiles.start, JOB_START_NS + steps[-2][2] * MS))
    return int(tiles.phase[at]), int(tiles.step[at])


@pytest.mark.parametrize("assume", [assumptions.ALL, frozenset()])
@pytest.mark.parametrize(
    ("number", "gap_ms", "belongs"),
    [(2, 10, True), (2, 59, True), (2, 60, False), (3, 10, False), (4, 10, False)],
)
def test_a_short_gap_is_of_the_next_step_where_no_step_is_missing(
    number: int, gap_ms: int, belongs: bool, assume: frozenset[str]
) -> None:
    steps = [(0, 0, 60), (1, 60, 120), (number, 120 + gap_ms, 180 + gap_ms)]
    phase, step = gap_of(*steps, assume=assume)
    if belongs and assume:
        assert step == 2
    else:
        assert (phase, step) == (UNOBSERVED, -1)


@pytest.mark.parametrize(("number", "phase"), [(2, None), (3, UNOBSERVED), (4, UNOBSERVED)])
def test_between_two_steps_of_a_marked_loop_nothing_is_known_where_one_is_missing(
    number: int, phase: int | None
) -> None:
    found, step = gap_of((0, 0, 60), (1, 60, 120), (number, 200, 260), marks_loop=True)
    assert (found, step) == (phase, -1) if phase is not None else step == 2


@pytest.mark.parametrize("end_ms", [999, 1000, 1001, 1200])
def test_tiles_fill_the_run_and_no_more(end_ms: int) -> None:
    tiles = tiles_of((0, 100, 160), (1, 160, end_ms), run_ms=1000)
    assert (tiles.start[0], tiles.end[-1]) == (JOB_START_NS, JOB_START_NS + 1000 * MS)
    assert (tiles.start[1:] == tiles.end[:-1]).all()


@pytest.mark.parametrize(
    ("second_ns", "host", "length_ns"),
    [
        ((10, 15), "b", 0),  # they meet in one moment
        ((11, 16), "b", 10),
        ((11, 26), "b", 15),
        ((11, 16), "a", 0),  # one host, a process after the other
        ((11, 16), "", 0),
    ],
)
def test_what_lies_between_hosts_that_never_meet_is_no_run_time(second_ns, host, length_ns):
    trace = EXAMPLES["counters_only"]().trace
    first = replace(trace.processes[0], host="a", start_ns=0, end_ns=10)
    start_ns, end_ns = second_ns
    second = replace(first, host=host, start_ns=start_ns, end_ns=end_ns)
    for processes in ((first, second), (second, first)):
        assert measure_hosts_apart(replace(trace, processes=processes)) == length_ns
