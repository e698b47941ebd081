"""The mean step as one bar: the cells of the account that divide it, and what stays open."""

from __future__ import annotations

from vanidl.breakdown.account import MEAN, STEP, STEP_PART, STEP_WAIT, WAIT, Breakdown
from vanidl.breakdown.causes import (
    BLOCKED,
    COMMUNICATION,
    COMPUTE,
    COPY,
    DELIVERY,
    DEVICE_IDLE,
    INPUT_CPU,
    STORAGE,
    TOO_FEW_CORES,
    WAITING_FOR_PEERS,
    WORKERS,
    Cell,
)
from vanidl.breakdown.windows import INPUT_WAIT as WAIT_PART
from vanidl.breakdown.windows import PART_NAMES
from vanidl.schema.dataclass import dataclass

IO_WAIT, OTHER_WAIT, INPUT_WAIT = "io_wait", "other_wait", "input_wait"
DELIVERY_WAIT, WORKERS_WAIT = "delivery_wait", "workers_wait"
DECODING_WAIT, BLOCKED_WAIT, CORES_WAIT = "decoding_wait", "blocked_wait", "cores_wait"
PREPARE, FORWARD, BACKWARD, OPTIMIZER, BEHIND = (
    "prepare",
    "forward",
    "backward",
    "optimizer",
    "behind",
)
COMPUTED, COLLECTIVES, OWN_IO = "compute", "communication", "own_io"
PEERS = "waiting_for_peers"
COPYING, IDLE, REST = "copy", "device_idle", "rest"
"""Waits: of storage, of a loader's other work, of which it is not known, for delivery, for workers
to start, for decoding, in locks and the like, for free cores. Between waits, where the loop's
parts were marked: before the model, its three parts, behind it. Else compute. Collectives that
nothing covers, of paired ranks without what they waited for others, and that; calls of storage
of the training thread, copies of the device under no kernel, a device without work, and what is
left: other work, or not recorded."""

WAITS = (
    IO_WAIT,
    OTHER_WAIT,
    INPUT_WAIT,
    DELIVERY_WAIT,
    WORKERS_WAIT,
    DECODING_WAIT,
    BLOCKED_WAIT,
    CORES_WAIT,
)
_OF_WAITS = (
    (IO_WAIT, STORAGE),
    (DECODING_WAIT, INPUT_CPU),
    (BLOCKED_WAIT, BLOCKED),
    (CORES_WAIT, TOO_FEW_CORES),
    (WORKERS_WAIT, WORKERS),
    (DELIVERY_WAIT, DELIVERY),
)
_OF_MODEL = ((FORWARD, "forward"), (BACKWARD, "backward"), (OPTIMIZER, "optimizer"))
_BESIDE_MODEL = ((PREPARE, "prepare"), (BEHIND, "rest"))

