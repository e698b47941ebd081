"""What costs a run most, in words, where it is not the input waits: a view of the account."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import EPOCH_END, MEAN, RUN, STEP, WAIT
from vanidl.breakdown.causes import (
    BLOCKED,
    COMMUNICATION,
    COMPUTE,
    COPY,
    DEVICE_IDLE,
    HOST_CPU,
    QUEUED,
    STORAGE,
    TOO_FEW_CORES,
    TRACING,
    WAITING_FOR_PEERS,
)
from vanidl.breakdown.costs import PARTS_BESIDE_THE_MODEL, STORAGE_SYNC, Cost, rank_costs
from vanidl.formatting.units import percent, seconds
from vanidl.wording.storage import LITTLE

_ALIKE = 0.02  # of the upper end: ends that are closer are said as one

_WORDS = {
    (EPOCH_END, ""): "Ends of epochs, where iterators and workers are taken down, took",
    ("checkpoint", ""): "Saving took",
    ("load", ""): "Loading saved state took",
    ("compile", ""): "Compiling took",
    ("skipped", ""): "Batches that were taken and not trained on took",
    ("start_up", STORAGE): "Storage before the first step took",
    ("validation", STORAGE): "Storage in validation took",
    ("prepare", ""): "Work on the batch in the training loop, before the model is called, took",
    ("rest", ""): "Work of the training loop behind the model (metrics, logging) took",
    (STEP, STORAGE): "Storage in the training loop, outside of input waits, took",
    (STEP, STORAGE_SYNC): "Syncs of files in the training loop took",
    (STEP, HOST_CPU): "Python of the training loop itself took",
    (STEP, BLOCKED): "The training thread was blocked, outside of input waits, for",
    (STEP, TOO_FEW_CORES): "The training thread waited for a free core for",
    (STEP, WAITING_FOR_PEERS): "Waiting for other ranks in collectives took",
    (STEP, COMMUNICATION): "Communication that no kernel covers, or waiting for other ranks, took",
    (STEP, COPY): "Copies to or from the device, under no kernel, took",
    (STEP, DEVICE_IDLE): "The device was idle, outside of input waits, for",
    (STEP, TRACING): "The tracer itself took",
}
_OF_TRAINING = (STEP, *PARTS_BESIDE_THE_MODEL)


@dataclass(frozen=True, slots=True)
class Lead:
    """The sentence on what costs most; "" where that is the input waits, or next to nothing.

    `in_steps`: it is said of the recorded steps, not of the run.
    """

    sentence: str = ""
    window: str = ""
    in_steps: bool = False


def leading(account: Breakdown, steps: str = "training") -> Lead:
    """What costs the run more than its input waits do, in a sentence; what its `steps` are."""
    costs = rank_costs(account)
    if not costs or costs[0].window == WAIT or costs[0].low_ns < LITTLE * account.window_ns:
        return Lead()
    cost = costs[0]
    in_steps = cost.window in _OF_TRAINING
    whole_ns = account.steps_ns if in_steps else account.window_ns
    of_what = steps if in_steps else "run"
    words = _WORDS[cost.window, cost.cause]
    if in_steps and not account.waits_known:
        words = words.replace(", outside of input waits,", "")  # they may lie in such waits
    amount = f"{_amount(cost)} of the {seconds(whole_ns / 1e9)} {of_what}"
    why = _why_idle(account) if cost.cause == DEVICE_IDLE else ""
    sentence = f"{words} {amount} ({_share(cost, whole_ns)}){why}."
    return Lead(sentence, cost.window, in_steps)


def _why_idle(account: Breakdown) -> str:
    """Whether the device had work while it was idle, where that was recorded."""
    idle, queued = f"{MEAN}/{STEP}/{DEVICE_IDLE}", f"{STEP}/{DEVICE_IDLE}.{QUEUED}"
    if queued not in account.columns:
        return ""
    # Both are at most so much of the same moments; what is queued of them was recorded.
    whole_ns, part_ns = (account.cell(key).high_ns for key in (idle, f"{MEAN}/{queued}"))
    if 2 * part_ns > whole_ns:
        return ", for most of that with work in its queue that had not begun"
    return ": the host gave it no work in time"


def _amount(cost: Cost) -> str:
    if cost.high_ns - cost.low_ns <= _ALIKE * cost.high_ns:
        return seconds(cost.low_ns / 1e9)
    return f"{seconds(cost.low_ns / 1e9)} to {seconds(cost.high_ns / 1e9)}"


def _share(cost: Cost, whole_ns: float) -> str:
    low, high = percent(cost.low_ns / whole_ns), percent(min(cost.high_ns / whole_ns, 1.0))
    if low == high or cost.high_ns - cost.low_ns <= _ALIKE * cost.high_ns:
        return low
    return f"{low} to {high}"


def device_sentence(account: Breakdown) -> str:
    """How busy the devices were in a run without steps, without a full stop; "" where unknown."""
    idle = account.columns.get(f"{RUN}/{DEVICE_IDLE}")
    if idle is None or account.steps.any() or not account.window_ns:
        return ""
    busy = sum(
        account.cell(f"{MEAN}/{RUN}/{cause}").low_ns for cause in (COMPUTE, COMMUNICATION, COPY)
    )
    per_rank = ", averaged over ranks" if len(account.ranks) > 1 else ""
    return (
        f"The device was busy for {seconds(busy / 1e9)} of the "
        f"{seconds(account.window_ns / 1e9)} run{per_rank} ({percent(busy / account.window_ns)})"
    )
