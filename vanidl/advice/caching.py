"""The same bytes read again: by the same job, by every rank, by changing ranks."""

from __future__ import annotations

from dataclasses import replace

from vanidl.advice import own_loaders
from vanidl.advice.facts import Claim, Facts
from vanidl.advice.finding import Rule, RuleResult, Value
from vanidl.advice.frameworks import SHARDS, TENSORFLOW, join_phrases
from vanidl.analyses.dataset import Dataset, read_by_all
from vanidl.breakdown.causes import STORAGE
from vanidl.formatting.units import nbytes, percent, times
from vanidl.model.counter_totals import count_by_record
from vanidl.model.trace import MPIIO

AGAIN = 1.5
MEMORY_NBYTES = 32 << 30
PART_FACTOR = 1.5
TWICE = 1.8
ONCE, SELDOM = 1.25, 0.1
"""Of the unique bytes, of all that were read: less came from devices where memory keeps them."""
START_UP = "start_up"


def _find_dataset_read_by_all(facts: Facts) -> Dataset | None:
    """The dataset where every rank reads (nearly) all of it in each pass."""
    data = facts.results.dataset
    epochs = len(facts.account.phases.epochs) if facts.account.phases else 0
    return data if data is not None and read_by_all(data, epochs) else None


def _is_read_to_write(facts: Facts) -> bool:
    """Whether MPI-IO wrote the data and read none: what lies between its pieces is read beneath it.

    (ROMIO's data sieving: R. Thakur, W. Gropp, E. Lusk, Data Sieving and Collective I/O in ROMIO,
    1999.) Such reads are no reading of a data set.
    """
    table = facts.trace.counters.get(MPIIO)
    if table is None:
        return False
    mine = facts.of_kind(table, facts.data_kind)
    read, written = (
        int(count_by_record(table, counter)[mine].sum())
        for counter in ("BYTES_READ", "BYTES_WRITTEN")
    )
    return written > 0 and read == 0


def _find_rereads(facts: Facts) -> RuleResult | None:
    data = facts.results.dataset
    if not facts.matters or data is None or not data.unique_bytes or _is_read_to_write(facts):
        return None
    # Ranks that each read everything do not repeat a read: that is a finding of its own.
    apart = len(data.ranks) if _find_dataset_read_by_all(facts) else 1
    again = data.bytes_read / data.unique_bytes / apart
    hosts = {process.host for process in facts.trace.processes if process.host}
    on_a_host = data.unique_bytes / max(len(hosts), 1)
    if again < AGAIN or on_a_host > MEMORY_NBYTES:
        return None
    # The page cache keeps already what devices served once, or next to never.
    device_nbytes = facts.device_nbytes
    from_cache_nbytes = max(ONCE * data.unique_bytes, SELDOM * data.bytes_read)
    if device_nbytes is not None and device_nbytes <= from_cache_nbytes:
        return None
    evidence: dict[str, Value] = {
        "bytes_read": data.bytes_read,
        "different_bytes": data.unique_bytes,
        "reread_factor": again,
        "different_bytes_a_host": round(on_a_host),
    }
    plan = own_loaders.predict_scheduled(facts)
    cache = "tf.data cache(), " if TENSORFLOW in facts.frameworks else ""
    return RuleResult(
        f"The same {nbytes(data.unique_bytes)} are read {times(again)}",
        f"{nbytes(data.bytes_read)} were read; {nbytes(on_a_host)} of memory per host would hold "
        "all of it.",
        f"Keep it: copy the dataset to memory or local disk first, {cache}or the "
        "scheduled loader, whose buffers save a share of the repeated reads as large as the share "
        "of the data that they hold.",
        evidence | ({"predicted": plan} if plan else {}),
        _claim_rereads(facts, again),
    )


def _claim_rereads(facts: Facts, again: float) -> Claim:
    """What all passes but the first take, and at best what a copy spares of that one."""
    claim = facts.reading(stays=1 / again, keeps="the first pass")
    if facts.gains is None or facts.lost_s is None:
        return claim
    # For sure what later passes take; at best also what a copy spares the first one.
    gain = facts.gains.without(STORAGE)
    surely_s = min(gain.low_ns / 1e9, facts.lost_s) * (1 - 1 / again)
    at_best = 1 / again - compute_spared_share(facts, again)
    return replace(claim, stays=at_best, surely_s=surely_s)


def compute_spared_share(facts: Facts, again: float, passes: float | None = None) -> float:
    """Of all reading what a copy spares of the first pass: it asks once for each file.

    Only bytes then take their time; 0 where reads of different sizes do not tell them apart. Of
    fewer `passes` than times that the same is read each holds reads of its own that are repeated.
    """
    known = facts.request_cost is not None
    first = 1 / min(passes or again, again)
    return first - facts.transfer_share / again if known else 0.0


