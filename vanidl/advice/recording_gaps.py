"""What limits the numbers themselves: lost records, clocks, reads that nothing saw."""

from __future__ import annotations

from collections.abc import Sequence, Set

from vanidl.advice.facts import Facts
from vanidl.advice.finding import HIGH, LOW, MEDIUM, Rule, RuleResult
from vanidl.analyses.files import FileRow
from vanidl.formatting.units import number, percent, plural, seconds
from vanidl.model.warnings import DROPPED, INCOMPLETE, UNREAD, UNSURE_CLOCK, WARNING

ROOM = (
    "Record again with more room: vanidl record sets the limits; by hand MAX_RECORDS, MODMEM and "
    "NAME_EXCLUDE in Darshan's configuration."
)
SUMMED = (
    "Record again without DFTRACER_ENABLE_AGGREGATION. vanidl record --tracer dftracer traces "
    "every call."
)
MORE_CALLS = (
    "Record again with room for more calls (--events N), or into a folder whose disk has more "
    "space (-o)."
)
SPACE = (
    "Record into a folder whose disk has more space (-o), or let less of it stay free "
    "(--keep-free SIZE)."
)
AGAIN = (
    "Record again, and let every process end by itself: what a killed process had not yet written "
    "out is lost. Copy traces whole."
)
ESCAPES_DARSHAN = (
    "Memory maps, np.load before Darshan 3.5, io_uring and descriptors opened before a fork escape "
    "the tracer. Open files in the worker, and read with read or pread to record them."
)
ESCAPES_DFTRACER = (
    "np.load and np.fromfile, memory maps and io_uring escape DFTracer. Record with Darshan 3.5 or "
    "later, or read with read or pread."
)
ESCAPES_CALLS = (
    "What is read of a mapped file is in no call. Read it with read or pread to record it."
)
OF_NO_KIND = "other"
OF_NO_KIND_SHARE = 0.10
UNALIGNED = ("none", "not aligned")
HALF_A_STEP = 0.5


_NO_CLOCK = "Profiler and I/O are not on one verified clock"
_NO_CLOCK_OF_HOSTS = (
    "The clocks of the hosts do not agree, or their processes ran one after another"
)
_SET_CLOCKS = "Set the clocks of all hosts by NTP or PTP (chronyc tracking), and record again."
_ONE_CLOCK = (
    "Record both in one run (vanidl record); give --clock-offset SECONDS where the difference is "
    "known."
)
_LATE_LOGS = "When workers read is known less closely than a step takes"
_EARLIER_LOGS = (
    "Start workers once (persistent_workers=True), record with a smaller MODMEM in Darshan's "
    "configuration, or with DFTracer: Darshan takes the start of each forked worker late."
)


def _find_truncated_trace(facts: Facts) -> RuleResult | None:
    found = [w for w in facts.results.coverage.warnings if w.code in INCOMPLETE - UNREAD]
    found = [w for w in found if w.severity == WARNING]
    if not found:
        return None
    # The layer that lost most.
    fractions = [c.traced_fraction for c in facts.results.coverage.layers if c.traced_fraction]
    least = min(fractions, default=None)
    part = f": {percent(least)} of the operations are in it" if least and least < 1 else ""
    return RuleResult(
        f"The trace is incomplete{part}",
        found[0].message,
        _pick_remedy({w.code for w in found}, by_calls=facts.by_calls),
        {"warnings": sorted({w.code for w in found}), "traced_fraction": least},
        weight=MEDIUM,
    )


def _pick_remedy(codes: Set[str], *, by_calls: bool) -> str:
    if "recording_stopped" in codes:
        return SPACE
    if "calls_summed" in codes:
        return MORE_CALLS if by_calls else SUMMED
    return ROOM if codes & DROPPED else AGAIN


def _find_unaligned_clock(facts: Facts) -> RuleResult | None:
    steps = facts.results.steps
    warned = next((w for w in facts.results.coverage.warnings if w.code in UNSURE_CLOCK), None)
    if warned is None and (steps is None or not facts.results.summary.ops):
        return None
    clock = steps.clock if steps else None
    width = clock.within_s if clock else None
    # Half a step: what is known less well may belong to the neighbouring step.
    vague = width is not None and steps is not None and width >= HALF_A_STEP * steps.median_s
    if warned is None and not vague and not (clock and clock.method in UNALIGNED):
        return None
    known = "no evidence" if width is None else f"evidence to within {seconds(width)} only"
    reason = warned.message if warned else f"{known} of how their clocks differ."
    late = clock is not None and clock.offset_s is not None and clock.workers_least
    title, advice = (_LATE_LOGS, _EARLIER_LOGS) if late else (_NO_CLOCK, _ONE_CLOCK)
    uncertain = "What happened during which step is not certain"
    # Without any profile the clocks in question are those of the hosts.
    if not facts.trace.profiles and steps is None:
        title, advice = _NO_CLOCK_OF_HOSTS, _SET_CLOCKS
        uncertain = "What happened on one host while another was at work is not known"
    return RuleResult(
        title,
        f"{uncertain}: {reason}",
        advice,
        {
            "method": clock.method if clock else None,
            "uncertainty_s": width,
            "median_step_s": steps.median_s if steps else None,
        },
        weight=MEDIUM,
    )


