from __future__ import annotations

import json

import pytest

from vanidl.errors import InputError
from vanidl.readers.memory_looks import gather, memory_of, read_memory

HEAD = {"schema": "vanidl-memory/1", "host": "node", "limit": 1000, "limit_of": "machine"}
FIRST = {"t": 10, "new": {"7": 1}, "p": {"7": [100, 40]}, "s": {"7": [90, 80, 5, 1]},
         "m": [3, 900], "c": [500, 400, 60, 2]}  # fmt: skip
SECOND = {"t": 20, "p": {"7": [120, 40], "8": [9, 9]}, "m": [4, 800]}


def lines(*rows):
    return [json.dumps(row).encode() if isinstance(row, dict) else row for row in rows]


def test_every_look_comes_back():
    host = memory_of(lines(HEAD, FIRST, SECOND), "x")
    assert (host.host, host.limit, host.limit_of) == ("node", 1000, "machine")
    seven, eight = host.processes
    assert (seven.pid, seven.parent_pid, seven.at_ns.tolist()) == (7, 1, [10, 20])
    assert (seven.resident.tolist(), seven.shared.tolist()) == ([100, 120], [40, 40])
    assert [column.tolist() for column in (seven.walked_ns, seven.proportional, seven.private,
            seven.shared_memory, seven.swapped)] == [[10], [90], [80], [5], [1]]  # fmt: skip
    assert (eight.parent_pid, len(eight.walked_ns)) == (-1, 0)
    assert host.dev_shm.tolist() == [3, 4]
    assert host.available.tolist() == [900, 800]
    assert (host.group.tolist(), host.group_files.tolist()) == ([500, -1], [60, -1])


@pytest.mark.parametrize(
    "wrong",
    [b"{", b"[1]", {"t": -1}, {"t": "now"}, {"t": 30, "p": {"7": [1]}},
     {"t": 30, "p": {"x": [1, 2]}}, {"t": 30, "p": {"7": [1, -2]}},
     {"t": 30, "p": 5, "s": [], "new": 3, "m": "?", "c": [1]},
     {"t": 30, "p": {"7": [1, 1 << 63]}}],
)  # fmt: skip
def test_lines_that_make_no_sense_change_no_process(wrong):
    host = memory_of(lines(HEAD, FIRST, wrong, SECOND), "x")
    assert [p.resident.tolist() for p in host.processes] == [[100, 120], [9]]


def test_something_else_is_refused(tmp_path):
    for content in (b"", b"{}\n", b'{"schema": "other"}\n'):
        path = tmp_path / "a.memory"
        path.write_bytes(content)
        with pytest.raises(InputError, match="expected memory"):
            read_memory(path)
    with pytest.raises(InputError, match="missing"):
        read_memory(tmp_path / "none.memory")


def test_what_lies_beside_records_is_found_and_what_cannot_be_read_is_said(tmp_path):
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "a-1.memory").write_bytes(b"\n".join(lines(HEAD, FIRST)))
    (folder / "b-1.memory").write_bytes(b"?")
    found, notices = gather([tmp_path / "run.json"])
    assert [host.host for host in found] == ["node"]
    assert [notice.severity for notice in notices] == ["info"]
    assert gather([tmp_path / "other" / "run.json"]) == ((), [])
