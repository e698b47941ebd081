"""Requests to object storage: each pays a round trip, whatever it moves."""

from __future__ import annotations

from vanidl.findings.facts import MATTERS, Facts
from vanidl.findings.finding import Rule, RuleResult
from vanidl.formatting.units import count, nbytes, number, seconds
from vanidl.model.trace import OBJECT

MANY = 50
SMALL = 1 << 20
HALF = 0.5


def _small(facts: Facts) -> RuleResult | None:
    if not facts.on_objects or not facts.matters or facts.reads < MANY:
        return None
    mean, time = facts.mean_read_nbytes, facts.results.summary.time
    if mean >= SMALL or time is None or not time.any_rank_s:
        return None
    each_s = time.sum_s / max(facts.results.summary.ops or 1, 1)
    at_once = time.sum_s / time.any_rank_s
    return RuleResult(
        f"{count(facts.reads)} requests for {nbytes(mean)} on average: most of their time is "
        "latency",
        f"A request took {seconds(each_s)} on average, and {number(at_once)} were under way at "
        "once while there were any. Object storage answers each after a round trip and a look-up, "
        "however little is asked for.",
        "Ask for more at once: samples packed into shards of 64 MiB and more (WebDataset, MDS, "
        "Parquet) and ranges of several MiB (fsspec's block_size, cat_ranges). Have more requests "
        "under way: more workers, or asynchronous requests within a worker."
        f"{facts.before_workers}",
        {
            "reads": facts.reads,
            "mean_bytes": mean,
            "mean_request_s": each_s,
            "requests_at_once": at_once,
        },
        facts.io_bound_s,
    )


def _asked_first(facts: Facts) -> RuleResult | None:
    """HEAD or a listing before the object itself."""
    overlap = facts.results.overlap
    if not facts.on_objects or overlap is None or not facts.reads:
        return None
    asking_s, window_s = overlap.mean.input_wait_metadata_s, overlap.mean.window_s
    if asking_s is None or asking_s < MATTERS * window_s:
        return None
    asked = _requests(facts, "STATS") + _requests(facts, "LISTS")
    if asked < HALF * facts.reads:
        return None
    return RuleResult(
        f"{count(asked)} HEAD and LIST requests beside {count(facts.reads)} reads",
        f"Training waited {seconds(asking_s)} for them alone: they ask whether an object is there "
        "and how large it is, one round trip each, before it is read.",
        "Read without asking: boto3's get_object instead of download_file, fsspec's "
        "cat_file(path, start, end) instead of open(path) or of whole files, with sizes from a "
        "listing made once or from an index beside the data.",
        {
            "heads": _requests(facts, "STATS"),
            "lists": _requests(facts, "LISTS"),
            "reads": facts.reads,
            "in_waits_s": asking_s,
        },
        min(asking_s, facts.lost_s) if facts.lost_s is not None else asking_s,
    )


def _requests(facts: Facts, what: str) -> int:
    table = facts.trace.counters.get(OBJECT)
    values = None if table is None else table.counters.get(f"{OBJECT}_{what}")
    return 0 if values is None else int(values.sum())


RULES = (
    Rule(
        "object_requests_small", "mean size of the reads of dataset objects in object storage",
        f"{MANY} reads under 1 MiB, where I/O matters",
        "object stores answer after tens of milliseconds and then deliver 50 to 100 MB/s: under "
        "1 MiB a request is latency more than transfer",
        _small,
    ),
    Rule(
        "object_asked_first", "HEAD and LIST requests / reads; time of the former in input waits",
        "half as many as reads, 2 % of the window in input waits",
        "a library that looks before it reads doubles the round trips of a small object",
        _asked_first,
    ),
)  # fmt: skip
