"""Memory of recorded processes, looked at from outside, against what they see themselves."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.record.conftest import LOOKED_AT
from vanidl.readers.run_folder import MEMORY_FOLDER, read_memory
from vanidl.record import memory, record
from vanidl.record.memory import MemoryLooks, find_memory_limit
from vanidl.record.processes import Seen, read_start_ticks
from vanidl.watch.resources import LiveMemory

PROGRAM = """
import json, os, re, sys
taken = bytearray(100 << 20)
taken[::4096] = b"x" * len(taken[::4096])
looked_at()
looked_at()  # memory is looked at after the processes
content = open("/proc/self/smaps_rollup").read()
found = re.findall(r"^(Pss|Private_Dirty): +(\\d+) kB", content, re.M)
json.dump(dict(found), open(sys.argv[1], "w"))
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="no /proc/PID/smaps_rollup here"
)


@pytest.mark.usefixtures("looks")
def test_a_process_takes_what_it_sees_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "LOOK_S", 0.0)
    monkeypatch.setattr(memory, "_RARELY_S", 0.0)
    monkeypatch.setattr(memory, "SHARE", 1.0)
    command = [sys.executable, "-c", LOOKED_AT + PROGRAM, str(tmp_path / "own")]
    done = record(command, tmp_path / "RUN", tracer="none")
    assert done.exit_status == 0
    (path,) = (tmp_path / "RUN" / MEMORY_FOLDER).iterdir()
    host = read_memory(path)
    own = json.loads((tmp_path / "own").read_text())
    process = max(host.processes, key=lambda each: int(each.resident.max()))
    assert process.parent_pid == os.getpid()
    assert process.proportional.max() == pytest.approx(int(own["Pss"]) << 10, rel=0.05)
    assert process.private.max() >= 100 << 20
    assert (process.resident >= process.shared).all()
    assert host.limit > 0
    assert host.host == os.uname().nodename


def me():
    return Seen(os.getpid(), 1, read_start_ticks(os.getpid()), 0, 0)


class Clock:
    """A clock of seconds that is set by hand."""

    def __init__(self, monkeypatch):
        self.now_s = 1000.0
        monkeypatch.setattr(memory.time, "monotonic", lambda: self.now_s)


def test_lines_get_rarer_and_keep_the_largest(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    sizes = iter(range(10**9))
    looks = MemoryLooks(tmp_path)
    monkeypatch.setattr(looks, "_read_sizes", lambda _: [next(sizes), 0])
    monkeypatch.setattr(memory, "_walk_pages", lambda _: [1, 1, 0, 0])
    for _ in range(4000):
        looks.look([me()])
        clock.now_s += 1
    looks.close()
    (path,) = (tmp_path / MEMORY_FOLDER).iterdir()
    host = read_memory(path)
    (process,) = host.processes
    assert 600 < len(process.at_ns) < 2500
    assert process.resident[:500].tolist() == list(range(500))  # each second at first
    assert (np.diff(process.resident) >= 1).all()
    assert process.resident[-1] >= 3990


def test_pages_are_walked_when_somebody_is_new_and_else_rarely(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    walks = []
    monkeypatch.setattr(memory, "_walk_pages", lambda pid: walks.append(pid) or [1, 1, 0, 0])
    monkeypatch.setattr(memory.time, "thread_time", lambda: 0.06 * len(walks))
    looks = MemoryLooks(tmp_path)
    ran_out = 0.06 / memory.SHARE  # 20 s for one of them
    looks.look([me()])
    assert walks == [os.getpid()]
    clock.now_s += ran_out - 3
    looks.look([me()])
    assert len(walks) == 1
    other = Seen(1, 0, read_start_ticks(1), 0, 0)
    clock.now_s += 1.5  # not yet time, but it is new
    looks.look([me(), other])
    assert walks[1:] == [os.getpid(), 1]
    gone = Seen(2, 0, 0, 0, 0, gone=True)
    clock.now_s += 1
    looks.look([me(), other, gone])
    assert len(walks) == 3
    looks.close()


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path):
    (tmp_path / MEMORY_FOLDER).write_text("no folder")
    looks = MemoryLooks(tmp_path)
    looks.look([me()])
    looks.close()


def test_storage_that_fails_as_a_file_is_closed_ends_nothing(tmp_path):
    looks = MemoryLooks(tmp_path)
    looks.look([me()])
    os.close(looks._descriptor)  # closing it again is an error, as ESTALE is
    looks.close()


def test_stopped_it_looks_no_more(tmp_path):
    looks = MemoryLooks(tmp_path)
    looks.stop()
    looks.look([me()])
    assert not (tmp_path / MEMORY_FOLDER).exists()


def group(folder, **files):
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")
    return folder


def test_the_least_limit_counts_whichever_group_above_has_it(tmp_path):
    group(tmp_path / "job", memory__max=5000)
    inner = group(tmp_path / "job" / "step", memory__max="max")
    assert find_memory_limit([inner]) == (5000, "control group")
    machine = int(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())[1]) << 10
    free = group(tmp_path / "free", memory__limit_in_bytes=1 << 62)
    assert find_memory_limit([free]) == (machine, "machine")


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"memory__current": 9, "memory__stat": "anon 4\nfile 3\nshmem 1"}, [9, 4, 3, 1]),
        ({"memory__usage_in_bytes": 9, "memory__stat": "cache 3\nrss 4\nx 5"}, [9, 4, 3, -1]),
        ({"memory__stat": "anon 4"}, None),
        ({"memory__current": "?", "memory__stat": ""}, None),
    ],
)
def test_groups_of_both_versions(tmp_path, files, found):
    assert (
        memory._read_control_group([tmp_path / "none", group(tmp_path / "job", **files)]) == found
    )


GROWING = 64 << 20


def written(folder, slope, seconds=60, limit=10 << 30):
    (folder / MEMORY_FOLDER).mkdir()
    rows = [{"schema": "vanidl-memory/1", "host": "node", "limit": limit,
             "limit_of": "control group"}]  # fmt: skip
    begin = time.time_ns()
    rows += [
        {"t": begin + k * 10**9, "p": {"7": [(1 << 30) + k * slope, 0]}, "m": [-1, -1]}
        for k in range(seconds)
    ]
    path = folder / MEMORY_FOLDER / "node-1.memory"
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b'{"t": 1')
    return path


def test_a_run_that_goes_on_says_when_it_runs_out(tmp_path):
    live = LiveMemory(tmp_path)
    assert live.look(0.0) is None
    written(tmp_path, GROWING)
    assert live.look(4.9) is None
    state = live.look(5.0)
    assert state.nbytes == (1 << 30) + 59 * GROWING
    assert state.out_of_memory_s == pytest.approx(((9 << 30) - 59 * GROWING) / GROWING)


def test_a_run_that_does_not_grow_says_nothing_of_it(tmp_path):
    path = written(tmp_path, 0)
    live = LiveMemory(tmp_path)
    state = live.look(0.0)
    assert (state.limit_nbytes, state.out_of_memory_s) == (10 << 30, None)
    path.write_text("something else")
    assert LiveMemory(tmp_path).look(0.0) is None
