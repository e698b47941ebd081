"""The causes that findings are folded into: one line each, and which findings speak for it.

`effort` orders changes whose predictions cannot be told apart: arguments of a loader before
other loaders, these before another format of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vanidl.findings import Finding


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing to change: codes of findings, what of the what-if shows its effect."""

    code: str
    findings: tuple[str, ...]
    levers: tuple[str, ...] = ()  # fields of whatif.Change
    of_steps: bool = True  # whether the change makes steps shorter, not only the run
    limits: bool = False  # it limits what the numbers say instead of costing time


CAUSES: tuple[Cause, ...] = (
    Cause("warm_start", ("slow_first_step", "input_bound_workers")),
    Cause(
        "read_ahead", ("input_bound_io", "input_bound", "io_not_overlapped"), ("workers", "ahead")
    ),
    Cause("decode", ("input_bound_decoding",), ("workers", "decode")),
    Cause("keep_data", ("reread_each_epoch", "shared_shuffle"), ("kept", "exchanged")),
    Cause("rare_stalls", ("slow_tail", "slow_operations")),
    Cause(
        "larger_requests",
        ("small_reads", "random_reads", "tfrecord_default_buffer", "hdf5_chunk_misfit",
         "misaligned", "object_requests_small"),
        ("latency",),
    ),
    Cause(
        "fewer_files",
        ("tiny_files", "open_per_sample", "metadata_share", "file_read_again",
         "empty_reads", "object_asked_first"),
        ("latency",),
    ),
    Cause(
        "divide_reading",
        ("rank_imbalance", "one_reader", "ranks_read_the_same", "worker_imbalance",
         "waits_for_other_ranks"),
        ("divided",),
    ),
    Cause("checkpoints", ("checkpoint_stall", "small_writes", "mostly_writes"), of_steps=False),
    Cause("buffered_io", ("stdio_share",), of_steps=False),
    Cause("imports", ("import_noise",), of_steps=False),
    Cause("storage_benchmark", ("benchmark_wait", "benchmark_rules"), of_steps=False),
    Cause(
        "record_more",
        ("trace_truncated", "clock_unverified", "reads_not_seen", "unclassified_io"),
        of_steps=False,
        limits=True,
    ),
)  # fmt: skip
"""In order of effort."""

BY_CODE = {cause.code: cause for cause in CAUSES}
_OF_FINDING = {code: cause.code for cause in CAUSES for code in cause.findings}
_WAITS = ("read_ahead", "decode")


def folded(findings: Sequence[Finding]) -> Mapping[str, tuple[Finding, ...]]:
    """Every finding under its cause, exactly once; one of no cause is its own."""
    present = {finding.code for finding in findings}
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(_cause(finding.code, present), []).append(finding)
    return {code: tuple(rows) for code, rows in found.items()}


def _cause(code: str, present: set[str]) -> str:
    """The cause of a finding: what follows from another finding belongs to the cause of that."""
    waits = [_OF_FINDING[c] for c in present if _OF_FINDING.get(c) in _WAITS and "bound" in c]
    if code in ("io_not_overlapped", "waits_for_other_ranks") and waits:
        return min(waits, key=_WAITS.index)
    return _OF_FINDING.get(code, code)


def effort(code: str) -> int:
    """Position among changes of equal effect."""
    codes = list(BY_CODE)
    return codes.index(code) if code in BY_CODE else len(codes)
