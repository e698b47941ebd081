"""What the parts of the mean step are called."""

from __future__ import annotations

from vanidl.breakdown import step_bar as bar
from vanidl.breakdown.step_bar import StepParts

_NAMES = {
    bar.IO_WAIT: "waiting for I/O",
    bar.OTHER_WAIT: "waiting, not for I/O",
    bar.INPUT_WAIT: "waiting for input",
    bar.DELIVERY_WAIT: "waiting for delivery",
    bar.WORKERS_WAIT: "waiting for workers to start",
    bar.DECODING_WAIT: "waiting for decoding",
    bar.BLOCKED_WAIT: "waiting for a lock, the network or a timer",
    bar.CORES_WAIT: "waiting for a free core",
    bar.PREPARE: "before the model",
    bar.FORWARD: "forward",
    bar.BACKWARD: "backward",
    bar.OPTIMIZER: "optimizer",
    bar.BEHIND: "behind the model",
    bar.COLLECTIVES: "communication, or waiting for other ranks",
    bar.COMPUTED: "computing",
    bar.OWN_IO: "I/O between waits",
    bar.COPYING: "copying to or from the device",
    bar.IDLE: "device idle",
    bar.REST: "other",
}
_EXPLAINED = {
    bar.IO_WAIT: "Of the input waits what the fetch of the late batch spent in storage.",
    bar.OTHER_WAIT: "Input wait that was no storage: decoding, augmenting, collating, locks or "
    "too few cores, which nothing recorded tells apart.",
    bar.INPUT_WAIT: "Input wait of which is not known how much was storage.",
    bar.DELIVERY_WAIT: "The batch was made, its worker idle: it was on its way to the training "
    "process.",
    bar.WORKERS_WAIT: "Workers were being started.",
    bar.DECODING_WAIT: "Of the input waits what the fetch of the late batch computed: decoding, "
    "augmenting, collating.",
    bar.BLOCKED_WAIT: "The fetch of the late batch was blocked: on a lock, a socket, a timer or a "
    "child process.",
    bar.CORES_WAIT: "The fetch of the late batch could have run, and no core was free.",
    bar.PREPARE: "The batch is in hand and the model not yet called: what the loop does to it.",
    bar.FORWARD: "The forward pass, and the loss.",
    bar.BACKWARD: "The backward pass.",
    bar.OPTIMIZER: "The step of the optimizer.",
    bar.BEHIND: "What the loop does after the optimizer: metrics, logging.",
    bar.COLLECTIVES: "Collectives that no compute covers. A rank that waits for another rank's "
    "input waits here.",
    bar.COMPUTED: "Recorded compute.",
    bar.OWN_IO: "Reads, writes and metadata calls of the training thread outside input waits.",
    bar.COPYING: "Copies of the device that run under no kernel.",
    bar.IDLE: "Outside input waits no device work was recorded.",
    bar.REST: "Neither input wait nor recorded compute: computing that no profile recorded, the "
    "loop itself, logging.",
}
_UNKNOWN_REST = "computing or waiting"
_UNKNOWN_EXPLAINED = "Input waits were not recorded, so this time cannot be divided."
_IDLE_EXPLAINED = (
    "No work of the device was recorded: it waited for the host, for input or for storage, which "
    "cannot be told apart, as input waits were not recorded."
)
_HOST_BOUND_EXPLAINED = (
    "Outside input waits no work of the device was recorded: it waited for the host, which "
    "prepared or launched work, or was in storage."
)
_UNPROFILED_REST = "computing, or other work"
_UNPROFILED_EXPLAINED = (
    "Between input waits; compute was not recorded by a profiler, so it cannot be told from other "
    "work of the loop."
)
_LOSSY = "waiting, no I/O seen"
_LOSSY_EXPLAINED = "Input wait outside any recorded I/O. Not all I/O was recorded."


def part_name(code: str, whole: StepParts, *, lossy: bool) -> str:
    """`waiting for I/O`. `lossy`: the trace lacks I/O."""
    return _words(code, whole, lossy)[0]


def part_meaning(code: str, whole: StepParts, *, lossy: bool) -> str:
    """What the part is."""
    return _words(code, whole, lossy)[1]


def _words(code: str, whole: StepParts, lossy: bool) -> tuple[str, str]:
    codes = {part.code for part in whole.parts}
    if code == bar.REST and whole.device_known:
        explained = _HOST_BOUND_EXPLAINED if whole.waits_known else _IDLE_EXPLAINED
        return _NAMES[bar.IDLE], explained
    if code == bar.REST and not whole.waits_known:
        return _UNKNOWN_REST, _UNKNOWN_EXPLAINED
    if code == bar.REST and not codes & {bar.COMPUTED, bar.FORWARD, bar.BACKWARD, bar.IDLE}:
        return _UNPROFILED_REST, _UNPROFILED_EXPLAINED
    if code == bar.OTHER_WAIT and lossy:
        return _LOSSY, _LOSSY_EXPLAINED
    return _NAMES[code], _EXPLAINED[code]
