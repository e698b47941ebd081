from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl.analyses.lines import finish
from vanidl.breakdown import step_bar
from vanidl.model.lines import FETCH, LOOP, FunctionLines, LineCost, SampledPart
from vanidl.sections.step_bar import find_line_of_part
from vanidl.wording.results import ENOUGH, list_costly_lines


def function(name, lines, parent=None, line=0, own=True):
    made = tuple(LineCost(k, 1, wall, cpu, f"{name}{k}()") for k, (wall, cpu) in lines.items())
    return FunctionLines(f"{name}.py", name, 1, own, parent, line, made)


def lines_of(*functions, wall=1000, cpu=400, name=FETCH, samples=ENOUGH):
    part = SampledPart(name, samples, wall, cpu, functions)
    return finish(SimpleNamespace(lines=(part,)))


def rows(part):
    return {(line.function, line.line): round(line.share, 6) for line in part.lines}


OUTER = function("outer", {1: (100, 100), 2: (900, 300)})


def test_what_a_sampled_function_takes_is_of_its_own_lines():
    inner = function("inner", {5: (600, 200), 6: (200, 50)}, OUTER.key, 2)
    found = lines_of(OUTER, inner).fetch
    assert rows(found) == {
        ("outer", 1): 0.1, ("outer", 2): 0.1, ("inner", 5): 0.6, ("inner", 6): 0.2,
    }  # fmt: skip
    assert sum(line.wall_s for line in found.lines) == pytest.approx(1e-6)


def test_what_a_library_takes_is_of_the_line_that_calls_it():
    library = function("library", {5: (800, 250)}, OUTER.key, 2, own=False)
    own = function("own", {9: (300, 10)}, library.key, 5)
    found = lines_of(OUTER, library, own).fetch
    assert rows(found) == {("outer", 1): 0.1, ("outer", 2): 0.6, ("own", 9): 0.3}


def test_libraries_are_shown_where_there_is_nothing_else():
    found = lines_of(function("library", {5: (800, 250)}, own=False)).fetch
    assert rows(found) == {("library", 5): 0.8}


def test_functions_that_call_each_other_do_not_end_it():
    one = function("one", {1: (10, 1)}, ("two.py", "two", 1), 1, own=False)
    two = function("two", {1: (10, 1)}, ("one.py", "one", 1), 1, own=False)
    own = function("own", {1: (500, 1)}, one.key, 1)
    assert rows(lines_of(one, two, own).fetch) == {("own", 1): 0.5}


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=8))
def test_each_time_counts_once(costs):
    lines = {k: (max(pair), min(pair)) for k, pair in enumerate(costs)}
    wall = sum(pair[0] for pair in lines.values())
    inner = function("inner", {1: (lines[0][0], 0)}, ("outer.py", "outer", 1), 0)
    found = lines_of(function("outer", lines), inner, wall=max(wall, 1), cpu=1)
    for line in found.fetch.lines if found and found.fetch else ():
        assert 0 <= line.cpu_s <= line.wall_s
        assert all(0 <= s <= 1 for s in (line.share, line.cpu_share, line.blocked_share))
    assert not found or not found.fetch or sum(x.share for x in found.fetch.lines) <= 1 + 1e-9


def test_nothing_sampled_is_none():
    assert finish(SimpleNamespace(lines=())) is None
    assert lines_of() is None


@pytest.mark.parametrize(
    ("samples", "share", "said"),
    [(ENOUGH, 0.1, 1), (ENOUGH, 0.099, 0), (ENOUGH - 1, 0.9, 0)],
)
def test_lines_that_matter_are_named(samples, share, said):
    found = lines_of(function("load", {7: (share * 1000, 0)}), samples=samples)
    text = list(list_costly_lines(found))
    assert len(text) == said
    if said:
        assert text == ["Of fetches, 10 % is load7() load.py:7 (blocked)."]
    assert not list(list_costly_lines(None))


def step(*shares):
    parts = tuple(step_bar.StepPart(code, share, share, "") for code, share in shares)
    return step_bar.StepParts(1.0, 10, 1, True, False, parts)


def test_parts_of_the_step_have_their_lines():
    """Of waits for storage what was blocked, of other work what was on the processor."""
    busy = function("busy", {1: (300, 300), 2: (700, 100)})
    loop = function("train", {4: (500, 0), 5: (400, 400)})
    found = finish(
        SimpleNamespace(
            lines=(
                SampledPart(FETCH, ENOUGH, 1000, 400, (busy,)),
                SampledPart(LOOP, ENOUGH, 1000, 400, (loop,)),
            )
        )
    )
    whole = step((step_bar.IO_WAIT, 0.4), (step_bar.OTHER_WAIT, 0.2), (step_bar.REST, 0.4))
    assert find_line_of_part(step_bar.IO_WAIT, whole, found) == "busy2() busy.py:2 40 %"
    assert find_line_of_part(step_bar.OTHER_WAIT, whole, found) == "busy1() busy.py:1 15 %"
    assert find_line_of_part(step_bar.REST, whole, found) == "train4() train.py:4 20 %"
    assert find_line_of_part(step_bar.REST, whole, None) == ""
    assert find_line_of_part(step_bar.COLLECTIVES, whole, found) == ""
    both = step((step_bar.COMPUTED, 0.5), (step_bar.REST, 0.1))
    assert find_line_of_part(step_bar.COMPUTED, both, found) == ""
    alone = step((step_bar.COMPUTED, 0.6))
    assert find_line_of_part(step_bar.COMPUTED, alone, found) == "train4() train.py:4 30 %"