_WIDE = 0.5  # of the waits, or of idle: with more of it open, what it consists of is not known
_ROUNDED_NS = 2  # cells are in whole ns
_SMALL = 0.002  # of the step: shorter parts are of the rest


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of the mean step: seconds, share of it, and the key of the cell whose least it is.

    `key` is empty of what is left beside cells.
    """

    code: str
    seconds: float
    share: float
    key: str


@dataclass(frozen=True, slots=True)
class StepParts:
    """The mean step: `parts` add up to `mean_s`.

    `waits_known`: input waits were recorded; `device_known`: so was the work of devices.
    """

    mean_s: float
    steps: int  # of each rank, at least
    ranks: int
    waits_known: bool
    device_known: bool
    parts: tuple[StepPart, ...]


def divide_step(account: Breakdown) -> StepParts | None:
    """The parts of the mean step, each with what is at least its own; None without steps."""
    mean_ns = account.length_ns(STEP)
    if not mean_ns:
        return None
    steps = account.steps[account.observed]
    # How much of the mean step is input wait.
    of_waits = account.cell(f"{MEAN}/step_part/{PART_NAMES[WAIT_PART]}")
    waits_known = of_waits.is_exact or of_waits.high_ns - of_waits.low_ns <= 1
    per_step = account.length_ns(WAIT) / max(float(steps.mean()), 1.0)
    share_of_wait = min(per_step, mean_ns) / account.length_ns(WAIT) if per_step else 0.0

    def waited(cause: str) -> Cell:
        return account.cell(f"{MEAN}/{WAIT}/{cause}")

    def spent(cause: str) -> Cell:
        return account.cell(f"{MEAN}/{STEP}/{cause}")

    # The wait by cause, with what is open as a part of its own.
    found: list[tuple[str, float, str]] = []
    wait_ns = min(per_step, mean_ns) if waits_known else 0.0
    if wait_ns:
        in_storage = waited(STORAGE)
        open_ns = wait_ns
        for code, cause in _OF_WAITS:
            part_ns = min(waited(cause).low_ns * share_of_wait, open_ns)
            open_ns -= part_ns
            found.append((code, part_ns, f"{MEAN}/{STEP_WAIT}/{cause}"))
        busy_ns = min((waited(COMPUTE).low_ns + waited(COPY).low_ns) * share_of_wait, open_ns)
        open_ns -= busy_ns
        width_ns = (in_storage.high_ns - in_storage.low_ns) * share_of_wait
        code = INPUT_WAIT if width_ns > _WIDE * (wait_ns - busy_ns) else OTHER_WAIT
        found.append((code, open_ns, f"{MEAN}/step_part/{PART_NAMES[WAIT_PART]}"))
    found += _list_parts_outside_waits(account, waited(STORAGE).low_ns * share_of_wait)
    # Beside it the rest of the step: parts never add up to more than the step.
    left_ns = mean_ns
    for i, (code, part_ns, key) in enumerate(found):
        part_ns = min(max(part_ns, 0.0), left_ns)
        left_ns -= part_ns
        found[i] = code, part_ns, key
    found = [(code, part_ns, key) for code, part_ns, key in found if part_ns > _SMALL * mean_ns]
    rest_ns = mean_ns - sum(part_ns for _, part_ns, _ in found)
    if rest_ns > _ROUNDED_NS * len(found):
        found.append((REST, rest_ns, f"{MEAN}/{STEP}/"))
    # A part links to its cell only where it shows just that.
    parts = tuple(
        StepPart(code, ns / 1e9, ns / mean_ns, key if is_least_of_cell(account, key, ns) else "")
        for code, ns, key in found
    )
    computed, idle = spent(COMPUTE), spent(DEVICE_IDLE)
    device_known = computed.high_ns - computed.low_ns < _WIDE * idle.high_ns
    return StepParts(mean_ns / 1e9, int(steps.min()), len(steps), waits_known, device_known, parts)


def is_least_of_cell(account: Breakdown, key: str, shown_ns: float) -> bool:
    """Whether what is shown is the least of a cell, and not what is left of others."""
    return abs(account.cell(key).low_ns - shown_ns) <= _ROUNDED_NS


def _list_parts_outside_waits(account: Breakdown, waited_ns: float) -> list[tuple[str, float, str]]:
    """The parts outside of input waits, with the keys of their cells; ns of the mean step.

    Args:
        account: of a run with steps.
        waited_ns: how much of the storage of the mean step is in its waits.
    """

    def spent(name: str, window: str = STEP) -> Cell:
        return account.cell(f"{MEAN}/{window}/{name}")

    collectives = spent(COMMUNICATION), spent(WAITING_FOR_PEERS)
    # Where nobody knows how they share, all that was recorded is communication at most; where it is
    # known, both add up. Waiting for others may be anything that was not recorded: it says nothing.
    peers_ns = float(collectives[1].low_ns)
    collective_ns = max(collectives[0].high_ns, sum(c.low_ns for c in collectives) - peers_ns)
    own_io_ns = spent(STORAGE).low_ns - waited_ns
    computed_ns = spent(COMPUTE).low_ns
    marked = all(f"{STEP_PART}/{part}" in account.columns for _, part in _OF_MODEL)
    if not marked or spent(DEVICE_IDLE).high_ns:
        return [
            (OWN_IO, own_io_ns, f"{MEAN}/{STEP}/{STORAGE}"),
            (COMPUTED, computed_ns, f"{MEAN}/{STEP}/{COMPUTE}"),
            (
                COLLECTIVES,
                # Where nothing was profiled any time may be in one.
                collective_ns if computed_ns else float(collectives[0].low_ns),
                f"{MEAN}/{STEP}/{COMMUNICATION}",
            ),
            (PEERS, peers_ns, f"{MEAN}/{STEP}/{WAITING_FOR_PEERS}"),
            (COPYING, spent(COPY).low_ns, f"{MEAN}/{STEP}/{COPY}"),
            (IDLE, spent(DEVICE_IDLE).low_ns, f"{MEAN}/{STEP}/{DEVICE_IDLE}"),
        ]
    # The loop's own parts less their calls of storage, which are shown apart.
    beside = []
    for code, part in _BESIDE_MODEL:
        in_storage = spent(f"{part}/{STORAGE}", STEP_PART)
        part_ns = spent(part, STEP_PART).low_ns - in_storage.low_ns
        beside.append((code, float(part_ns), f"{MEAN}/{STEP_PART}/{part}"))
    # Collectives that were recorded lie in the backward pass.
    known_ns = sum(c.low_ns for c in collectives)
    model = [
        (code, spent(part, STEP_PART).low_ns - (known_ns if code == BACKWARD else 0.0),
         f"{MEAN}/{STEP_PART}/{part}")
        for code, part in _OF_MODEL
    ]  # fmt: skip
    return [
        (OWN_IO, own_io_ns, f"{MEAN}/{STEP}/{STORAGE}"),
        (COLLECTIVES, float(known_ns), f"{MEAN}/{STEP}/{COMMUNICATION}"),
        beside[0],
        *model,
        beside[1],
    ]
