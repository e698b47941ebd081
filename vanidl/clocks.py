"""One axis of time: how well the sources' clocks are known.

Darshan 3.41 logs and today's profiler traces both carry absolute times. Measured against
file names that hold the time they were made: Darshan's start is 0.1 to 0.2 ms late without
MPI, 0.3 to 8 ms under MPI, where it is taken after a communicator was duplicated; older logs
give whole seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.sources.pieces import ProfileTrace, TracerLog
from vanidl.trace import Notice

_WITHOUT_MPI_NS = 1_000_000
_UNDER_MPI_NS = 10_000_000
_GRACE_NS = 1_000_000_000


def uncertainty_ns(log: TracerLog) -> int:
    """Half-width of what is known of a log's start."""
    if log.tracer == "dftracer":  # stamps each event with the system's clock
        return log.start_resolution_ns
    exact = _UNDER_MPI_NS if log.nprocs > 1 else _WITHOUT_MPI_NS
    return max(log.start_resolution_ns, exact) if log.start_resolution_ns > 1 else exact


def check(profile: ProfileTrace, logs: Sequence[TracerLog], offset_ns: int) -> Notice | None:
    """A warning where a profile lies outside the time that the logs cover."""
    if not logs or len(profile.start_ns) == 0:
        return None
    start, end = min(log.start_ns for log in logs), max(log.end_ns for log in logs)
    first, last = int(profile.start_ns.min()) + offset_ns, int(profile.end_ns.max()) + offset_ns
    if first >= start - _GRACE_NS and last <= end + _GRACE_NS:
        return None
    return Notice(
        "clock_unverified",
        f"{profile.path}: its spans run from {(first - start) / 1e9:.3f} to "
        f"{(last - start) / 1e9:.3f} s after the first log's start, the logs end at "
        f"{(end - start) / 1e9:.3f} s. The clocks do not agree or these are different runs: no "
        "overlap is claimed. If you know the difference, give --clock-offset SECONDS.",
    )
