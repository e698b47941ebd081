"""The account of time in words: what waits consist of, what costs most, what storage took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vanidl.breakdown import Breakdown, Cell
from vanidl.breakdown.account import EPOCH_END, MEAN, RUN, STEP, STEPS, WAIT
from vanidl.breakdown.assumptions import BLOCKING
from vanidl.breakdown.causes import (
    BLOCKED,
    COMMUNICATION,
    COMPUTE,
    COPY,
    DELIVERY,
    DEVICE_IDLE,
    HOST_CPU,
    INPUT_CPU,
    METADATA,
    OBJECT,
    QUEUED,
    STORAGE,
    TOO_FEW_CORES,
    TRACING,
    WAITING_FOR_PEERS,
    WORKERS,
)
from vanidl.breakdown.costs import PARTS_BESIDE_THE_MODEL, STORAGE_SYNC, Cost, rank_costs
from vanidl.formatting.units import percent, seconds
from vanidl.model.counter_totals import prefix_of
from vanidl.model.states import SAMPLED
from vanidl.model.trace import MPIIO, Trace
from vanidl.schema.dataclass import dataclass
from vanidl.wording.cells import mark_cell

if TYPE_CHECKING:
    from vanidl.breakdown.overlap import Overlap

_ALIKE = 0.02  # of the upper end: ends that are closer are said as one

WIDE = 0.5
"""Share of the waits: where so much of them is open, what they consist of is not known."""

MOST_OF_WAITS = 0.5
"""Share of the waits from which they are mostly of one cause."""

_BESIDE_STEPS = 0.1  # of the work of devices within steps: so much beside them is said
_WORTH = 0.02  # of the waits: shorter parts are not named
_SAME = 0.02  # of the waits: ends of a cell that lie closer are said as one
OPEN = "open"
"""The code of what no record tells apart: decoding, locks, other work of the loader."""

LOCK, NETWORK, SLEEP, CHILD = (
    f"{BLOCKED}.{part}" for part in ("lock", "network", "sleep", "child")
)  # fmt: skip
BLOCKS = (LOCK, NETWORK, SLEEP, CHILD)
"""Codes of what a fetch waits for that is no storage."""

_OTHERS = (INPUT_CPU, BLOCKED, TOO_FEW_CORES, WORKERS, DELIVERY, TRACING)
WAIT_WORDS = {
    STORAGE: "storage",
    INPUT_CPU: "decoding, augmenting or collating",
    LOCK: "waiting for a lock",
    NETWORK: "waiting for the network",
    SLEEP: "sleeping",
    CHILD: "waiting for a child process",
    TOO_FEW_CORES: "waiting for a free core",
    WORKERS: "starting workers",
    DELIVERY: "delivery from the workers",
    COMPUTE: "time in which the device computed",
    COPY: "time in which the device copied",
    TRACING: "the tracer itself",
    OPEN: "decoding or other work of the loader",
}


@dataclass(frozen=True, slots=True)
class WaitPart:
    """One part of the input waits of a rank, and the key of its cell; "" for what is open."""

    code: str
    cell: Cell
    key: str


def divide_waits(account: Breakdown, who: str = MEAN) -> tuple[WaitPart, ...]:
    """The parts of the waits of a rank or the mean: each known cause, then what stays open."""
    length_ns = account.length_ns(WAIT, who)
    parts = []
    for code in (
        STORAGE,
        INPUT_CPU,
        *BLOCKS,
        TOO_FEW_CORES,
        WORKERS,
        DELIVERY,
        COMPUTE,
        COPY,
        TRACING,
    ):
        key = f"{who}/{WAIT}/{code}"
        cell = account.cell(key)
        # Of most nothing may be known: then they are in what stays open.
        if cell.low_ns or (code == STORAGE and cell.high_ns):
            parts.append(WaitPart(code, cell, key))
    # What stays open: at least what the named cannot be, at most what unnamed causes could be.
    named = {part.code.partition(".")[0] for part in parts}
    rest = [account.cell(f"{who}/{WAIT}/{code}") for code in _OTHERS if code not in named]
    least = max(length_ns - sum(part.cell.high_ns for part in parts), 0)
    most = min(length_ns - sum(part.cell.low_ns for part in parts), sum(c.high_ns for c in rest))
    parts.append(WaitPart(OPEN, Cell(int(least), int(max(most, least))), ""))
    return tuple(parts)


def find_main_cause(account: Breakdown) -> str:
    """The code of the part that half of the waits or more are for sure; "" where none is."""
    length_ns = account.length_ns(WAIT)
    for part in divide_waits(account):
        if length_ns and part.cell.low_ns >= MOST_OF_WAITS * length_ns:
            return part.code
    return ""


def is_storage_known(account: Breakdown) -> bool:
    """Whether samples of what threads did say how much of the waits was storage."""
    cell = account.cell(f"{MEAN}/{WAIT}/{STORAGE}")
    known = cell.high_ns - cell.low_ns <= WIDE * account.length_ns(WAIT)
    return known and SAMPLED in cell.evidence


def describe_waits(account: Breakdown, *, whole: bool) -> str:
    """`10.9 s was storage and 4.97 s decoding or other work of the loader`, longest first.

    Numbers of cells are marked, for `settle`.

    Args:
        account: of a run with input waits.
        whole: whether all I/O was recorded; what is missing of it looks like work of the loader.
    """
    length_ns = account.length_ns(WAIT)
    # Of a wide range only its lower end is worth saying.
    storage = account.cell(f"{MEAN}/{WAIT}/{STORAGE}")
    busy_ns = sum(account.cell(f"{MEAN}/{WAIT}/{code}").low_ns for code in (COMPUTE, COPY))
    if storage.high_ns - storage.low_ns > WIDE * (length_ns - busy_ns):
        least = mark_cell(f"{MEAN}/{WAIT}/{STORAGE}", seconds(storage.low_ns / 1e9))
        least = f", at least {least}" if storage.low_ns else ""
        return f"how much of that was storage is not known{least}"
    said = []
    # The three longest, without those that could not be much.
    for part in sorted(divide_waits(account), key=lambda part: -part.cell.middle_ns):
        if part.cell.high_ns < _WORTH * length_ns:
            continue
        words = WAIT_WORDS[part.code]
        if part.code == STORAGE and (calls := _name_metadata(account)):
            words += calls
        if part.code == OPEN and not whole:
            words += ", or I/O that was not recorded"
        said.append(f"{mark_cell(part.key, _say_range(part.cell, length_ns))} {words}")
    if not storage.high_ns:
        said.append("none was storage")
    return f"of that {', '.join(said[:3])}"


def _name_metadata(account: Breakdown) -> str:
    """That storage was mostly metadata calls, or requests to object storage, where it was."""
    storage = account.cell(f"{MEAN}/{WAIT}/{STORAGE}")
    calls = account.cell(f"{MEAN}/{WAIT}/{STORAGE}.{METADATA}")
    objects = account.cell(f"{MEAN}/{WAIT}/{STORAGE}.{OBJECT}")
    if calls.low_ns >= MOST_OF_WAITS * storage.high_ns > 0:
        return ", mostly metadata calls (open, stat, close)"
    return (
        ", mostly requests to object storage"
        if objects.low_ns > MOST_OF_WAITS * storage.high_ns
        else ""
    )


def _say_range(cell: Cell, length_ns: float) -> str:
    low, high = cell.range_s
    if cell.high_ns - cell.low_ns <= _SAME * length_ns:
        return seconds((low + high) / 2)
    return f"{seconds(low)} to {seconds(high)}" if cell.low_ns else f"at most {seconds(high)}"


# What costs a run most, in words, where it is not the input waits: a view of the account.


_COST_WORDS = {
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
    (STEP, COMMUNICATION): "Communication that no kernel covers took",
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


def find_lead(account: Breakdown, steps: str = "training") -> Lead:
    """What costs the run more than its input waits do, in a sentence; what its `steps` are."""
    costs = rank_costs(account)
    if not costs or costs[0].window == WAIT or costs[0].low_ns < LITTLE * account.window_ns:
        return Lead()
    cost = costs[0]
    in_steps = cost.window in _OF_TRAINING
    whole_ns = account.steps_ns if in_steps else account.window_ns
    of_what = steps if in_steps else "run"
    words = _COST_WORDS[cost.window, cost.cause]
    if in_steps and not account.waits_known:
        words = words.replace(", outside of input waits,", "")  # they may lie in such waits
    # Ends of the range that look alike are said as one.
    amount, most = seconds(cost.low_ns / 1e9), seconds(cost.high_ns / 1e9)
    share, most_of_it = percent(cost.low_ns / whole_ns), percent(min(cost.high_ns / whole_ns, 1.0))
    if cost.high_ns - cost.low_ns > _ALIKE * cost.high_ns:
        amount = f"{amount} to {most}"
        share = share if share == most_of_it else f"{share} to {most_of_it}"
    key = _find_key(account, cost)
    amount, share = mark_cell(key, amount), mark_cell(key, share)
    # Whether the device had work while it was idle, where that was recorded.
    why = ""
    idle_ns, queued_ns = _measure_idle(account, STEP)
    if cost.cause == DEVICE_IDLE and queued_ns is not None:
        why = ": the host gave it no work in time"
        if 2 * queued_ns > idle_ns:
            why = ", for most of that with work in its queue that had not begun"
    sentence = f"{words} {amount} of the {seconds(whole_ns / 1e9)} {of_what} ({share}){why}."
    return Lead(sentence, cost.window, in_steps)


_MUCH_TRACING = 0.02  # of the steps, at least


def describe_tracing(account: Breakdown, title: str) -> str:
    """That the tracer itself took more than a little of the steps; "" where it did not.

    `title` may have said it.
    """
    key = f"{MEAN}/{STEPS}/{TRACING}"
    cell, whole_ns = account.cell(key), account.steps_ns
    if cell.low_ns <= _MUCH_TRACING * whole_ns or title.startswith(_COST_WORDS[STEP, TRACING]):
        return ""
    low, high = cell.range_s
    amount = mark_cell(key, f"{seconds(low)} to {seconds(high)}")
    return (
        f"The tracer itself took {amount} of the {seconds(whole_ns / 1e9)} of steps: without it "
        "(vanidl record --tracer none) they are as much shorter."
    )


def _find_key(account: Breakdown, cost: Cost) -> str:
    """The key of the cell that a cost is; "" where it is what other cells leave of one."""
    for key in (cost.key, cost.key.replace(f"/{STEP}/", f"/{STEPS}/")):
        window = key.split("/")[1]
        if window in (WAIT, EPOCH_END):
            return key
        cell = account.cell(key)
        if abs(cell.low_ns - cost.low_ns) <= 1 and abs(cell.high_ns - cost.high_ns) <= 1:
            return key
    return ""


def _measure_idle(account: Breakdown, window: str) -> tuple[float, float | None]:
    """How long devices were idle in a window of the mean rank, and with work in their queues; ns.

    None where calls that hand work to devices were not recorded. Both are at most so much of the
    same moments, of which what was queued was recorded.
    """
    idle, queued = f"{window}/{DEVICE_IDLE}", f"{window}/{DEVICE_IDLE}.{QUEUED}"
    whole_ns = account.cell(f"{MEAN}/{idle}").high_ns
    return whole_ns, account.cell(f"{MEAN}/{queued}").high_ns if queued in account.columns else None


def describe_idle(account: Breakdown) -> str:
    """Idle time of devices in the mean step: with work in the queue, and without; "" for none."""
    whole_ns, queued_ns = _measure_idle(account, STEP)
    if not whole_ns:
        return ""
    said = f"{seconds(whole_ns / 1e9)} of the mean step"
    if queued_ns is None:
        return f"{said}; calls that hand work to it were not recorded, so why is not known"
    return (
        f"{said}: {seconds(queued_ns / 1e9)} with work in its queue that had not begun (kernel "
        f"wait), {seconds((whole_ns - queued_ns) / 1e9)} without (host wait)"
    )


def describe_work_outside(account: Breakdown) -> str:
    """Work of devices outside of training steps, where it is much beside that within; else "".

    Kernels run on behind the step that launched them, and so behind the last one.
    """
    if not account.cell(f"{MEAN}/{STEP}/{DEVICE_IDLE}").high_ns:
        return ""
    steps = float(account.steps[account.observed].mean())
    causes = (COMPUTE, COMMUNICATION, COPY)
    within_ns = steps * sum(account.cell(f"{MEAN}/{STEP}/{cause}").low_ns for cause in causes)
    whole_ns = sum(account.cell(f"{MEAN}/{RUN}/{cause}").low_ns for cause in causes)
    if whole_ns - within_ns <= _BESIDE_STEPS * within_ns:
        return ""
    return (
        f"The device also worked for {seconds((whole_ns - within_ns) / 1e9)} outside of these "
        f"steps, beside {seconds(within_ns / 1e9)} within."
    )


def describe_device(account: Breakdown, devices: int = 1) -> str:
    """How busy the devices were in a run without steps, without a full stop; "" where unknown.

    Args:
        account: of the run.
        devices: how many a process used at most: their time is counted together.
    """
    idle = account.columns.get(f"{RUN}/{DEVICE_IDLE}")
    if idle is None or account.steps.any() or not account.window_ns:
        return ""
    busy = sum(
        account.cell(f"{MEAN}/{RUN}/{cause}").low_ns for cause in (COMPUTE, COMMUNICATION, COPY)
    )
    per_rank = ", averaged over ranks" if len(account.ranks) > 1 else ""
    whole = f"The device was busy for {seconds(busy / 1e9)}"
    if devices > 1:
        whole = f"At least one of {devices} devices was busy for {seconds(busy / 1e9)}"
    # Work that waited in a queue: the device could have begun it earlier.
    _, queued_ns = _measure_idle(account, RUN)
    waiting = ""
    if queued_ns:
        where = "its queue" if devices == 1 else "their queues"
        waiting = f"; work waited in {where} for {seconds(queued_ns / 1e9)} of the rest"
    return (
        f"{whole} of the {seconds(account.window_ns / 1e9)} run{per_rank} "
        f"({percent(busy / account.window_ns)}){waiting}"
    )


# What whole runs spent in storage, in words: the answer where no step was recorded.

LITTLE = 0.01
"""Share of a run below which no change of its I/O is worth the work."""

_MOST_OF_STORAGE = 0.5  # of the storage: a layer and kind of call with more is named
_METADATA = "metadata calls"
_CALLS = ("reads", "writes", _METADATA)


def describe_storage(trace: Trace, account: Breakdown) -> str:
    """How much of a run was storage, and in which calls, without a full stop; "" where unknown."""
    name = f"{RUN}/{STORAGE}"
    column = account.columns.get(name)
    if column is None or not column.evidence or not account.window_ns:
        return ""
    key = f"{MEAN}/{name}"
    cell = account.cell(key)
    run_ns, run = account.window_ns, f"{seconds(account.window_ns / 1e9)} run"
    if account.hosts_apart:
        run = f"{seconds(run_ns / 1e9)} of a host (hosts do not overlap in time)"
    share = cell.high_ns / run_ns
    # Nothing is known that would not be true of any run.
    if not cell.low_ns and share >= 1:
        return ""
    if not cell.high_ns:
        return f"No time was counted in I/O during the {run}: look elsewhere"
    if share <= LITTLE:
        part = percent(share)
        most = f"less than {part[2:]}" if part.startswith("< ") else f"at most {part}"
        return f"I/O can cost {mark_cell(key, most)} of the {run}: look elsewhere"
    # The sharpest form that is true: one number, an end of the range, or both.
    low = percent(cell.low_ns / run_ns)
    per_rank = " per rank on average" if len(account.ranks) > 1 else ""
    if cell.high_ns - cell.low_ns <= _ALIKE * cell.high_ns:
        amount, part = seconds(cell.high_ns / 1e9), percent(share)
    elif not cell.low_ns:
        amount, part = f"at most {seconds(cell.high_ns / 1e9)}", f"at most {percent(share)}"
    elif cell.high_ns >= (1 - LITTLE) * run_ns:
        amount, part = f"at least {seconds(cell.low_ns / 1e9)}", f"at least {low}"
    else:
        amount = f"{seconds(cell.low_ns / 1e9)} to {seconds(cell.high_ns / 1e9)}"
        part = f"{low} to {percent(share)}"
    said = f"Storage took {mark_cell(key, amount)}{per_rank}, {mark_cell(key, part)} of the {run}"
    if calls := name_longest_calls(trace, account, cell):
        said += f", {calls}"
    if BLOCKING in cell.assumed:
        said += " (calls of a rank are taken to come one at a time)"
    return said


def name_longest_calls(trace: Trace, account: Breakdown, cell: Cell) -> str:
    """`11.1 s of it in collective writes through MPI-IO`; "" where no kind of call has most."""
    times = [
        (spent_s, kind, layer)
        for layer, kinds in account.layers.items()
        for kind, spent_s in zip(_CALLS, kinds, strict=True)
    ]
    spent_s, kind, layer = max(times, default=(0.0, "", ""))
    if spent_s * 1e9 < _MOST_OF_STORAGE * cell.low_ns or not spent_s:
        return ""
    if layer == MPIIO and kind in ("reads", "writes") and _is_collective(trace, kind):
        kind = f"collective {kind}"
    removed_s = trace.counters[layer].total_s(f"{prefix_of(layer)}_F_REMOVE_TIME") or 0.0
    if kind == _METADATA and removed_s > _MOST_OF_STORAGE * spent_s * len(trace.ranks):
        kind = "calls that remove files"
    # Calls that may overlap took no longer than what they are part of, and perhaps less.
    most = "up to " if spent_s * 1e9 > cell.low_ns else ""
    return f"{most}{seconds(min(spent_s, cell.high_ns / 1e9))} of it in {kind} through {layer}"


def _is_collective(trace: Trace, kind: str) -> bool:
    """Whether most calls of a kind were collective."""
    table = trace.counters[MPIIO]
    together, alone = (
        table.total(f"{prefix_of(MPIIO)}_{how}_{kind.upper()}") or 0 for how in ("COLL", "INDEP")
    )
    return together > alone


# What counts as compute in a run, in words: all names of the bases of overlap are here.

_COMPUTE = {
    "device": "device kernels",
    "ops": "CPU operators",
    "loop": "the training loop outside input waits",
    "device+loop": "device kernels where profiled, else the training loop outside input waits",
    "ops+loop": "CPU operators where profiled, else the training loop outside input waits",
}


def name_compute(basis: str | None) -> str:
    """What was recorded as compute: "device kernels"."""
    return _COMPUTE.get(basis or "", "not recorded")


def name_hidden(overlap: Overlap) -> str:
    """How to say that I/O was hidden, without claiming more than the basis supports."""
    return "overlapped with training" if overlap.rests_on_loop else "was hidden behind compute"


def name_steps(overlap: Overlap) -> str:
    """What the steps are called: a profiler rarely sees all of them."""
    return "steps" if overlap.rests_on_loop else "profiled steps"
