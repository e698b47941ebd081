"""How far the start that a tracer's log states may be off.

Measured against file names that hold the time they were made (Darshan 3.4.7): the start is
0.1 to 0.2 ms late without MPI, 0.3 to 8 ms under MPI, where it is taken after a communicator
was duplicated. Older logs give whole seconds, rounded down.
"""

from __future__ import annotations

from vanidl.readers.records import TracerLog

_WITHOUT_MPI_NS = 1_000_000
_UNDER_MPI_NS = 10_000_000


def uncertainty_ns(log: TracerLog) -> int:
    """How far a log's start may be off, in ns."""
    return max(log.start_resolution_ns, exact_ns(log))


def exact_ns(log: TracerLog) -> int:
    """The same of a start that was not rounded, in ns."""
    if log.tracer == "dftracer":  # stamps each event with the system's clock
        return log.start_resolution_ns
    return _UNDER_MPI_NS if log.nprocs > 1 else _WITHOUT_MPI_NS
