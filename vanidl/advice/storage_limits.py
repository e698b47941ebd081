"""Where the storage delivers no more, however many readers there are."""

from __future__ import annotations

from vanidl.advice.facts import Facts
from vanidl.advice.finding import Rule, RuleResult
from vanidl.breakdown.causes import READ, STORAGE
from vanidl.formatting.units import nbytes, number


def _saturated(facts: Facts) -> RuleResult | None:
    found = facts.throughput
    if found is None or not found.saturated or not facts.matters:
        return None
    rate = f"{nbytes(found.peak_bytes_per_s)}/s"
    return RuleResult(
        f"The storage delivers {rate}, and no more to more readers",
        f"On average {number(found.mean_depth)} reads of the dataset were under way at once; with "
        "fewer of them as many bytes came.",
        "More workers will not help. Read fewer bytes: smaller types, compressed samples, only "
        "what is used; keep the data in memory or on a local disk after the first read; or spread "
        "it over more servers (Lustre: more stripes).",
        {"bytes_per_s": found.peak_bytes_per_s, "reads_at_once": found.mean_depth},
        facts.reading(f"{STORAGE}.{READ}", keeps="what is still read"),
    )


RULES = (
    Rule(
        "storage_saturated",
        "throughput of dataset reads with many under way / with half as many",
        "1.3, where I/O matters",
        "readers beside each other then only wait for each other", _saturated,
    ),
)  # fmt: skip
