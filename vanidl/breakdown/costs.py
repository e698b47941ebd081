"""Which windows and causes cost a run most, beside compute.

A cost is what could be gone from the run without anything that trains: input waits, ends of
epochs, saves and loads, what no device or model works on, communication that no compute covers. It
counts by what it is at least, so that nothing leads the answer that may be nothing.
"""

from __future__ import annotations

from vanidl.breakdown.account import EPOCH_END, MEAN, PHASE, STEP, STEP_PART, WAIT, Breakdown
from vanidl.breakdown.causes import (
    BLOCKED,
    COMMUNICATION,
    COMPUTE,
    COPY,
    DEVICE_IDLE,
    HOST_CPU,
    STORAGE,
    SYNC,
    TOO_FEW_CORES,
    TRACING,
    WAITING_FOR_PEERS,
)
from vanidl.schema.dataclass import dataclass

STORAGE_SYNC = f"{STORAGE}.{SYNC}"
WHOLE_PHASES = ("checkpoint", "load", "compile", "skipped")
"""Phases that train nothing: all of their time is a cost."""

PARTS_BESIDE_THE_MODEL = ("prepare", "rest")
"""Parts of the step in which the loop itself works: on the batch, on metrics, on logging."""

_OF_STEPS = (
    STORAGE,
    HOST_CPU,
    BLOCKED,
    TOO_FEW_CORES,
    WAITING_FOR_PEERS,
    COMMUNICATION,
    COPY,
    DEVICE_IDLE,
    TRACING,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one window lost to one cause, mean over ranks, ns of the run.

    `cause` is "" where all of the window is lost, whatever it was. `key` names its cell.
    """

    window: str
    cause: str
    low_ns: float
    high_ns: float
    key: str


def rank_costs(account: Breakdown) -> tuple[Cost, ...]:
    """All costs of a run that are more than nothing for sure, the largest first.

    Windows are `input_wait`, `epoch_end`, the parts of the step beside the model, phases, and
    `step` for what is lost in the rest of the steps.
    """
    costs = [
        Cost(window, "", account.length_ns(window), account.length_ns(window), f"{MEAN}/{window}/")
        for window in (WAIT, EPOCH_END)
    ]
    for phase in WHOLE_PHASES:
        cell = account.cell(f"{MEAN}/{PHASE}/{phase}")
        costs.append(Cost(phase, "", cell.low_ns, cell.high_ns, f"{MEAN}/{PHASE}/{phase}"))
    for phase in ("start_up", "validation"):
        cell = account.cell(f"{MEAN}/{PHASE}/{phase}/{STORAGE}")
        key = f"{MEAN}/{PHASE}/{phase}/{STORAGE}"
        costs.append(Cost(phase, STORAGE, cell.low_ns, cell.high_ns, key))
    costs += _list_step_costs(account)
    return tuple(sorted((c for c in costs if c.low_ns > 0), key=lambda c: -c.low_ns))


def _list_step_costs(account: Breakdown) -> list[Cost]:
    """What steps lose outside of their input waits."""
    observed = account.observed
    steps = float(account.steps[observed].mean()) if observed.any() else 0.0
    apart = [p for p in PARTS_BESIDE_THE_MODEL if f"{STEP_PART}/{p}" in account.columns]
    costs = []
    for part in apart:
        key = f"{MEAN}/{STEP_PART}/{part}"
        # What is known to be storage is told as that.
        stored = account.cell(f"{key}/{STORAGE}").low_ns
        cell = account.cell(key)
        low_ns, high_ns = (cell.low_ns - stored) * steps, (cell.high_ns - stored) * steps
        costs.append(Cost(part, "", low_ns, high_ns, key))
    # At least and at most of each cause in all steps, without their input waits.
    outside = {}
    for cause in (*_OF_STEPS, COMPUTE):
        of_step = account.cell(f"{MEAN}/{STEP}/{cause}")
        of_wait = account.cell(f"{MEAN}/{WAIT}/{cause}")
        low_ns = max(of_step.low_ns * steps - of_wait.high_ns, 0.0)
        outside[cause] = low_ns, max(of_step.high_ns * steps - of_wait.low_ns, low_ns)
    if account.cell(f"{MEAN}/{STEP}/{DEVICE_IDLE}").high_ns:
        # No device work is known of the device, whatever the host was at: storage apart.
        collectives = max(outside[COMMUNICATION][1], outside[WAITING_FOR_PEERS][1])
        busy_ns = outside[COMPUTE][1] + outside[COPY][1] + collectives
        idle_ns = account.steps_ns - account.length_ns(WAIT) - busy_ns - outside[STORAGE][0]
        low, high = outside[DEVICE_IDLE]
        outside[DEVICE_IDLE] = max(low, idle_ns), max(high, idle_ns)
    for cause in _OF_STEPS:
        # What the loop itself does in its own parts of the step is told there.
        if cause == HOST_CPU and apart:
            continue
        # The cause, or the part of storage that is most of it, where that is syncs.
        synced = account.cell(f"{MEAN}/{STEP}/{STORAGE_SYNC}").low_ns
        of_storage = account.cell(f"{MEAN}/{STEP}/{STORAGE}").high_ns
        told_as = STORAGE_SYNC if cause == STORAGE and 2 * synced > of_storage else cause
        costs.append(Cost(STEP, told_as, *outside[cause], f"{MEAN}/{STEP}/{cause}"))
    return costs