def _explain_blind_spots(facts: Facts) -> str:
    """What the tracer of the run does not see, and what to do."""
    if facts.by_calls:
        return ESCAPES_CALLS
    return ESCAPES_DARSHAN if facts.by_darshan else ESCAPES_DFTRACER


def _find_unseen_reads(facts: Facts) -> RuleResult | None:
    found = [w for w in facts.results.coverage.warnings if w.code == "reads_not_seen"]
    if not found:
        return None
    return RuleResult(
        "Data files were opened, but few of their bytes were recorded",
        found[0].message,
        _explain_blind_spots(facts),
        {"message": found[0].message},
        weight=MEDIUM,
    )


def _find_unclassified_files(facts: Facts) -> RuleResult | None:
    spent, run_s = facts.kind_s(OF_NO_KIND), facts.trace.job.run_time_s
    if spent is None or run_s <= 0 or spent < OF_NO_KIND_SHARE * run_s:
        return None
    rows = [r for r in facts.results.files.rows if r.kind == OF_NO_KIND]
    busiest = max(rows, key=lambda r: r.io_s or 0.0, default=None)
    if busiest is None:
        return None
    covered = ", so that no finding about reads or checkpoints covers them"
    if facts.data_kind == OF_NO_KIND:
        covered = ". Nothing else was read, so findings about reads take them for the dataset"
    return RuleResult(
        f"I/O on files of unknown use takes {percent(spent / run_s)} of the run",
        f"{seconds(spent)} per rank{_describe_counter_time(facts)} in {plural(len(rows), 'file')} "
        f"that the run both read and wrote{_name_main_file(busiest, rows)}: by use neither dataset "
        f"nor checkpoint{covered}.",
        "Say what they are: --kind 'GLOB=dataset' (or checkpoint, log) for vanidl summary and "
        "report.",
        {
            "counter_s" if _describe_counter_time(facts) else "busy_s": spent,
            "files": len(rows),
            "busiest_file": busiest.path if _is_mostly_in(busiest, rows) else None,
            "bytes_read": sum(r.bytes_read for r in rows),
            "bytes_written": sum(r.bytes_written for r in rows),
        },
        weight=MEDIUM,
    )


def _describe_counter_time(facts: Facts) -> str:
    """That a time is not busy time: no operation on files of unknown use was traced."""
    row = facts.group(OF_NO_KIND)
    return "" if row is not None and row.busy_s is not None else ", by counters,"


def _name_main_file(busiest: FileRow, rows: Sequence[FileRow]) -> str:
    """The file that most of the time was spent on, where it is one."""
    return f", mostly {busiest.path}" if _is_mostly_in(busiest, rows) else ""


def _is_mostly_in(busiest: FileRow, rows: Sequence[FileRow]) -> bool:
    return (busiest.io_s or 0.0) > sum(r.io_s or 0.0 for r in rows) / 2


def _find_taken_cores(facts: Facts) -> RuleResult | None:
    use, steps_s = facts.cores, facts.account.steps_ns / 1e9
    if use is None or not facts.cores_were_taken:
        return None
    return RuleResult(
        f"Training waits {percent(use.queued_s / steps_s)} of its time for a core that others have",
        f"{seconds(use.queued_s)} of {seconds(steps_s)}, while on average "
        f"{number(use.wanted)} threads of the run could have run: other programs on the node, or a "
        "limit of the job, took the cores. All that takes a core takes longer so.",
        "Record again on a node of its own, or ask the scheduler for more cores.",
        {"waiting_for_cores_s": use.queued_s, "threads_at_work": use.wanted},
        weight=LOW,
    )


def _find_failed_run(facts: Facts) -> RuleResult | None:
    ending = facts.trace.ending
    if ending is None or not ending.failed:
        return None
    why = f": {ending.last_error}" if ending.last_error else ""
    by = f"signal {ending.signal}" if ending.signal else f"exit status {ending.exit_status}"
    return RuleResult(
        f"The program ended with {by}{why}",
        "What follows is about what it did before.",
        "Mend what ended it first: what a run costs that does not finish is all of it.",
        {"exit_status": ending.exit_status},
        weight=HIGH,
    )


RULES = (
    Rule(
        "program_failed", "exit status of the recorded command", "not 0",
        "nothing is gained on a run that does not finish", _find_failed_run,
    ),
    Rule(
        "trace_truncated", "operations, records or logs that are missing by their own account",
        "any", "every time and share below is a lower bound then", _find_truncated_trace,
    ),
    Rule(
        "clock_unverified", "how well profiler times are known on the clock of the I/O",
        "not put on it, or uncertain by half a median step",
        "beyond half a step, I/O is attributed to the wrong step", _find_unaligned_clock,
    ),
    Rule(
        "reads_not_seen", "data files with an open and no read behind their header",
        "any", "the I/O that matters may be what is missing", _find_unseen_reads,
    ),
    Rule(
        "cores_taken", "time the training thread waits for a core / training steps",
        "10 %, with under two threads of the run at work on average",
        "a run that never asks for two cores is short of them only where others have them; its "
        "times are then not those of its node",
        _find_taken_cores,
    ),
    Rule(
        "unclassified_io", "time in reading and writing files of kind other / run time",
        "10 % of the run",
        "findings about reads and checkpoints look at files of those kinds only: without this one "
        "such a run would have none",
        _find_unclassified_files,
    ),
)  # fmt: skip
