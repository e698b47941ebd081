"""What threads were seen doing, sampled from outside of their processes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

(RUNNING, READ, WRITE, METADATA, SYNC, FAULT, LOCK, NETWORK, SLEEP, CHILD, PIPE, DEVICE,
 OTHER) = range(13)  # fmt: skip
"""Kinds of a sample: the thread runs, or could; it sleeps in a read, a write, a metadata call or
a sync of a file, in a page fault, on a lock, a socket, a timer, a child process, a pipe, a device
(an accelerator's driver), or in something else."""

IN_FILES = (READ, WRITE, METADATA, SYNC, FAULT)

TICKS_PER_S = 100
"""Of the kernel's clock of CPU time: USER_HZ, the same on every Linux."""

SAMPLED = "sampled states"
"""The name of this evidence."""

RCHAR, WCHAR, SYSCR, SYSCW, READ_BYTES, WRITE_BYTES = range(6)
"""What the kernel counts of a process: bytes through calls that read and write, pipes and ttys
among them, these calls, and bytes that went to and came from devices."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of one thread by time; one entry a sample in every array.

    `late`: it was taken so much later than it was meant to that its time may not be a random one.
    `delay_us` is how long the thread has waited for a core until then, in 32 bits.
    """

    time: Int64Array  # ns since the epoch
    kind: NDArray[np.uint8]
    file: NDArray[np.int32]  # index into SampledThread.paths, -1 where none is known
    delay_us: NDArray[np.uint32]
    late: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True)
class SampledThread:
    """One thread: who it is, what it was seen doing, and what was counted of it until when.

    `missed` is in how many rounds of samples, at most, it was there before its first one; -1 where
    that was not recorded. `ticks` are rows of (time, ticks of CPU in user mode, the same in kernel
    mode), TICKS_PER_S of each; `moved`, of the first thread of a process, rows of (time, one of
    RCHAR to WRITE_BYTES, how many until then).
    """

    host: str
    pid: int
    tid: int
    parent_pid: int
    samples: Samples
    paths: tuple[str, ...]
    ticks: Int64Array  # (rows, 3)
    moved: Int64Array  # (rows, 3)
    missed: int = -1

    @property
    def is_first(self) -> bool:
        """Whether it is the thread that its process began with."""
        return self.tid == self.pid

    def queued_ns(self, begin: Int64Array, end: Int64Array) -> Int64Array:
        """How long it waited for a core within each of some times, by the kernel's count."""
        if not len(self.samples):
            return np.zeros(np.shape(begin), np.int64)
        queued_ns = self.spread_queue_ns()
        begun, done = (np.interp(at, self.samples.time, queued_ns) for at in (begin, end))
        return np.asarray(done - begun).astype(np.int64)

    def spread_queue_ns(self) -> NDArray[np.float64]:
        """At each sample how long it had waited for a core since the first one.

        The kernel counts a wait as it ends: what is more than passed since the sample before lies
        before that one.
        """
        counted_us = np.unwrap(self.samples.delay_us.astype(np.float64), period=2.0**32)
        counted_ns, passed_ns = 1e3 * np.diff(counted_us), np.diff(self.samples.time)
        # Backwards, as a queue is worked off: what does not fit is carried to the one before.
        over = np.cumsum((counted_ns - passed_ns)[::-1])
        carried = (over - np.minimum(np.minimum.accumulate(over), 0))[::-1] if len(over) else over
        own = counted_ns + np.append(carried[1:], 0)[: len(counted_ns)] - carried
        return np.concatenate([[0.0], np.cumsum(own)])

    def most_queued_ns(self, begin: Int64Array, end: Int64Array) -> Int64Array:
        """The same at most: all that was counted between the samples that a time lies between."""
        if not len(self.samples):
            return np.zeros(np.shape(begin), np.int64)
        times, last = self.samples.time, len(self.samples) - 1
        before = np.maximum(np.searchsorted(times, begin, side="right") - 1, 0)
        after = np.minimum(np.searchsorted(times, end), last)
        counted = self.queued_ns(times[before], times[after]).clip(0)
        most: Int64Array = np.minimum(counted, end - begin)
        return most


@dataclass(frozen=True, slots=True)
class States:
    """All threads that were sampled, by host, process and thread."""

    threads: tuple[SampledThread, ...] = ()

    def __len__(self) -> int:
        return len(self.threads)

    def of_process(self, host: str, pid: int) -> tuple[SampledThread, ...]:
        """The threads of one process; an unknown host is every host."""
        return tuple(
            each
            for each in self.threads
            if each.pid == pid and (not host or not each.host or _short(host) == _short(each.host))
        )


def _short(host: str) -> str:
    return host.split(".")[0]


NO_STATES = States()


def join_states(found: Sequence[States]) -> States:
    """Those of several recorders as one."""
    threads = [thread for each in found for thread in each.threads]
    return States(tuple(sorted(threads, key=lambda t: (t.host, t.pid, t.tid, _first_ns(t)))))


def _first_ns(thread: SampledThread) -> int:
    return int(thread.samples.time[0]) if len(thread.samples) else 0
