"""How far the start that a Darshan log gives may be off its zero of time."""

from __future__ import annotations

# How late Darshan takes its start, measured with 3.4.7 against file names that hold the time
# they were made: 0.1 to 0.2 ms; under MPI, where a communicator is duplicated before, 0.3 to 8.
_WITHOUT_MPI_NS = 1_000_000
_UNDER_MPI_NS = 10_000_000

# A forked process counts its times from the fork, then clears Darshan's memory, and takes the
# start after that. Where malloc gives it pages of its parent's heap, each is copied first:
# measured 1 to 72 ms on two shared cores with MODMEM 24, 125 to 260 ms on a loaded machine.
_FORKED_NS = 500_000_000


def either_way_ns(nprocs: int) -> int:
    """Bound in ns on the error of the start, earlier or later, of a log of so many processes."""
    return _UNDER_MPI_NS if nprocs > 1 else _WITHOUT_MPI_NS


def late_ns(*, forked: bool) -> int:
    """Bound in ns on how late the start of a log is, beside that, by the fork before it."""
    return _FORKED_NS if forked else 0