def _find_same_data_per_rank(facts: Facts) -> RuleResult | None:
    data = _find_dataset_read_by_all(facts) if facts.matters else None
    if data is None:
        return None
    ranks = len(data.ranks)
    plan = own_loaders.predict_spatial(facts)
    return RuleResult(
        f"Each of {ranks} ranks reads the whole dataset",
        f"{nbytes(data.bytes_read)} in all for {nbytes(data.unique_bytes)} of unique bytes.",
        "Give ranks different samples "
        f"({join_phrases(facts.frameworks, SHARDS, 'by their numbers')}). "
        "Where all need the same samples, as in spatial parallelism, the spatial loader reads only "
        "a rank's slab.",
        {
            "ranks": ranks,
            "bytes_read": data.bytes_read,
            "different_bytes": data.unique_bytes,
            "smallest_share": min(r.unique_bytes for r in data.ranks) / (data.unique_bytes or 1),
        }
        | ({"predicted": plan} if plan else {}),
        facts.reading(stays=1 / ranks, keeps="each rank's own part"),
    )


def _find_shared_shuffle(facts: Facts) -> RuleResult | None:
    data = facts.results.dataset
    if not facts.matters or data is None or len(data.ranks) < 2 or not data.unique_bytes:
        return None
    ranks, again = len(data.ranks), data.bytes_read / data.unique_bytes
    shares = [r.unique_bytes / data.unique_bytes for r in data.ranks]
    # Ranks that each read more than a fixed part, yet not all of it, change parts between passes.
    if again < AGAIN or min(shares) < PART_FACTOR / ranks or _find_dataset_read_by_all(facts):
        return None
    plan, low, high = own_loaders.predict_pls(facts), percent(min(shares)), percent(max(shares))
    each = low if low == high else f"{low} to {high}"
    return RuleResult(
        f"Ranks read other parts of the same data from pass to pass: {each} each",
        f"With a fixed part a rank would read {percent(1 / ranks)}: the global shuffle keeps all "
        "data on shared storage and every pass reads it from there.",
        "Partial local shuffling (the pls loader): each rank keeps its part near and exchanges a "
        "fraction with others each epoch. Or the scheduled loader, which keeps the global shuffle.",
        {"ranks": ranks, "smallest_share": min(shares), "fixed_part": 1 / ranks}
        | ({"predicted": plan} if plan else {}),
        _claim_rereads(facts, again),
    )


def _find_scans_before_training(facts: Facts) -> RuleResult | None:
    """Data that are read more than once before the first step: to be measured, then to be kept."""
    found = facts.before_steps
    if found is None or found.again < TWICE:
        return None
    return RuleResult(
        f"The data are read {times(found.again)} before the first step",
        f"{nbytes(found.nbytes)} of {nbytes(found.unique_nbytes)} that differ, mostly from "
        f"{found.path}: looked through once, and then read again.",
        "Learn sizes from shapes and headers (h5py: shape and dtype; np.load with mmap_mode; "
        "os.stat) or from a few samples; or keep what the first pass read.",
        {"bytes_read": found.nbytes, "different_bytes": found.unique_nbytes,
         "spent_s": found.spent_s, "file": found.path},
        Claim(
            STORAGE, START_UP, stays=1 / found.again, keeps="one pass over the data",
            within_s=found.spent_s * (1 - 1 / found.again),
        ),
    )  # fmt: skip


RULES = (
    Rule(
        "reread_each_epoch", "bytes read / unique bytes of the dataset, for the whole job",
        "1.5, and at most 32 GiB of unique bytes per host, where I/O matters; a tenth of the reads "
        "from a device, where the kernel counts that",
        "replaces Drishti's P09, whose test is inverted. Memory is not recorded: 32 GiB is what a "
        "training node has to spare",
        _find_rereads,
    ),
    Rule(
        "ranks_read_the_same", "unique bytes that each rank read / those of the job",
        "90 % for every rank in each pass, where I/O matters",
        "a sampler that was not told of the ranks reads everything everywhere",
        _find_same_data_per_rank,
    ),
    Rule(
        "read_twice_at_start",
        "bytes of the dataset read before the first step / unique bytes",
        "1.8, 16 MiB or half of the dataset, 1 % of the run",
        "what is read before training is read once more than it need be; no batch waits for it, so "
        "no other rule sees it",
        _find_scans_before_training,
    ),
    Rule(
        "shared_shuffle", "unique bytes that each rank read over the run / those of the job",
        "1.5 x an equal part for every rank, and the data read 1.5 times, where I/O matters",
        "a fixed part stays at 1 x; a global shuffle reaches 1.75 x for 4 ranks after two epochs",
        _find_shared_shuffle,
    ),
)  # fmt: skip
