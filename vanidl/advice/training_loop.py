"""What the training thread does beside its model and its waits: own work, evaluation, logs."""

from __future__ import annotations

import numpy as np

from vanidl.advice.capacity import measure_core_load
from vanidl.advice.changes import FEW_WORKERS, STARTING_S
from vanidl.advice.facts import ANY, LOOP, Claim, Facts
from vanidl.advice.finding import Rule, RuleResult
from vanidl.breakdown.account import EPOCH_END, MEAN, PHASE, STEP_PART, WAIT
from vanidl.breakdown.causes import BLOCKED, COPY, STORAGE, SYNC, WORKERS, WRITE
from vanidl.breakdown.costs import PARTS_BESIDE_THE_MODEL
from vanidl.formatting.units import percent, plural, seconds
from vanidl.model.trace import OBJECT, SpanKind
from vanidl.wording.cells import mark_cell

PART_SHARE = 0.10
SURELY = 0.05
"""Of the mean step, for sure: a thread that waits for others, or for a core, does no work."""
EVALUATION_SHARE = 0.20
FIRST_FACTOR = 3.0
ENDS_SHARE = 0.05
LOCK, NETWORK = "lock", "network"
CALLS_SHARE = 0.02
COPIES_SHARE = 0.10
ONE_ITERATOR = (
    "Better: make one iterator, take all its batches, and make the next when it is used up; "
    "iter(loader) in the loop starts all workers for a batch."
)
_SYNCS, _WRITES = f"{STORAGE}.{SYNC}", f"{STORAGE}.{WRITE}"
_PARTS = {
    "prepare": (
        "on the batch before the model is called",
        "Do it in the data set or its collate_fn, so that workers do it while the step computes; "
        "or on the device, a batch at a time.",
    ),
    "rest": (
        "behind the model: metrics, logging, bookkeeping",
        "Do it every so many steps, on tensors instead of in Python loops, or in a thread or "
        "process of its own; read values off the device once, when they are shown.",
    ),
}


def _find_own_work(facts: Facts) -> RuleResult | None:
    account, steps = facts.account, facts.steps_of_rank
    step_ns = account.length_ns("step")
    lengths = {
        part: account.cell(f"{MEAN}/{STEP_PART}/{part}").low_ns
        for part in PARTS_BESIDE_THE_MODEL
        if f"{STEP_PART}/{part}" in account.columns
    }
    part = max(lengths, key=lambda each: lengths[each], default=None)
    if part is None:
        return None
    # What the loop waits for, or writes, has rules of its own: by samples of the part itself, where
    # there are enough of them, else by what the account knows of all steps.
    calls_ns = sum(facts.in_loop_ns(cause)[0] for cause in (STORAGE, BLOCKED)) / steps
    between_ns = step_ns - account.length_ns(WAIT) / steps
    calls_ns = max(calls_ns, facts.in_collectives * between_ns)
    low_ns = high_ns = lengths[part] - calls_ns
    if (seen := facts.look_at_part(part)) is not None:
        low_ns, high_ns = (
            min(share * lengths[part], high_ns)
            for share in (max(seen.running - seen.queued_share, 0.0), seen.running)
        )
    taken_ns = facts.cores.queued_s * 1e9 / steps if facts.cores and facts.cores_were_taken else 0
    least = PART_SHARE * (2 if taken_ns else 1)  # a turn of others lengthens any part
    if high_ns < least * step_ns or low_ns < SURELY * max(step_ns - taken_ns, step_ns / 10):
        return None
    # What a worker would do instead it has to hand over, too.
    if part == "prepare" and high_ns < facts.handing_over_s[0] * 1e9:
        return None
    own_ns, sure_s = high_ns, low_ns * steps / 1e9
    if part == "prepare":
        sure_s = min(sure_s, _bound_by_workers_s(facts, own_ns / 1e9) * steps)
    where, advice = _PARTS[part]
    return RuleResult(
        f"The training loop itself works {percent(own_ns / step_ns)} of each step {where}",
        f"{seconds(own_ns / 1e9)} of the {seconds(step_ns / 1e9)} of the mean step.",
        advice,
        {"part": part, "part_s": own_ns / 1e9, "mean_step_s": step_ns / 1e9},
        Claim(
            ANY,
            part,
            within_s=own_ns * steps / 1e9,
            surely_s=sure_s,
            keeps="what of it has to be done in the loop",
        ),
    )


