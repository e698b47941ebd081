from __future__ import annotations

import json

import numpy as np
import pytest

from vanidl.errors import InputError
from vanidl.readers.steps.journal import Journal, keep_sound_events
from vanidl.readers.steps.lines import build_sampled_parts, read_sources

FUNCTION = {
    "file": "data.py", "name": "load", "first": 1, "own": True, "calls": 1, "parent": -1,
    "parent_line": 0, "costs": [[2, 1, 600, 100, 0], [3, 1, 400, 300, 0]],
}  # fmt: skip
TABLE = {"lines": "fetch", "samples": 4, "wall_ns": 1000, "cpu_ns": 400, "functions": [FUNCTION]}


def journal(*tables):
    events, _ = keep_sound_events(np.empty((0, 4), np.int64))
    return Journal("path", {}, {}, events, (), lines=tables)


def read(*tables, sources=None):
    return build_sampled_parts([journal(*tables)], sources or {})


def test_the_last_table_of_a_part_counts():
    (part,) = read(TABLE | {"samples": 1}, TABLE)
    assert (part.name, part.samples, part.wall_ns, part.cpu_ns) == ("fetch", 4, 1000, 400)
    assert [(line.number, line.wall_ns, line.cpu_ns) for line in part.functions[0].lines] == [
        (2, 600, 100),
        (3, 400, 300),
    ]


def test_processes_add_up():
    (part,) = build_sampled_parts(
        [journal(TABLE), journal(TABLE), journal()], {("data.py", 3): " x = 1"}
    )
    assert (part.samples, part.wall_ns) == (8, 2000)
    assert [line.wall_ns for line in part.functions[0].lines] == [1200, 800]
    assert [line.text for line in part.functions[0].lines] == ["", "x = 1"]


def test_what_tracing_added_is_taken_from_lines_by_their_calls():
    """Others took 50 ns of the processor each, these 100: 200 ns of 4 samples are of 10 calls."""
    costs = [[2, 1, 600, 250, 8], [3, 1, 400, 150, 2]]
    table = TABLE | {"functions": [FUNCTION | {"costs": costs}], "others": 3, "others_cpu_ns": 150}
    (part,) = read(table)
    assert (part.wall_ns, part.cpu_ns) == (800, 200)
    lines = [(line.wall_ns, line.cpu_ns) for line in part.functions[0].lines]
    assert lines == [(600 - 160, 250 - 160), (400 - 40, 150 - 40)]
    few = read(table | {"others": 2, "others_cpu_ns": 100})[0]
    assert (few.wall_ns, few.cpu_ns) == (1000, 400)
    faster = read(table | {"others_cpu_ns": 3000})[0]
    assert (faster.wall_ns, faster.cpu_ns) == (1000, 400)


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": 0}, {"samples": -1}, {"samples": "4"}, {"wall_ns": 1 << 70}, {"cpu_ns": None},
        {"functions": {}}, {"lines": "elsewhere"},
    ],
)  # fmt: skip
def test_tables_that_make_no_sense_are_left_out(wrong):
    assert read(TABLE | wrong) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"file": 1}, {"own": 1}, {"first": True}, {"parent": None}, {"costs": [[1, 2, 3, 4]]},
        {"costs": [[1, 2, 3, 4, -5]]}, {"costs": [1]}, {"costs": 5},
    ],
)  # fmt: skip
def test_functions_that_make_no_sense_are_left_out(wrong):
    (part,) = read(TABLE | {"functions": [FUNCTION | wrong, FUNCTION]})
    assert len(part.functions) == 1


@pytest.mark.parametrize(("parent", "found"), [(0, ("data.py", "load", 1)), (7, None), (-1, None)])
def test_parents_are_known_by_what_they_are(parent, found):
    inner = FUNCTION | {"name": "decode", "parent": parent, "parent_line": 2}
    (part,) = read(TABLE | {"functions": [FUNCTION, inner]})
    decode = next(function for function in part.functions if function.name == "decode")
    assert decode.parent == found


def test_sources_come_as_they_were_kept(tmp_path):
    path = tmp_path / "program.source-lines"
    path.write_text(json.dumps([["data.py", 2, "x = 1"], ["data.py", "2", "y"], 3, ["a"]]))
    assert read_sources(path) == {("data.py", 2): "x = 1"}
    path.write_text("[")
    with pytest.raises(InputError, match="source"):
        read_sources(path)
    path.unlink()
    with pytest.raises(InputError, match="missing"):
        read_sources(path)
