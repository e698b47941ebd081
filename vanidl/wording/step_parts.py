"""What the parts of the mean step are called."""

from __future__ import annotations

from vanidl.analyses import step_parts as parts
from vanidl.analyses.step_parts import StepParts

_NAMES = {
    parts.IO_WAIT: "waiting for I/O",
    parts.OTHER_WAIT: "waiting, not for I/O",
    parts.INPUT_WAIT: "waiting for input",
    parts.COMMUNICATION: "waiting for other ranks",
    parts.COMPUTE: "computing",
    parts.REST: "other",
}
_EXPLAINED = {
    parts.IO_WAIT: "Input wait during which the rank was in reads, writes or metadata calls.",
    parts.OTHER_WAIT: "Input wait outside recorded reads and writes, less the likely metadata "
    "calls: decoding, augmenting, collating, workers that start or hand over.",
    parts.INPUT_WAIT: "Input wait; single I/O operations were not traced, so it is not divided.",
    parts.COMMUNICATION: "Collectives that no compute covers. A rank that waits for another "
    "rank's input waits here.",
    parts.COMPUTE: "Recorded compute outside input waits.",
    parts.REST: "Neither input wait nor recorded compute: the loop itself, logging, checkpoints.",
}
_ON_DEVICE = {
    parts.IO_WAIT: "Input wait in reads, writes or metadata calls while the device was idle.",
    parts.OTHER_WAIT: "Input wait outside recorded I/O while the device was idle: decoding, "
    "augmenting, collating, workers that start or hand over.",
    parts.INPUT_WAIT: "Input wait while the device was idle; single I/O operations were not "
    "traced, so it is not divided.",
    parts.COMPUTE: "Time in which the device was busy, input waits included.",
}
_IDLE = {
    parts.IO_WAIT: "idle, waiting for I/O",
    parts.OTHER_WAIT: "idle, waiting, not for I/O",
    parts.INPUT_WAIT: "idle, waiting for input",
}
"""Where a wait counts only while the device is idle: less than all of the wait."""
_UNKNOWN_REST = "computing or waiting"
_UNKNOWN_EXPLAINED = "Input waits were not recorded, so this time cannot be divided."
_LOSSY = "waiting, no I/O seen"
_LOSSY_EXPLAINED = "Input wait outside any recorded I/O. Not all I/O was recorded."


def part_name(code: str, whole: StepParts, *, lossy: bool, on_device: bool) -> str:
    """`waiting for I/O`. `lossy`: the trace lacks I/O. `on_device`: see part_meaning."""
    if code == parts.REST and not whole.waits_known:
        return _UNKNOWN_REST
    if code == parts.OTHER_WAIT and lossy:
        return _LOSSY
    return _IDLE.get(code, _NAMES[code]) if on_device else _NAMES[code]


def part_meaning(code: str, whole: StepParts, *, lossy: bool, on_device: bool) -> str:
    """What the part is. `on_device`: kernels were recorded, and waits count while none runs."""
    if code == parts.REST and not whole.waits_known:
        return _UNKNOWN_EXPLAINED
    if code == parts.OTHER_WAIT and lossy:
        return _LOSSY_EXPLAINED
    return _ON_DEVICE.get(code, _EXPLAINED[code]) if on_device else _EXPLAINED[code]