def _bound_by_workers_s(facts: Facts, own_s: float) -> float:
    """What a step gains at least where workers do so much of its work; 0 of cores not known.

    They share the cores with training, and hand over what they were not asked for before.
    """
    load, step_s = measure_core_load(facts.trace), facts.account.length_ns("step") / 1e9
    if load is None:
        return 0.0
    workers = facts.workers_of_rank or min(facts.computing_workers or 1, FEW_WORKERS)
    starting_s = workers * STARTING_S[1] / max(facts.steps_of_rank, 1)
    # Workers that are there start and hand over already: only new ones cost more.
    handing_s = 0.0 if facts.workers_of_rank else facts.handing_over_s[1] + starting_s
    threads = len(facts.trace.ranks) * (1 + workers)
    return max(step_s - load.bound_step_s(threads, step_s - own_s) - handing_s, 0.0)


def _find_evaluation(facts: Facts) -> RuleResult | None:
    account = facts.account
    times = facts.lengths_s("validation")
    # What the first takes beyond the others stays: workers that are kept start once, too.
    once_s = 0.0
    if len(times) > 1 and times[0] >= FIRST_FACTOR * (usual_s := float(np.median(times[1:]))):
        once_s = times[0] - usual_s
    spent_ns = account.cell(f"{MEAN}/{PHASE}/validation").low_ns
    whole_ns, spent_ns = spent_ns + account.steps_ns, spent_ns - round(once_s * 1e9)
    if not whole_ns or spent_ns < EVALUATION_SHARE * whole_ns:
        return None
    started_ns = account.cell(f"{MEAN}/{PHASE}/validation/{WORKERS}").low_ns - once_s * 1e9
    if len(times) > 1 and started_ns >= spent_ns / 2:
        return RuleResult(
            f"Validation starts its workers anew, in {seconds(started_ns / 1e9)} of "
            f"{seconds(spent_ns / 1e9)}",
            f"Each of {plural(len(times), 'validation')} waits until new workers have started and "
            "imported what they need.",
            "Make the loader of the validation once, with persistent_workers=True, and iterate "
            "over it each time.",
            {"validation_s": spent_ns / 1e9, "starting_s": started_ns / 1e9,
             "validations": len(times)},
            Claim(WORKERS, "validation", stays=1 / len(times), keeps="the first start"),
        )  # fmt: skip
    # Less what the first takes beyond the others it is no cell.
    key = "" if once_s else f"{MEAN}/{PHASE}/validation"
    return RuleResult(
        f"Validation takes {percent(spent_ns / whole_ns)} of training and validation together",
        f"{mark_cell(key, seconds(spent_ns / 1e9))} beside {seconds(account.steps_ns / 1e9)} of "
        "training steps.",
        "Validate less often or on a part of the data, in larger batches under torch.no_grad(), "
        "with a loader that keeps its workers (persistent_workers=True) from one to the next.",
        {"validation_s": spent_ns / 1e9, "steps_s": account.steps_ns / 1e9},
        Claim(
            ANY, "validation", keeps="the validation that is wanted", within_s=spent_ns / 1e9
        ),
    )  # fmt: skip


def _find_slow_epoch_ends(facts: Facts) -> RuleResult | None:
    account, epochs = facts.account, facts.epochs
    spent_ns = account.length_ns(EPOCH_END)
    if epochs < 2 or not facts.starts_workers_anew:
        return None
    if spent_ns < ENDS_SHARE * (account.steps_ns + spent_ns):
        return None
    return RuleResult(
        "Ending and beginning epochs takes "
        f"{mark_cell(f'{MEAN}/{EPOCH_END}/', seconds(spent_ns / 1e9))}",
        f"In each of {plural(epochs, 'epoch')} workers are stopped and started anew."
        + (" Few batches of each are taken." if facts.leaves_passes else ""),
        "Keep the workers from epoch to epoch: DataLoader(persistent_workers=True)."
        + (f" {ONE_ITERATOR}" if facts.leaves_passes else ""),
        {"epoch_ends_s": spent_ns / 1e9, "epochs": epochs, "leaves_passes": facts.leaves_passes},
        Claim(ANY, EPOCH_END, stays=1 / epochs, keeps="the first start and the last end"),
    )


