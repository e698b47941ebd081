"""What threads do, sampled from outside, against what the program says that it does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import vanidl
from vanidl.model import states
from vanidl.model.states import States
from vanidl.model.trace import SpanKind
from vanidl.readers.states.log import read_states
from vanidl.record import record
from vanidl.record import states as sampler

PROGRAM = r"""
import json, os, select, socket, subprocess, sys, threading, time

said = {}
def spend(name, act):
    begin = time.time_ns()
    act()
    said[name] = begin, time.time_ns()

lock = threading.Lock()
lock.acquire()
threading.Timer(0.3, lock.release).start()
spend("lock", lock.acquire)
spend("sleep", lambda: time.sleep(0.3))
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
threading.Timer(0.3, child.stdin.close).start()
spend("child", child.wait)
here, there = socket.socketpair()
threading.Timer(0.3, lambda: there.send(b"x")).start()
spend("socket", lambda: here.recv(1))
threading.Timer(0.3, lambda: there.send(b"x")).start()
spend("poll", lambda: select.select([here], [], [], 5))
read, write = os.pipe()
threading.Timer(0.3, lambda: os.write(write, b"x")).start()
spend("pipe", lambda: os.read(read, 1))
def run():
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        pass
spend("run", run)
begun = {}
def nap():
    begun[threading.get_native_id()] = time.time_ns()
    time.sleep(0.02)
def start_threads():
    for _ in range(15):
        thread = threading.Thread(target=nap)
        thread.start()
        thread.join()
spend("threads", start_threads)
# The other end of a named pipe opens late: a file call that sleeps.
print("open", flush=True)
spend("open", lambda: os.close(os.open(sys.argv[2], os.O_RDONLY)))
json.dump([os.getpid(), said, begun], open(sys.argv[1], "w"))
"""
KINDS = {
    "lock": states.LOCK, "sleep": states.SLEEP, "child": states.CHILD, "socket": states.NETWORK,
    "poll": states.NETWORK, "pipe": states.PIPE, "run": states.RUNNING, "open": states.METADATA,
}  # fmt: skip
EDGE_NS = 40_000_000
SAME_ROUND_NS = 1_500_000


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[States, int, dict[str, list[int]], dict[str, int]]:
    """What was sampled, the program's process id, when it did what, and when threads began."""
    if not sampler.LIBRARY.is_file():
        pytest.skip("the sampler is not compiled: make, or pip install --editable .")
    folder = tmp_path_factory.mktemp("states")
    script, out, fifo = folder / "program.py", folder / "said.json", folder / "fifo"
    script.write_text(PROGRAM)
    os.mkfifo(fifo)
    line = f"{sys.executable} {script} {out} {fifo} | (read said; sleep 0.4; exec 3>{fifo})"
    command = ["sh", "-c", line]
    done = record(command, folder / "RUN", tracer="none")
    assert done.exit_status == 0, done
    (path,) = (folder / "RUN" / sampler.FOLDER).glob("*.states")
    log = read_states(path)
    assert log.ended
    assert not log.losses
    if log.forbidden:
        pytest.skip("the system lets nobody look into other processes")
    return log.states, *json.loads(out.read_text())


@pytest.mark.parametrize("name", KINDS)
def test_samples_say_what_the_program_does(recorded, name: str) -> None:
    found, pid, said, _ = recorded
    main = next(t for t in found.of_process("", pid) if t.is_first)
    begin, end = said[name]
    samples = main.samples
    inside = (samples.time > begin + EDGE_NS) & (samples.time < end - EDGE_NS) & ~samples.late
    if name != "run":  # a busy machine holds a thread up on its way into a call: it could run
        inside &= samples.kind != states.RUNNING
    if inside.sum() < 5:
        pytest.skip("the machine was too busy to sample")
    kinds = samples.kind[inside]
    assert (kinds == KINDS[name]).mean() > 0.5, np.bincount(kinds)
    if name == "open":
        named = {main.paths[f] for f in samples.file[inside & (samples.kind == states.METADATA)]}
        assert [Path(path).name for path in named] == ["fifo"]


def test_every_thread_and_process_is_there_with_its_parent(recorded) -> None:
    found, pid, *_ = recorded
    mine = found.of_process("", pid)
    assert len(mine) >= 2  # timers are threads
    assert any(t.parent_pid == pid for t in found.threads)  # the child
    assert all(len(t.moved) for t in mine if t.is_first)
    for thread in found.threads:
        assert (np.diff(thread.samples.time) >= 0).all()


