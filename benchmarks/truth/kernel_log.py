"""The kernel's own log of what the threads of a program do: when each is in a call on a file.

Linux keeps it for root (tracefs, x86-64): entering and leaving of system calls, page faults, and
when a thread leaves a core and is back. It knows nothing of vanidl and its tracers, and no call
escapes it. `log_kernel` writes it down for everything that is started in its block.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vanidl.model import intervals
from vanidl.model.intervals import Intervals

TRACING = Path("/sys/kernel/tracing")
BUFFER_KIB = 65536  # for each core
# Calls on files but for those that write, from and to which number of
# arch/x86/entry/syscalls/syscall_64.tbl
CALLS = (
    (0, 0), (2, 6), (8, 8), (17, 17), (19, 19), (21, 21),  # read, open to lstat, lseek, pread
    (72, 95), (132, 132), (137, 138), (187, 199),  # fcntl to umask, utime, statfs, readahead, xattr
    (217, 217), (221, 221), (235, 235), (257, 269),  # getdents, fadvise, openat to faccessat
    (277, 277), (280, 280), (285, 285), (295, 295), (316, 316),  # sync_file_range to renameat2
    (327, 327), (332, 332), (437, 437), (439, 439),  # preadv2, statx, openat2, faccessat2
)  # fmt: skip
EVENTS = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit", "exceptions/page_fault_user",
          "sched/sched_switch", "sched/sched_wakeup", "sched/sched_process_fork")  # fmt: skip
LINE = re.compile(r"-(\d+)\s+\[\d+\] \S+\s+(\d+)\.(\d{6}): (\w+): (.*)")
SWITCH = re.compile(r"prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+)")
PID = re.compile(r"\bpid=(\d+) prio=")
FORK = re.compile(r"child_pid=(\d+)")


def can_log() -> bool:
    """Whether this kernel lets us: root, x86-64, and tracefs that can be mounted."""
    if os.geteuid() or platform.machine() != "x86_64" or not TRACING.is_dir():
        return False
    if not (TRACING / "instances").is_dir():
        command = ["mount", "-t", "tracefs", "nodev", str(TRACING)]
        subprocess.run(command, check=False, capture_output=True)
    try:  # an instance with a clock of its own, as it will be needed
        probe = TRACING / "instances" / f"vanidl-probe-{os.getpid()}"
        probe.mkdir()
        try:
            (probe / "trace_clock").write_text("mono\n")
        finally:
            probe.rmdir()
    except OSError:
        return False
    return True


@contextmanager
def log_kernel(log: Path) -> Iterator[None]:
    """The kernel's log of every process and thread that this thread starts in the block.

    Times are CLOCK_MONOTONIC. Raises SystemExit where the kernel lost events.
    """
    instance = TRACING / "instances" / f"vanidl-{os.getpid()}"
    instance.mkdir()
    try:
        settings = {"trace_clock": "mono", "buffer_size_kb": BUFFER_KIB, "options/event-fork": 1}
        settings |= {"options/overwrite": 0, "set_event_pid": os.getpid()}
        calls = " || ".join(f"(id >= {first} && id <= {last})" for first, last in CALLS)
        settings |= {f"events/{event}/filter": calls for event in EVENTS[:2]}
        settings |= {f"events/{event}/enable": 1 for event in EVENTS}
        for name, value in settings.items():
            (instance / name).write_text(f"{value}\n")
        yield
        (instance / "tracing_on").write_text("0\n")
        for stats in sorted(instance.glob("per_cpu/cpu*/stats")):
            lost = re.search(r"dropped events: (\d+)", stats.read_text())
            if lost and int(lost[1]):
                raise SystemExit(f"the kernel's log lost {lost[1]} events: raise BUFFER_KIB")
        with (instance / "trace").open("rb") as source, log.open("wb") as target:
            shutil.copyfileobj(source, target)
    finally:
        instance.rmdir()


@dataclass
class Thread:
    """Where a thread was in calls on files, and where it was at other work, in ns; what is open."""

    in_calls: list[tuple[int, int]] = field(default_factory=list)
    working: list[tuple[int, int]] = field(default_factory=list)  # on a core, or waiting for one
    entered_ns: int | None = None
    faulted_ns: int | None = None
    awake_ns: int | None = None
    has_blocked: bool = False  # in its last fault
    is_away: bool = False  # from the cores, for another reason than that it was preempted

    def wake(self, now: int) -> None:
        """It may run from now on."""
        if self.awake_ns is None:
            self.awake_ns = now

    def return_to_core(self, now: int) -> None:
        """It has a core again: a fault that blocked has lasted so far."""
        self.wake(now)
        self.is_away = False
        if self.faulted_ns is not None and self.has_blocked:
            self.in_calls.append((self.faulted_ns, now))
            self.faulted_ns, self.has_blocked = now, False  # it may block once more

    def leave_core(self, now: int, state: str) -> None:
        """It leaves its core, to wait for something unless it was merely preempted."""
        if state.startswith("R"):
            return
        self.is_away = True
        # Nothing says when a fault ended: who waits for a page is not to be disturbed, as in no
        # wait for a lock, a timer or a socket.
        self.has_blocked = self.faulted_ns is not None and state.startswith("D")
        if self.awake_ns is not None:
            self.working.append((self.awake_ns, now))
            self.awake_ns = None


def read_threads(log: Path, process: int) -> dict[int, Thread]:
    """The threads of a process by number, those that it started among them."""
    threads: dict[int, Thread] = defaultdict(Thread)
    own = {process}
    with log.open(errors="replace") as lines:
        for line in lines:
            match = LINE.search(line)
            if match is None:
                continue
            number, now = int(match[1]), int(match[2]) * 10**9 + int(match[3]) * 1000
            event, rest = match[4], match[5]
            if event == "sched_wakeup" and (woken := PID.search(rest)):
                threads[int(woken[1])].wake(now)
                continue
            if event == "sched_switch" and (switch := SWITCH.search(rest)):
                threads[int(switch[1])].leave_core(now, switch[2])
                threads[int(switch[3])].return_to_core(now)
                continue
            thread = threads[number]
            if thread.is_away:  # the kernel leaves out some of the switches to a filtered thread
                thread.return_to_core(now)
            if event == "sys_enter":
                thread.entered_ns, thread.faulted_ns = now, None
            elif event == "sys_exit" and thread.entered_ns is not None:
                thread.in_calls.append((thread.entered_ns, now))
                thread.entered_ns = None
            elif event == "page_fault_user":
                thread.faulted_ns, thread.has_blocked = now, False
            elif event == "sched_process_fork" and number in own and (child := FORK.search(rest)):
                own.add(int(child[1]))
    return {number: threads[number] for number in own}


def make_intervals(pairs: list[tuple[int, int]]) -> Intervals:
    """Pairs as disjoint intervals in order."""
    start, end = np.array(pairs, np.int64).reshape(-1, 2).T
    return intervals.union(start.copy(), end.copy())


def bound_storage(
    threads: dict[int, Thread], process: int, waits: np.ndarray, call_ns: float
) -> tuple[float, float]:
    """Seconds that waits of a process's first thread went to calls on files, at least and at most.

    What that thread itself spends in calls is storage. While it waits for others, they are what it
    waits for: certainly where none of them does anything else, possibly where one is in a call.
    `waits` are begin and end on CLOCK_MONOTONIC; `call_ns` is what a call takes at most beyond
    what the kernel sees of it.
    """
    own = make_intervals(threads[process].in_calls)
    own_work = intervals.subtract(make_intervals(threads[process].working), own)
    others = [thread for number, thread in threads.items() if number != process]
    theirs = make_intervals([pair for each in others for pair in each.in_calls])
    their_work = [
        intervals.subtract(make_intervals(each.working), make_intervals(each.in_calls))
        for each in others
    ]
    possible = intervals.subtract(theirs, own_work)
    certain = possible
    for work in their_work:
        certain = intervals.subtract(certain, work)
    begin, end = waits[:, 0].copy(), waits[:, 1].copy()
    least, most = (
        float(intervals.covered_within(intervals.merge(own, each), begin, end).sum()) / 1e9
        for each in (certain, possible)
    )
    starts = np.array([pair[0] for each in threads.values() for pair in each.in_calls], np.int64)
    starts.sort()
    calls = int((np.searchsorted(starts, end) - np.searchsorted(starts, begin)).sum())
    return least, most + calls * call_ns / 1e9