def _compute_loop_share(facts: Facts, cause: str) -> float:
    """Share of the training steps that a cause takes outside of their input waits, at least."""
    steps_ns = facts.account.steps_ns
    return facts.in_loop_ns(cause)[0] / steps_ns if steps_ns else 0.0


def _find_syncs(facts: Facts) -> RuleResult | None:
    share = _compute_loop_share(facts, _SYNCS)
    if share < CALLS_SHARE:
        return None
    spent_s = facts.in_loop_ns(_SYNCS)[0] / 1e9
    return RuleResult(
        f"The training loop waits {percent(share)} of its time until data is on the disk",
        f"fsync and the like took {seconds(spent_s)} in the training thread, outside of saves.",
        "Sync once at the end or with a checkpoint, not with each line; a file system keeps what "
        "was written without that, unless the node itself goes down.",
        {"synced_s": spent_s},
        Claim(_SYNCS, LOOP),
    )


def _find_logging(facts: Facts) -> RuleResult | None:
    share = _compute_loop_share(facts, _WRITES)
    if share < CALLS_SHARE:
        return None
    spent_s = facts.in_loop_ns(_WRITES)[0] / 1e9
    # Saves have findings of their own.
    rows = [r for r in facts.results.files.rows if r.writes and r.kind != "checkpoint"]
    main = max(rows, key=lambda r: r.writes, default=None)
    named = f", most of them to {main.path}" if main is not None else ""
    return RuleResult(
        f"The training loop writes {percent(share)} of its time, outside of saves",
        f"Writes took {seconds(spent_s)} in the training thread{named}.",
        "Log every so many steps, and through a buffer (logging.handlers.MemoryHandler, a queue "
        "and a thread), not line by line.",
        {"written_s": spent_s, "file": main.path if main is not None else None},
        Claim(_WRITES, LOOP),
    )


def _find_blocked_loop(facts: Facts) -> RuleResult | None:
    shares = {part: _compute_loop_share(facts, f"{BLOCKED}.{part}") for part in _WAITS_FOR}
    part = max(shares, key=lambda each: shares[each])
    if shares[part] < ENDS_SHARE or part == LOCK:
        return None
    spent_s = facts.in_loop_ns(f"{BLOCKED}.{part}")[0] / 1e9
    what, advice = _WAITS_FOR[part]
    # Where uploads are half of the waits for the network, the advice is about them.
    sent_s, one_s = _sum_send_s(facts) if part == NETWORK else (0.0, 0.0)
    sends = sent_s >= spent_s / 2
    if sends:
        what, advice = _SENDS
    # In the background the last one begins no later than now, and the program ends behind it.
    surely_s = max(spent_s - one_s, 0.0) if sends else None
    return RuleResult(
        f"The training loop waits {percent(shares[part])} of its time for {what}",
        f"{seconds(spent_s)} in the training thread, outside of its input waits"
        + (f", beside {seconds(sent_s)} of requests that send objects." if sends else "."),
        advice,
        {"blocked_s": spent_s, "part": part, "sends_objects": sends},
        Claim(
            f"{BLOCKED}.{part}", LOOP, surely_s=surely_s,
            keeps="the last one, as far as no steps hide it" if sends else "",
        ),
    )  # fmt: skip


def _sum_send_s(facts: Facts) -> tuple[float, float]:
    """Time of requests that sent objects to a store, of the mean rank; that of one, on average."""
    table = facts.trace.counters.get(OBJECT)
    if table is None or _SENT not in table.seconds:
        return 0.0, 0.0
    whole_s = float(table.seconds[_SENT].clip(0).sum())
    return whole_s / max(len(facts.trace.ranks), 1), whole_s / max(table.total(_SENDS_OF) or 0, 1)