def test_no_thread_missed_more_rounds_of_samples_than_is_said(recorded) -> None:
    """Each took the place of one that had just ended: their number is always two."""
    found, pid, _, begun = recorded
    threads = found.of_process("", pid)
    rounds = next(t for t in threads if t.is_first).samples.time
    mine = [t for t in threads if str(t.tid) in begun and len(t.samples)]
    if len(mine) < 5:
        pytest.skip("the machine was too busy to sample")
    known = [t for t in mine if t.missed >= 0]
    assert len(known) > len(mine) / 2
    for thread in known:
        before = int(thread.samples.time[0]) - SAME_ROUND_NS
        missed = ((rounds > begun[str(thread.tid)]) & (rounds < before)).sum()
        assert missed <= thread.missed


def test_distances_are_random_between_half_a_period_and_one_and_a_half(recorded) -> None:
    found, pid, *_ = recorded
    main = next(t for t in found.of_process("", pid) if t.is_first)
    late = main.samples.late
    distance = np.diff(main.samples.time)[~late[1:] & ~late[:-1]] / 1000
    if len(distance) < 100:
        pytest.skip("the machine was too busy to sample")
    usual = distance[(distance > 0.4 * sampler.PERIOD_US) & (distance < 1.7 * sampler.PERIOD_US)]
    assert usual.std() > 0.15 * sampler.PERIOD_US  # 0.29 of the period, if even


def test_without_the_library_a_run_is_recorded_and_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sampler, "LIBRARY", tmp_path / "none.so")
    done = record([sys.executable, "-c", "pass"], tmp_path / "RUN", tracer="none")
    assert done.exit_status == 0
    assert any("not sampled" in loss for loss in done.run.losses)
    assert not (tmp_path / "RUN" / sampler.FOLDER).exists()


def test_what_is_recorded_without_steps_is_not_sampled(tmp_path) -> None:
    done = record([sys.executable, "-c", "pass"], tmp_path / "RUN", tracer="none", with_steps=False)
    assert done.exit_status == 0
    assert not (tmp_path / "RUN" / sampler.FOLDER).exists()


CONTROL = r"""
import subprocess, sys, threading, time
import vanidl
lock = threading.Lock()
def sleep():
    time.sleep(0.02)
def hold():
    lock.acquire()
    threading.Timer(0.02, lock.release).start()
    with lock:
        pass
for _ in range(30):
    child = subprocess.Popen(["sleep", "0.03"]) if sys.argv[1] == "child" else None
    with vanidl.wait("load"):
        open(sys.argv[2], "rb").read()  # cached
        {"sleep": sleep, "lock": hold}.get(sys.argv[1], child and child.wait)()
    with vanidl.step():
        time.sleep(0.001)
"""


@pytest.mark.parametrize("name", ["sleep", "lock", "child"])
def test_what_waits_are_blocked_on_is_named_and_is_no_storage(tmp_path, name: str) -> None:
    if not sampler.LIBRARY.is_file():
        pytest.skip("the sampler is not compiled: make, or pip install --editable .")
    script, cached = tmp_path / "control.py", tmp_path / "cached"
    script.write_text(CONTROL)
    cached.write_bytes(bytes(100_000))
    command = [sys.executable, str(script), name, str(cached)]
    done = record(command, tmp_path / "RUN", tracer="none")
    assert done.exit_status == 0
    run = vanidl.open_run(done.folder)
    kinds = kinds_in_waits(run)
    if len(kinds) < 10 or "states_forbidden" in {w.code for w in run.coverage.warnings}:
        pytest.skip("the machine was too busy to sample, or does not allow it")
    assert (kinds == KINDS[name]).mean() > 0.5, np.bincount(kinds)
    cells = {part: run.breakdown.cell(f"mean/input_wait/blocked.{part}") for part in PARTS}
    storage = run.breakdown.cell("mean/input_wait/storage")
    waited_ns = run.breakdown.length_ns("input_wait")
    assert all(cell.low_ns <= cells[name].low_ns for cell in cells.values())
    assert storage.low_ns == 0
    assert storage.high_ns + cells[name].low_ns <= waited_ns + 1
    assert "sampled states" in cells[name].evidence or not cells[name].high_ns


def kinds_in_waits(run: vanidl.Run) -> np.ndarray:
    """Samples of the main thread in its waits that were in time, while it did not run."""
    spans = run.trace.spans.pick(run.trace.spans.kind == SpanKind.INPUT_WAIT)
    pid = run.trace.processes[spans.process[0]].pid
    threads = run.trace.states.threads
    (samples,) = (t.samples for t in threads if t.is_first and t.pid == pid)
    at = np.searchsorted(spans.start, samples.time, side="right") - 1
    inside = (at >= 0) & (samples.time < spans.end[at]) & ~samples.late
    return samples.kind[inside & (samples.kind != states.RUNNING)]


PARTS = ("lock", "network", "sleep", "child", "other")
