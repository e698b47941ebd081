"""Uneven loads: over ranks, over workers, one reader for all."""

from __future__ import annotations

from vanidl.advice.facts import IMBALANCE, MUCH_NBYTES, Claim, Facts
from vanidl.advice.finding import Rule, RuleResult
from vanidl.advice.frameworks import SHARDS, join_phrases
from vanidl.breakdown.causes import STORAGE
from vanidl.formatting.units import nbytes, percent, plural, seconds, times

UNEVEN = 1.5
ALONE = 0.9


def _find_only_reader(facts: Facts) -> tuple[str, float] | None:
    """Label and share of a rank that read nearly all of the dataset, of several ranks."""
    data = facts.results.dataset
    if data is None or len(facts.trace.ranks) < 2 or not data.ranks or not data.bytes_read:
        return None
    most = max(data.ranks, key=lambda r: r.bytes_read)
    share = most.bytes_read / data.bytes_read
    return (most.label, share) if share >= ALONE else None


def _find_only_counted_reader(facts: Facts) -> tuple[str, float] | None:
    """The same by the kernel's counts of what processes read, where no reads were recorded.

    What comes over sockets counts as well: a rank that is sent its samples by calls that read is
    taken for one that reads.
    """
    read = facts.counted_nbytes
    if facts.results.dataset is not None or len(read) < 2 or not facts.waits_on_storage:
        return None
    most, total = max(read), sum(read)
    if total < MUCH_NBYTES or most < ALONE * total:
        return None
    rank = facts.trace.ranks[read.index(most)]
    return facts.trace.processes[rank].label, most / total


def _has_unassigned_processes(facts: Facts) -> bool:
    """Whether some processes' I/O counts for no rank."""
    return any(p.role == "unassigned" for p in facts.trace.processes)


def _find_uneven_ranks(facts: Facts) -> RuleResult | None:
    balance = facts.results.balance
    if balance is None or not facts.matters or len(balance.rows) < 2 or balance.shared_bytes:
        return None
    # One rank for all, or a few by design, is not uneven; I/O of no rank might even it out.
    if _has_unassigned_processes(facts) or _find_only_reader(facts) or facts.has_aggregators:
        return None
    spread = max(balance.busy_spread or 0.0, balance.bytes_spread or 0.0)
    if spread < UNEVEN:
        return None

    # The busiest rank, by the measure in which ranks differ most.
    by = "busy_s" if (balance.busy_spread or 0) >= (balance.bytes_spread or 0) else "bytes_read"
    busiest = max(balance.rows, key=lambda r: getattr(r, by) or 0)
    silent = balance.silent_ranks
    others = f"; {plural(silent, 'rank')} did none" if silent else ""
    return RuleResult(
        f"The I/O of {busiest.label} is {times(spread)} the mean per rank",
        f"It was in I/O for {seconds(busiest.busy_s)} and read "
        f"{nbytes(busiest.bytes_read)}{others}.",
        "Give ranks equal parts; look for a slower node, path or mount where bytes are equal and "
        "times are not; let no rank write or read for the others during training.",
        {
            "busiest": busiest.label,
            "busy_spread": balance.busy_spread,
            "bytes_spread": balance.bytes_spread,
            "silent_ranks": balance.silent_ranks,
        },
        Claim(STORAGE, IMBALANCE),
    )


def _find_uneven_workers(facts: Facts) -> RuleResult | None:
    workers = facts.results.workers
    if workers is None or not facts.matters or workers.spread is None:
        return None
    if workers.spread < UNEVEN:
        return None
    busiest = max(workers.rows, key=lambda r: r.bytes_read)
    return RuleResult(
        f"The busiest of the workers side by side reads {times(workers.spread)} the mean",
        f"{facts.trace.processes[busiest.process].label} read {nbytes(busiest.bytes_read)} in "
        f"{seconds(busiest.read_s)}; batches are handed over in order, so all wait for it.",
        "Make batches equal in bytes; with an IterableDataset give each worker an equal share of "
        "the shards (more shards than workers, a multiple of them).",
        {
            "spread": workers.spread,
            "workers_side_by_side": workers.largest_group,
            "busiest": facts.trace.processes[busiest.process].label,
            "bytes_read": busiest.bytes_read,
        },
        facts.reading(stays=1 / workers.spread, keeps="the mean of the workers"),
    )


def _find_one_reader(facts: Facts) -> RuleResult | None:
    if _has_unassigned_processes(facts):
        return None
    # Where no reads were recorded the kernel's counts of each rank tell.
    alone = _find_only_reader(facts) if facts.matters else _find_only_counted_reader(facts)
    if alone is None:
        return None
    label, share = alone
    ranks = len(facts.trace.ranks)
    by_hand = join_phrases(facts.frameworks, SHARDS, "an MPI-IO view")
    return RuleResult(
        f"One rank ({label}) reads {percent(share)} of the dataset for all {ranks}",
        "One process reads at the speed of one client while the others wait for its data.",
        f"Let every rank read its own part ({by_hand}).",
        {"reader": label, "share": share, "ranks": ranks},
        facts.reading(stays=1 / ranks, keeps="a rank's own part"),
    )


RULES = (
    Rule(
        "rank_imbalance", "busiest rank / mean of the ranks, in time or bytes",
        "1.5, where I/O matters and not one reader alone",
        "Drishti's P18 to P22 look at one file at a time and at bytes; a step waits for the "
        "slowest rank's time",
        _find_uneven_ranks,
    ),
    Rule(
        "worker_imbalance", "bytes of the busiest / mean, among workers that read side by side",
        "1.5, where I/O matters",
        "batches are handed over in order: a worker behind stops all", _find_uneven_workers,
    ),
    Rule(
        "one_reader",
        "share of the dataset's bytes read by one of several ranks; by the kernel's counts of "
        "processes where no reads were recorded",
        "90 %, where I/O matters; of 16 MiB in training steps by the kernel's counts",
        "reading does not scale with the job", _find_one_reader,
    ),
)  # fmt: skip
