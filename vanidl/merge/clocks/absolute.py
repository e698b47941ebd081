"""Clocks that both count from the epoch: the offset is the error of the log's start.

Measured against file names that hold the time they were made (Darshan 3.4.7): the start is
0.1 to 0.2 ms late without MPI, 0.3 to 8 ms under MPI, where it is taken after a communicator
was duplicated. Older logs give whole seconds, rounded down.
"""

from __future__ import annotations

from vanidl.merge.clocks.context import Scene, interval
from vanidl.merge.clocks.evidence import Evidence
from vanidl.readers.records import TracerLog

METHOD = "absolute"

_WITHOUT_MPI_NS = 1_000_000
_UNDER_MPI_NS = 10_000_000


def uncertainty_ns(log: TracerLog) -> int:
    """How far a log's start may be off, in ns."""
    if log.tracer == "dftracer":  # stamps each event with the system's clock
        return log.start_resolution_ns
    return max(log.start_resolution_ns, _exact_ns(log))


def find(scene: Scene) -> Evidence | None:
    """The offsets that the error of the log's start leaves; None for a clock that is relative."""
    if not scene.absolute:
        return None
    log = max(_logs(scene), key=uncertainty_ns)
    coarse = log.start_resolution_ns
    method, own = scene.profile.clock_method, scene.profile.clock_uncertainty_ns
    if log.tracer == "dftracer" or coarse <= _exact_ns(log):
        half = uncertainty_ns(log)
        reason = f"both clocks count from the epoch, and the log's start is known to {_ms(half)}"
        return Evidence(method, interval(-half - own, half + own), reason + _rough(own), 0)
    exact = _exact_ns(log)
    reason = "both clocks count from the epoch, and the log gives its start in whole seconds"
    return Evidence(method, interval(-coarse - exact - own, exact + own), reason + _rough(own))


def _logs(scene: Scene) -> tuple[TracerLog, ...]:
    return (scene.own.log,) if scene.own else scene.logs


def _exact_ns(log: TracerLog) -> int:
    return _UNDER_MPI_NS if log.nprocs > 1 else _WITHOUT_MPI_NS


def _rough(ns: int) -> str:
    """What to add for a profile that does not give its own start."""
    return f", the profile's to {_ms(ns)}" if ns else ""


def _ms(ns: int) -> str:
    return f"+-{ns / 1e6:g} ms"
