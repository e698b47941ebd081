"""Clocks that both count from the epoch: the offset is the error of the log's start."""

from __future__ import annotations

from vanidl.formatting.units import border, seconds
from vanidl.merge.clocks.evidence import Evidence
from vanidl.merge.clocks.inputs import AlignmentInputs, interval
from vanidl.readers.records import TracerLog

METHOD = "absolute"


def find(inputs: AlignmentInputs) -> Evidence | None:
    """The offsets that the error of the log's start leaves; None for a clock that is relative."""
    if not inputs.absolute:
        return None
    log = max(_logs(inputs), key=lambda log: log.start_uncertainty_ns)
    coarse, exact = log.start_resolution_ns, log.start_error_ns
    method, own = inputs.profile.clock_method, inputs.profile.clock_uncertainty_ns
    if coarse <= exact:
        half = log.start_uncertainty_ns
        reason = f"both clocks count from the epoch, and the log's start is known to {_ms(half)}"
        late = -inputs.own.clock.low_ns if inputs.own and inputs.own.clock.late else half
        if late > half:
            reason += f", or late by up to {seconds(late / 1e9)} as that of a forked process"
        return Evidence(method, interval(-half - own, late + own), reason + _rough(own), 0)
    reason = "both clocks count from the epoch, and the log gives its start in whole seconds"
    return Evidence(method, interval(-coarse - exact - own, exact + own), reason + _rough(own))


def _logs(inputs: AlignmentInputs) -> tuple[TracerLog, ...]:
    return (inputs.own.log,) if inputs.own else inputs.logs


def _rough(ns: int) -> str:
    """What to add for a profile that does not give its own start."""
    return f", the profile's to {_ms(ns)}" if ns else ""


def _ms(ns: int) -> str:
    return f"± {border(ns / 1e9)}"
