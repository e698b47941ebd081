"""Single steps that are slow: the first of an epoch, and the tail."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.advice.changes import STARTING_S
from vanidl.advice.facts import ANY, Claim, Facts, look
from vanidl.advice.finding import Rule, RuleResult
from vanidl.analyses.profiled_steps import StepTable
from vanidl.breakdown.causes import WORKERS
from vanidl.breakdown.step_records import find_first_steps
from vanidl.formatting.units import nbytes, seconds, times
from vanidl.model import intervals
from vanidl.model.trace import POSIX, Fetches, Trace
from vanidl.model.trace import READ as READ_OP
from vanidl.schema.dataclass import dataclass

FIRST_FACTOR = 3.0
TAIL_FACTORS = (2.0, 5.0, 10.0, 30.0)
"""Times the median, tried in turn: where all steps vary, only the slowest are stalls."""
EXCESS_SHARE = 0.02
FEWEST_STEPS = 20
FILL_FACTOR = 8.0
LEAST_NBYTES = 4096
_MOST = 0.9
RARE = 0.1
"""Of the steps: where more are slow, it is how the run goes, and not a stall."""
_KEEP = "Keep workers over epochs (persistent_workers=True). "


def _get_step_table(facts: Facts) -> StepTable | None:
    steps = facts.results.steps
    return None if steps is None or steps.table.undated_s is not None else steps.table


def _mark_first_of_epochs(facts: Facts, table: StepTable) -> NDArray[np.bool_]:
    """The steps in which an epoch begins, of each rank; checkpoint steps among them."""
    phases = facts.account.phases
    epochs = phases.epochs if phases else ()
    first = np.zeros(len(table.step), bool)
    if facts.trace.fetches.name.size and facts.fetched_epochs < len(epochs):
        return first  # what looks like an epoch's begin is none: the loader was not begun anew
    for epoch in epochs:
        first[find_first_steps(table, epoch)] = True
    return first


@dataclass(frozen=True, slots=True)
class _Fill:
    """What first fetches of epochs hold beyond the usual one, of the mean rank."""

    factor: float  # mean length of a first fetch / median of the others
    first_nbytes: float | None  # that one reads, None where no calls were timed
    usual_nbytes: float | None
    waited_s: float  # of all epochs, beyond the usual fetch


def _find_first_fills(facts: Facts) -> _Fill | None:
    """The fill of a buffer at the begin of each epoch: first fetches that do many times as much.

    Each worker fills its own; what its start takes comes before its fetch.
    """
    fetches = facts.trace.fetches
    if not len(fetches) or facts.trace.indexes:  # samples by index have no such buffer
        return None
    fetches = fetches.pick(fetches.name == np.bincount(fetches.name + 1).argmax() - 1)
    keys = np.stack([fetches.trainer, fetches.epoch, fetches.worker])
    order = np.lexsort((fetches.batch, *keys))
    changes = np.any(np.diff(keys[:, order], axis=1) != 0, axis=0)
    first = np.zeros(len(fetches), bool)
    first[order[np.concatenate([[True], changes])]] = True
    length = fetches.end - fetches.begin
    if (~first).sum() < FEWEST_STEPS:
        return None
    usual = float(np.median(length[~first]))
    factor = float(length[first].mean()) / max(usual, 1.0)
    if factor < FILL_FACTOR:
        return None

    # By the bytes that they read, where calls were timed; else only a stream has such a buffer.
    sizes = _sum_fetched_bytes(facts.trace, fetches)
    reads = None if sizes is None else (float(sizes[first].mean()),
                                        float(np.median(sizes[~first])))  # fmt: skip
    if reads is None and not facts.trace.streams:
        return None
    if reads is not None and reads[0] < FILL_FACTOR * max(reads[1], LEAST_NBYTES):
        return None
    waited = np.where(fetches.wait_end >= 0, fetches.wait_end - fetches.wait_begin, 0)
    beyond = np.clip(np.minimum(waited, length - usual), 0, None)[first]
    ranks = max(len(np.unique(fetches.trainer)), 1)
    first_nbytes, usual_nbytes = reads or (None, None)
    return _Fill(factor, first_nbytes, usual_nbytes, float(beyond.sum()) / 1e9 / ranks)


def _sum_fetched_bytes(trace: Trace, fetches: Fetches) -> NDArray[np.int64] | None:
    """Bytes that began to be read within each fetch by who fetched; None: no calls were timed."""
    found = np.zeros(len(fetches), np.int64)
    if not any(len(part) for part in trace.io) or (fetches.process < 0).any():
        return None
    for part in trace.io:
        mine = fetches.process == part.process
        if part.layer != POSIX or not mine.any():
            continue
        # Running sums: what a fetch read is the difference between its ends.
        total = np.concatenate([[0], np.cumsum(np.where(part.op == READ_OP, part.nbytes, 0))])
        ends = (np.searchsorted(part.start, at[mine]) for at in (fetches.end, fetches.begin))
        end, begin = ends
        found[mine] += total[end] - total[begin]
    return found


def _find_buffer_fills(facts: Facts) -> RuleResult | None:
    fill = _find_first_fills(facts)
    if fill is None or fill.waited_s < EXCESS_SHARE * facts.base_s:
        return None
    read = (
        f" and reads {nbytes(fill.first_nbytes)} where others read {nbytes(fill.usual_nbytes or 0)}"
        if fill.first_nbytes is not None
        else ""
    )
    return RuleResult(
        f"The first batch of an epoch is fetched {times(fill.factor)} as long as others",
        f"Its fetch takes {times(fill.factor)} the median{read}: a buffer is filled before "
        f"anything comes out of it. Training waited {seconds(fill.waited_s)} for that.",
        "Make the shuffle buffer smaller, or give out samples while it fills; samples that are "
        "written in random order once need none.",
        {
            "times_the_usual_fetch": fill.factor,
            "first_bytes": fill.first_nbytes,
            "usual_bytes": fill.usual_nbytes,
            "waited_s": fill.waited_s,
        },
        Claim(ANY, within_s=fill.waited_s, keeps="what the first batches need"),
    )


def _find_slow_first_steps(facts: Facts) -> RuleResult | None:
    table = _get_step_table(facts)
    if table is None:
        return None
    first = _mark_first_of_epochs(facts, table)
    if not first.any() or first.all():
        return None
    duration = table.duration_s
    waits = None if np.isnan(table.input_wait_s).any() else table.input_wait_s
    usual = float(duration[~first].mean())  # a median misleads where workers hand over in turns
    ranks = len(np.unique(table.rank))
    excess = float(np.maximum(duration[first] - usual, 0).sum()) / ranks
    mean = float(duration[first].mean())
    fill = _find_first_fills(facts)
    excess -= 0.0 if fill is None else fill.waited_s  # which is acted on as such
    keeps = ""
    known = facts.starts_workers_anew and len(facts.trace.fetches) and facts.gains is not None
    started_s = facts.gains.without(WORKERS).high_ns / 1e9 if known and facts.gains else 0.0
    acted_on_s = excess
    if started_s > 0:
        # Workers that are kept save their starts, but for the first, and what follows from these.
        kept = 1 - 1 / max(facts.epochs, 1)
        acted_on_s, excess = min(excess, started_s) * kept, excess * kept
        keeps = "the first epoch's start, and each epoch's first fetch"
    elif facts.has_workers and not facts.starts_workers_anew:
        # Workers that stay start once. Each epoch begins when all have answered that they go on,
        # and with a fetch that nothing hides; only its wait can be spent before.
        usual_wait_s = 0.0 if waits is None else float(waits[~first].mean())
        of_wait = duration if waits is None else waits + (usual - usual_wait_s)
        slower = np.minimum(duration, of_wait) - usual
        acted_on_s = excess = float(np.maximum(slower[first], 0).sum()) / ranks
        begins_s = facts.mean_fetch_s + facts.workers_of_rank * facts.handing_over_s[1]
        begun = np.unique(table.rank, return_index=True)[1]
        begun = begun[first[begun]]
        slower_s = float(np.maximum(slower[begun], 0).sum()) / ranks
        started_s = min(slower_s, facts.workers_of_rank * STARTING_S[1])
        stays_s = started_s + (int(first.sum()) - len(begun)) / ranks * begins_s
        acted_on_s, excess = acted_on_s - stays_s, max(excess - stays_s, 0.0)
        keeps = "the first start, and each epoch's first fetch"
    least = EXCESS_SHARE * (2 if facts.cores_were_taken else 1)  # others' turns lengthen any step
    if usual <= 0 or mean < FIRST_FACTOR * usual or acted_on_s < least * facts.base_s:
        return None
    stalls = _find_rare_stalls(facts)
    if stalls is not None and (stalls[1] & first).any():
        return None  # it is one of several such stalls
    if waits is not None and float(waits[first].mean() - waits[~first].mean()) < mean / 3:
        return None  # the model is compiled, memory is taken: not a matter of input
    average = " on average" if first.sum() > 1 else ""
    return RuleResult(
        f"The first step of an epoch takes {times(mean / usual)} the usual time",
        f"{seconds(mean)}{average} against {seconds(usual)} of the others: "
        + ("workers are restarted, or " if facts.starts_workers_anew else "")
        + "buffers fill while nothing computes.",
        (_KEEP if facts.starts_workers_anew else "")
        + "Read the next epoch's first batches before this one ends; warm up before the loop.",
        {
            "first_steps": [int(s) for s in table.step[first]],
            "mean_s": mean,
            "mean_of_the_others_s": usual,
            "excess_s_a_rank": excess,
        },
        Claim(ANY, within_s=excess, keeps=keeps),
    )


def _find_slow_tail(facts: Facts) -> RuleResult | None:
    stalls = _find_rare_stalls(facts)
    if stalls is None:
        return None
    factor, slow, usual_s, waited_s, excess_s = stalls
    table = facts.results.steps.table if facts.results.steps else None
    if table is None:
        return None
    slowest_s = float(np.percentile(table.duration_s, 99))
    return RuleResult(
        f"{int(slow.sum())} steps take at least {times(factor)} the median, waiting for input",
        f"99 % of the steps take under {seconds(slowest_s)}, half under {seconds(usual_s)}; of the "
        f"{seconds(excess_s)} above the median {seconds(waited_s)} is input wait.",
        "Look at these steps in the timeline: large or slow files, a busy storage server, one "
        "worker behind the others, a buffer that is filled anew. A longer prefetch queue evens out "
        "what is rare; a buffer that is filled a little at a time has no stalls.",
        {
            "slow_steps": [int(s) for s in table.step[slow][:20]],
            "median_s": usual_s,
            "p99_s": slowest_s,
            "excess_s_a_rank": excess_s,
            "of_it_input_wait_s": waited_s,
        },
        Claim(ANY, within_s=waited_s),
    )


def _find_rare_stalls(facts: Facts) -> tuple[float, NDArray[np.bool_], float, float, float] | None:
    """Rare steps that hold half of all input waits: by what factor they are slow, and which.

    First steps of epochs are among them where others are as slow: a stall that comes again has
    nothing to do with an epoch's begin.
    """
    table = _get_step_table(facts)
    if table is None or np.isnan(table.input_wait_s).any():
        return None
    # First steps are judged apart: with them the median would not be that of usual steps.
    first = _mark_first_of_epochs(facts, table)
    if (~first).sum() < FEWEST_STEPS:
        return None
    first |= table.step == table.step.min()
    duration, wait = table.duration_s, table.input_wait_s
    usual = float(np.median(duration[~first]))
    ranks = len(np.unique(table.rank))
    started_s = facts.gains.without(WORKERS).low_ns / 1e9 if facts.gains is not None else 0.0
    queued = facts.cores.queued_in_waits_s if facts.cores and facts.cores_were_taken else 0.0
    # The lowest factor at which slow steps are rare.
    for factor in TAIL_FACTORS:
        slow = (duration >= factor * usual) & ~first
        again = slow.any() and duration[slow].mean() >= duration[first].mean() / 2
        slow |= first & (duration >= factor * usual) & again
        above = duration[slow] - usual
        excess = float(above.sum()) / ranks
        waited = float(np.minimum(wait[slow], above).sum()) / ranks
        waits = float(wait[~first | again].sum()) / ranks - queued
        is_rare = 0 < slow.mean() <= RARE and usual > 0 and excess >= EXCESS_SHARE * facts.base_s
        # Not where workers were started in these steps, or a first epoch filled a cache.
        if (
            is_rare
            and waited >= max(excess, waits) / 2
            and (again or started_s < waited / 2)
            and not _is_first_epoch_only(facts, table, slow)
            and not _is_queued_for_cores(facts, table, slow, waited)
        ):
            return factor, slow, usual, waited, excess
    return None


def _is_queued_for_cores(
    facts: Facts, table: StepTable, slow: NDArray[np.bool_], waited_s: float
) -> bool:
    """Whether the training threads waited for a core in half of the time: others took it."""
    if table.undated_s is not None:
        return False
    since, queued_s = facts.trace.job.start_ns, 0.0
    for position in np.unique(table.rank[slow]).tolist():
        rows = slow & (table.rank == position)
        thread = facts.main_thread(position)
        if thread is None:
            return False
        begin, end = (since + np.round(at[rows] * 1e9).astype(np.int64) for at in
                      (table.start_s, table.end_s))  # fmt: skip
        queued_s += look(thread, intervals.union(begin, end)).queued_s
    return queued_s >= waited_s * len(np.unique(table.rank)) / 2


def _is_first_epoch_only(facts: Facts, table: StepTable, slow: NDArray[np.bool_]) -> bool:
    """Whether the slow steps are those of the first of several epochs: it fills a cache."""
    epochs = facts.account.phases.epochs if facts.account.phases else ()
    if len(epochs) < 2:
        return False
    return bool((table.start_s[slow] < epochs[1].start_s).mean() > _MOST)


RULES = (
    Rule(
        "slow_first_step", "mean length of the steps in which an epoch begins / mean of the others",
        "3 x, 2 % of the window in excess",
        "a pipeline that starts empty makes one step as long as a batch takes to load",
        _find_slow_first_steps,
    ),
    Rule(
        "buffer_fills",
        "mean length of the first fetch of a worker in an epoch / median of its others; the same "
        "of the bytes that they read",
        "8 x in both, or of a stream where calls were not timed; 2 % of the window in waits for it",
        "a shuffle buffer that is filled before the first batch holds up each epoch",
        _find_buffer_fills,
    ),
    Rule(
        "slow_tail", "99th percentile of the other steps / their median",
        "2 x, 2 % of the window in excess, input wait, half of all waits in one step of ten",
        "rare slow reads: an average hides them, a synchronous job waits for each",
        _find_slow_tail,
    ),
)  # fmt: skip