def _find_locked_loop(facts: Facts) -> RuleResult | None:
    share = _compute_loop_share(facts, f"{BLOCKED}.{LOCK}")
    if share < ENDS_SHARE:
        return None
    spent_s = facts.in_loop_ns(f"{BLOCKED}.{LOCK}")[0] / 1e9
    return RuleResult(
        f"The training loop waits {percent(share)} of its time for a lock",
        f"{seconds(spent_s)} in the training thread, outside of its input waits: another thread of "
        "the process works meanwhile, and holds the interpreter's lock or one of its own.",
        "Let a process of its own do what the thread does (saving, compressing, logging), or do it "
        "in calls that release the interpreter's lock.",
        {"blocked_s": spent_s, "part": LOCK},
        Claim(f"{BLOCKED}.{LOCK}", LOOP),
    )


def _find_bare_copies(facts: Facts) -> RuleResult | None:
    share = _compute_loop_share(facts, COPY)
    if share < COPIES_SHARE:
        return None
    spent_s = facts.in_loop_ns(COPY)[0] / 1e9
    # The name of a copy tells, as in CUPTI's "Memcpy HtoD (Pageable -> Device)".
    copies = facts.trace.spans.of_kind(SpanKind.COPY)
    spent_ns = np.bincount(copies.name, copies.end - copies.start, minlength=len(copies.names))
    pageable_ns = sum(
        ns for name, ns in zip(copies.names, spent_ns.tolist(), strict=True) if "Pageable" in name
    )
    from_pageable = bool(2 * pageable_ns > spent_ns.sum())
    return RuleResult(
        f"The device copies for {percent(share)} of the steps and computes nothing meanwhile",
        f"{seconds(spent_s)} of copies run under no kernel, outside of input waits"
        + (", most of them to or from pageable memory, which the host waits for." if from_pageable
           else "."),
        "Pin the memory of batches (DataLoader(pin_memory=True)) and copy them with "
        ".to(device, non_blocking=True), the next one while the model works on this one; read "
        "values off the device (.item(), .cpu()) every so many steps.",
        {"copied_s": spent_s, "from_pageable": from_pageable},
        Claim(COPY, LOOP, keeps="copies that last longer than the kernels beside them"),
    )  # fmt: skip


_SENT, _SENDS_OF = "OBJECT_F_WRITE_TIME", "OBJECT_WRITES"
_SENDS = (
    "objects to be sent to a store",
    "Send them by a thread of its own, from the file or a copy of the state: the loop goes on "
    "meanwhile, and waits for the last one only before the program ends.",
)
_WAITS_FOR = {
    NETWORK: (
        "an answer over the network",
        "Send metrics and the like from a queue by a thread of its own, many at a time; the loop "
        "then never waits for the service.",
    ),
    "sleep": ("a timer", "Find what sleeps in the loop: a poll, a retry, a rate limit."),
    "child": ("a child process", "Start the process once, or let it run beside the loop."),
    LOCK: ("a lock", ""),
}

RULES = (
    Rule(
        "loop_work", "time of a step outside waits, model and optimizer, without storage",
        "10 % of the mean step, where parts of steps were recorded; before the model 0.6 ms",
        "what the loop does itself no worker can do ahead", _find_own_work,
    ),
    Rule(
        "long_validation", "validation / training and validation", "20 %",
        "a validation is wanted; a fifth of the time is more than most plan for", _find_evaluation,
    ),
    Rule(
        "epoch_ends", "time in ends and beginnings of epochs / training",
        "5 %, with workers that are started anew, and epochs to come",
        "persistent_workers=True takes away all but the first start", _find_slow_epoch_ends,
    ),
    Rule(
        "loop_syncs", "fsync and the like in the training thread outside waits / training steps",
        "2 %", "what is synced with each step waits for the device each time", _find_syncs,
    ),
    Rule(
        "loop_writes", "writes in the training thread outside waits and saves / training steps",
        "2 %", "a log does not have to stop training", _find_logging,
    ),
    Rule(
        "device_copies", "copies of the device under no kernel, outside waits / training steps",
        "10 %", "pinned memory and copies that nothing waits for run beside kernels",
        _find_bare_copies,
    ),
    Rule(
        "loop_blocked",
        "the training thread on the network, a timer or a child / training steps",
        "5 %, outside of input waits, more than for locks", "the loop computes nothing meanwhile",
        _find_blocked_loop,
    ),
    Rule(
        "loop_locked", "the training thread on a lock / training steps",
        "5 %, outside of input waits", "what runs in the background is paid for in the loop",
        _find_locked_loop,
    ),
)  # fmt: skip
