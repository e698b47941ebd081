"""Single steps that are slow: the first of an epoch, and the tail."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.advice.claims import ANY, Claim
from vanidl.advice.facts import Facts
from vanidl.advice.finding import Rule, RuleResult
from vanidl.analyses.durations import DATA_READS, SLOW_FACTOR
from vanidl.analyses.steps import StepTable
from vanidl.breakdown.causes import STORAGE, WORKERS
from vanidl.breakdown.step_records import first_within
from vanidl.formatting.units import count, seconds, times

FIRST_FACTOR = 3.0
TAIL_FACTOR = 2.0
EXCESS_SHARE = 0.02
FEWEST_STEPS = 20
_MOST = 0.9
RARE = 0.1
"""Of the steps: where more are slow, it is how the run goes, and not a stall."""
MANY_READS = 1000
_KEEP = "Keep workers over epochs (persistent_workers=True). "


def _table(facts: Facts) -> StepTable | None:
    steps = facts.results.steps
    return None if steps is None or steps.table.undated_s is not None else steps.table


def _first_of_epochs(facts: Facts, table: StepTable) -> NDArray[np.bool_]:
    """The steps in which an epoch begins, of each rank; checkpoint steps among them."""
    phases = facts.account.phases
    first = np.zeros(len(table.step), bool)
    for epoch in phases.epochs if phases else ():
        first[first_within(table, epoch)] = True
    return first


def _slow_first(facts: Facts) -> RuleResult | None:
    table = _table(facts)
    if table is None:
        return None
    first = _first_of_epochs(facts, table)
    if not first.any() or first.all():
        return None
    duration = table.duration_s
    waits = None if np.isnan(table.input_wait_s).any() else table.input_wait_s
    usual = float(duration[~first].mean())  # a median misleads where workers hand over in turns
    ranks = len(np.unique(table.rank))
    excess = float(np.maximum(duration[first] - usual, 0).sum()) / ranks
    mean = float(duration[first].mean())
    if usual <= 0 or mean < FIRST_FACTOR * usual or excess < EXCESS_SHARE * facts.base_s:
        return None
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
        Claim(ANY, within_s=excess),
    )


def _slow_tail(facts: Facts) -> RuleResult | None:
    table = _table(facts)
    if table is None or np.isnan(table.input_wait_s).any():
        return None
    rest = ~_first_of_epochs(facts, table)
    duration, wait = table.duration_s[rest], table.input_wait_s[rest]
    if len(duration) < FEWEST_STEPS:
        return None
    usual, slowest = (float(v) for v in np.percentile(duration, [50, 99]))
    slow = duration >= TAIL_FACTOR * usual
    excess_of_each = duration[slow] - usual
    ranks = len(np.unique(table.rank))
    excess = float(excess_of_each.sum()) / ranks
    waited = float(np.minimum(wait[slow], excess_of_each).sum()) / ranks
    is_slow = slowest >= TAIL_FACTOR * usual > 0 and excess >= EXCESS_SHARE * facts.base_s
    if not is_slow or waited < excess / 2 or _only_first_epoch(facts, table, rest, slow):
        return None
    if slow.mean() > RARE or waited < float(table.input_wait_s.sum()) / ranks / 2:
        return None
    if facts.gains is not None and facts.gains.without(WORKERS).low_ns / 1e9 >= waited / 2:
        return None  # workers were started in these steps
    return RuleResult(
        f"{int(slow.sum())} steps take at least twice the median, waiting for input",
        f"99 % of the steps take under {seconds(slowest)}, half under {seconds(usual)}; of the "
        f"{seconds(excess)} above the median {seconds(waited)} is input wait.",
        "Look at these steps in the timeline: large or slow files, a busy storage server, one "
        "worker behind the others. A longer prefetch queue evens out what is rare.",
        {
            "slow_steps": [int(s) for s in table.step[rest][slow][:20]],
            "median_s": usual,
            "p99_s": slowest,
            "excess_s_a_rank": excess,
            "of_it_input_wait_s": waited,
        },
        Claim(ANY, within_s=waited),
    )


def _only_first_epoch(
    facts: Facts, table: StepTable, rest: NDArray[np.bool_], slow: NDArray[np.bool_]
) -> bool:
    """Whether the slow steps are those of the first of several epochs: it fills a cache."""
    epochs = facts.account.phases.epochs if facts.account.phases else ()
    if len(epochs) < 2:
        return False
    begins = table.start_s[rest][slow]
    return bool((begins < epochs[1].start_s).mean() > _MOST)


def _slow_operations(facts: Facts) -> RuleResult | None:
    found = facts.results.durations.groups.get(DATA_READS) if facts.results.durations else None
    if found is None or not facts.matters or found.count < MANY_READS:
        return None
    if found.p99_s < SLOW_FACTOR * found.median_s or found.median_s <= 0:
        return None
    excess = found.excess_s / max(len(facts.trace.ranks), 1)
    gain_s = min(excess, facts.io_bound_s or 0.0)
    if gain_s < EXCESS_SHARE * facts.base_s:
        return None
    return RuleResult(
        f"One dataset read in a hundred takes {times(found.p99_s / found.median_s)} the median",
        f"Half of {count(found.count)} reads take under {seconds(found.median_s)}, 1 % over "
        f"{seconds(found.p99_s)}, the slowest {seconds(found.longest_s)}. The {count(found.slow)} "
        f"that take {SLOW_FACTOR:.0f} times the median or more cost {seconds(found.excess_s)} over "
        "all ranks.",
        "Look at the slowest operations below: which files, which times, which hosts. A "
        "storage server that is busy with other jobs, a file that was not cached, or retries look "
        "like this. A longer prefetch queue evens out what is rare.",
        {
            "reads": found.count,
            "median_s": found.median_s,
            "p99_s": found.p99_s,
            "longest_s": found.longest_s,
            "slow_reads": found.slow,
            "excess_s": found.excess_s,
        },
        Claim(STORAGE, within_s=excess),
    )


RULES = (
    Rule(
        "slow_first_step", "mean length of the steps in which an epoch begins / mean of the others",
        "3 x, 2 % of the window in excess",
        "a pipeline that starts empty makes one step as long as a batch takes to load",
        _slow_first,
    ),
    Rule(
        "slow_tail", "99th percentile of the other steps / their median",
        "2 x, 2 % of the window in excess, input wait, half of all waits in one step of ten",
        "rare slow reads: an average hides them, a synchronous job waits for each",
        _slow_tail,
    ),
    Rule(
        "slow_operations", "99th percentile of the durations of dataset reads / their median",
        "20 x, of 1,000 reads, 2 % of the window beyond the median, where I/O matters",
        "a cache that is missed now and then gives 5 to 10 x; beyond that requests are stuck",
        _slow_operations,
    ),
)  # fmt: skip
