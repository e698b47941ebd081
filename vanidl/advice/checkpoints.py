"""Writes: checkpoints that stop training, small writes, STDIO, jobs that mostly write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from vanidl.advice.facts import ANY, RUN, Claim, Facts
from vanidl.advice.finding import Rule, RuleResult, Value
from vanidl.advice.frameworks import PYTORCH
from vanidl.analyses.files import FileRow
from vanidl.breakdown.account import MEAN, PHASE
from vanidl.breakdown.causes import STORAGE, WRITE
from vanidl.formatting.units import count, nbytes, percent, seconds, times
from vanidl.model import intervals
from vanidl.model.trace import POSIX, STDIO, STORAGE_LAYERS, SpanKind
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.breakdown.phases import Phase

_SAVES = "checkpoint"
COPIED = (1e9, 8e9)
"""Bytes a second of a copy in host memory: into pages that are not there yet, and that are."""
BETWEEN_FAILURES_S = 3 * 3600.0
"""Of the largest jobs: 466 interruptions in 54 days on 16,384 GPUs (Llama 3, 2024)."""
LEAST_EVERY_S = 30.0
STALL_SHARE = 0.02
MANY_WRITES = 1000
SMALL_WRITE = 64 << 10
WRITES_SHARE = 0.01
STDIO_SHARE = 0.10
PIECE = 64 << 10
"""Bytes of a call, on average: 16 buffers of the C library."""
STDIO_NBYTES = 16 << 20
MORE_WRITTEN = 2
OF_THE_TOOLS = ("log", "code", "system")
"""Kinds of files that the job's own data is not in: a profiler's trace, compiled code."""


def _find_stall(facts: Facts) -> RuleResult | None:
    phases = facts.account.phases
    run_s = facts.trace.job.run_time_s
    if phases is None or not phases.checkpoints or run_s <= 0:
        return None
    times = [_estimate_stop_s(p, facts) for p in phases.checkpoints]
    # Without single operations saves stopped the run no longer than writing took in all.
    if not any(p.busy_s is not None for p in phases.checkpoints):
        times = [min(sum(times), _sum_write_time_s(facts))]
    # Marked saves say how long the loop stopped; else I/O and compute bound it.
    marked_ns = facts.account.cell(f"{MEAN}/{PHASE}/{_SAVES}").low_ns
    stopped = marked_ns / 1e9 if marked_ns and facts.gains is not None else sum(times)
    if stopped < STALL_SHARE * run_s:
        return None
    written = sum(p.bytes_written or 0 for p in phases.checkpoints)
    torch = PYTORCH in facts.frameworks
    by_library = " (torch.distributed.checkpoint async_save)" if torch else ""
    advice = (
        f"Copy the state to host memory and write in the background{by_library}, "
        "write from all ranks, to local disk first, or less often."
    )
    evidence: dict[str, Value] = {
        "checkpoints": len(phases.checkpoints),
        "stopped_s": stopped,
        "bytes_written": written,
        "evidence": phases.checkpoints[0].evidence,
    }
    # Where steps were recorded it is known what those behind each save can hide.
    claim, said = Claim(STORAGE, RUN, within_s=stopped), "."
    if any(phase.steps for phase in phases.checkpoints):
        # Several saves as one phase: how long steps between two of them are nobody knows.
        claim = replace(claim, surely_s=0.0, keeps="the copy, and what steps do not hide")
    elif facts.gains is not None:
        saves = _weigh_saves(phases.checkpoints, facts, written)
        if saves.every_s is None and sum(saves.hidden_s) / 2 < STALL_SHARE * run_s:
            return None
        claim = saves.claim if marked_ns else _limit_claim(saves.claim, stopped)
        said = f"; steps behind them can hide {seconds(saves.hidden_s[1])} of it."
        evidence |= {"hidden_at_most_s": saves.hidden_s[1], "every_s": saves.every_s}
        if saves.every_s is not None:
            advice = (
                f"Save every {seconds(saves.every_s)} at most, fewer bytes, or from all ranks: in "
                "the background each save would wait for the one before. By J. W. Young's formula "
                "(1974) that is often enough where a job is interrupted every three hours."
            )
    return RuleResult(
        f"Checkpoints take {seconds(stopped)}, {percent(stopped / run_s)} of the run",
        f"{len(phases.checkpoints)} of them, {nbytes(written)} in all, with no recorded compute "
        f"meanwhile{said}",
        advice,
        evidence,
        claim,
    )


@dataclass(frozen=True, slots=True)
class _Saves:
    """What changes of marked saves bring: in the background, at least and at most, or fewer."""

    hidden_s: tuple[float, float]
    every_s: float | None  # how often to save; None: as often as now
    claim: Claim


def _weigh_saves(phases: Sequence[Phase], facts: Facts, written: int) -> _Saves:
    """What the steps behind each save can hide of it, or else how often it is worth saving.

    In the background a save takes as long as it did, and the next one waits for it: what is gained
    is the shorter of both, less the copy that is saved, and but for what the program's end waits
    for. (J. W. Young, A first order approximation to the optimum checkpoint interval, 1974: the
    root of twice a save's time between failures.)
    """
    lengths_s = [phase.end_s - phase.start_s for phase in phases]
    next_s = [phase.start_s for phase in phases[1:]] + [facts.last_step_s]
    pairs = [
        (length_s, max(until_s - phase.end_s, 0.0))
        for length_s, phase, until_s in zip(lengths_s, phases, next_s, strict=True)
    ]
    each = written / len(phases) / max(len(facts.trace.ranks), 1)
    low, high = (
        [max(min(pair) - each / copied_per_s, 0.0) for pair in pairs] for copied_per_s in COPIED
    )
    hidden_s = sum(low), sum(high)
    mean_s = sum(lengths_s) / len(phases)
    every_s = float(round(max(sqrt(2 * mean_s * BETWEEN_FAILURES_S), LEAST_EVERY_S), -1))
    loop_s = sum(map(sum, pairs))
    interval_s = (loop_s - pairs[-1][1]) / len(phases)
    if hidden_s[1] >= sum(lengths_s) / 2 or interval_s >= every_s / 2 or len(phases) < 2:
        # What threads make of the saves, such as uploads, ends as long behind the last of them as
        # now: where the program waits for it, that save stays. At worst threads share what they
        # wait for, and gain no more than the time in which none was at work.
        if (threads := facts.find_loop_threads(phases[0].start_s)) is not None:
            low_s = hidden_s[0] - max(low[-1] - threads.slack_s, 0.0)
            high_s = hidden_s[1] - (high[-1] if threads.waits else 0.0)
            hidden_s = min(low_s, threads.idle_s if threads.waits else high_s, high_s), high_s
        claim = Claim(
            ANY, _SAVES, within_s=hidden_s[1], surely_s=hidden_s[0],
            keeps="the copy, and what steps do not hide",
        )  # fmt: skip
        return _Saves(hidden_s, None, claim)
    kept = 1 + int(loop_s) // int(every_s)
    keeps = f"the last one, and one in {seconds(every_s)}"
    stays = min(kept / len(phases), 1.0)
    return _Saves(hidden_s, every_s, Claim(ANY, _SAVES, stays=stays, keeps=keeps))


def _limit_claim(claim: Claim, stopped_s: float) -> Claim:
    """The claim of saves that only their calls show: a part of all I/O."""
    within_s = stopped_s * (1 - claim.stays)
    if claim.within_s is not None:
        within_s = min(within_s, claim.within_s)
    return replace(claim, cause=STORAGE, window=RUN, stays=0.0, within_s=within_s)


def _estimate_stop_s(phase: Phase, facts: Facts) -> float:
    """Time in I/O of the busiest rank during the checkpoint, not more than no compute covers."""
    wall = phase.end_s - phase.start_s
    busy = wall if phase.busiest_s is None else phase.busiest_s
    return max(min(wall - _measure_compute_s(phase, facts), busy), 0.0)


def _measure_compute_s(phase: Phase, facts: Facts) -> float:
    """Recorded work of any rank during the phase."""
    spans = facts.trace.spans
    # On the processor and on devices.
    work = spans.pick(np.isin(spans.kind, (SpanKind.OP, SpanKind.KERNEL)))
    since = facts.trace.job.start_ns
    low = np.array([since + round(phase.start_s * 1e9)], np.int64)
    high = np.array([since + round(phase.end_s * 1e9)], np.int64)
    busy = intervals.covered_within(intervals.union(work.start, work.end), low, high)
    return float(busy[0]) / 1e9


def _sum_write_time_s(facts: Facts) -> float:
    """Write time of checkpoint files by the counters, over all processes."""
    total = 0.0
    for layer in STORAGE_LAYERS:
        table = facts.trace.counters.get(layer)
        written = table.seconds.get(f"{layer}_F_WRITE_TIME") if table else None
        if table is not None and written is not None:
            mine = written[facts.of_kind(table, "checkpoint")]
            total += float(mine[mine > 0].sum())
    return total


def _find_small_writes(facts: Facts) -> RuleResult | None:
    rows = [r for r in facts.results.files.rows if r.kind == "checkpoint" and r.writes]
    writes, written = sum(r.writes for r in rows), sum(r.bytes_written for r in rows)
    if writes < MANY_WRITES or written / writes >= SMALL_WRITE:
        return None
    # Of files without times nobody knows what the small writes cost.
    if any(r.io_s is None for r in rows):
        return None
    spent = sum(r.io_s or 0.0 for r in rows)
    if spent < WRITES_SHARE * facts.trace.job.run_time_s:
        return None
    # The file that most of the bytes went to, where it is one.
    main = _find_main_file(rows, written)
    largest_file = f", mostly in {main}" if main else ""
    return RuleResult(
        f"Checkpoints are written in {count(writes)} pieces of {nbytes(written / writes)}",
        f"{seconds(spent)} in all for {nbytes(written)}{largest_file}.",
        "Write through a buffer of a few MiB, or the tensors as one block each.",
        {
            "writes": writes,
            "bytes_written": written,
            "spent_s": spent,
            "file": _find_main_file(rows, written),
        },
        Claim(f"{STORAGE}.{WRITE}", RUN, within_s=spent / max(len(facts.trace.ranks), 1)),
    )


def _find_main_file(rows: Sequence[FileRow], written: int) -> str | None:
    first = max(rows, key=lambda r: r.bytes_written)
    return first.path if first.bytes_written > written / 2 else None


def _find_stdio(facts: Facts) -> RuleResult | None:
    moved = {
        t.layer: (t.bytes_read or 0) + (t.bytes_written or 0)
        for t in facts.results.summary.layers
        if t.layer in STORAGE_LAYERS
    }
    total, through = sum(moved.values()), moved.get(STDIO, 0)
    if not through or through < STDIO_SHARE * total or not facts.reads_all_layers:
        return None
    # A large piece passes through in one go: a larger buffer would change nothing.
    if facts.gains is not None and _has_large_pieces(facts, through):
        return None
    # Where the time is not known, only a large volume is worth a word.
    claim = _claim_stdio(facts)
    if claim is None and through < STDIO_NBYTES:
        return None
    traced = STDIO in facts.trace.layers_traced
    untraced = "" if traced else ", and not traced operation by operation"
    return RuleResult(
        f"{percent(through / total)} of the bytes go through C's buffered STDIO",
        f"{nbytes(through)} of {nbytes(total)}: read or written by fread and fwrite, in pieces of "
        f"a buffer{untraced}.",
        "Pickled checkpoints and np.load do this: larger buffers (open(..., buffering=1 << 22)), "
        "or formats that are read in one piece (safetensors, .npy with offset reads).",
        {"stdio_bytes": through, "posix_bytes": moved.get(POSIX, 0), "share": through / total},
        claim,
    )


def _has_large_pieces(facts: Facts, nbytes_moved: int) -> bool:
    """Whether calls of STDIO move more than larger buffers would change.

    What is larger than its buffer the C library passes on in one piece, but for the ends. Where
    a training waits for such reads, rules about its reads say so.
    """
    table = facts.trace.counters.get(STDIO)
    if table is None:
        return False
    calls = sum(table.total(f"{STDIO}_{name}") or 0 for name in ("READS", "WRITES"))
    return calls > 0 and nbytes_moved >= PIECE * calls


def _claim_stdio(facts: Facts) -> Claim | None:
    """The time of a rank in reads and writes of STDIO; None: not recorded.

    Of reads of workers, where waits are known, no more than was waited for: others are done ahead.
    """
    table = facts.trace.counters.get(STDIO)
    names = (f"{STDIO}_F_READ_TIME", f"{STDIO}_F_WRITE_TIME")
    if table is None or names[0] not in table.seconds:
        return None
    read_s, written_s = (table.total_s(name) or 0.0 for name in names)
    ranks = max(len(facts.trace.ranks), 1)
    if facts.gains is not None and facts.lost_s is not None:
        # The last place, reached by -1, is that of records of no process.
        works = np.array([p.role == "worker" for p in facts.trace.processes] + [False])
        ahead_s = float(table.seconds[names[0]][works[table.process]].clip(0).sum())
        read_s += (facts.worth_s(ahead_s, 0.0) or 0.0) * ranks - ahead_s
    within_s = max(read_s + written_s, 0.0) / ranks
    return Claim(STORAGE, RUN, within_s=within_s)


def _find_write_bound_run(facts: Facts) -> RuleResult | None:
    if facts.results.summary.storage_bytes_written is None or not facts.reads_all_layers:
        return None
    if not facts.trains:
        return None
    # Logs, code and files of the system are not the job's data.
    rows = [r for r in facts.results.files.rows if r.kind not in OF_THE_TOOLS]
    read, written = sum(r.bytes_read for r in rows), sum(r.bytes_written for r in rows)
    if written <= MORE_WRITTEN * read or written < 1 << 20:
        return None
    spent_s = sum(r.io_s or 0.0 for r in rows if r.bytes_written > r.bytes_read)
    ratio = f"{times(written / read)} what it reads" if read else "and reads nothing"
    return RuleResult(
        f"The job writes {nbytes(written)}, {ratio}",
        "For training that is unusual: checkpoints outweigh the dataset, or the reads were not "
        "recorded.",
        "Check that the dataset's reads are in the log; then checkpoint less often, or only what "
        "changes.",
        {"bytes_read": read, "bytes_written": written},
        # Whether the job needs these writes is not known: the least gain is 0.
        Claim(STORAGE, RUN, within_s=spent_s / max(len(facts.trace.ranks), 1), surely_s=0.0),
    )


RULES = (
    Rule(
        "checkpoint_stall", "time in I/O during checkpoints that no recorded compute covers",
        "2 % of the run; where steps behind saves are known, by the middle of what they hide",
        "what a background write would give back", _find_stall,
    ),
    Rule(
        "small_writes", "mean size of the writes to checkpoint files",
        "1,000 writes under 64 KiB, 1 % of the run",
        "Drishti's P06 counts every write under 1 MB, logs included", _find_small_writes,
    ),
    Rule(
        "stdio_share",
        "bytes through STDIO / bytes through STDIO and POSIX; of trainings in calls under 64 KiB",
        "10 %, and 1 % of the run; where times were not counted 16 MiB",
        "Drishti's S01, whose advice (MPI-IO) does not fit Python; less than that costs nothing",
        _find_stdio,
    ),
    Rule(
        "mostly_writes",
        "bytes written / bytes read, on all storage layers, without logs, code and system files",
        "2, and 1 MiB written in 1 % of the run",
        "Drishti's P01 to P04, only where the balance is the unusual one for training",
        _find_write_bound_run,
    ),
)  # fmt: skip
