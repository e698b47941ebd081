"""All evidence on one profile's clock -> its offset, how sure that is, and why.

Offsets that every kind of evidence leaves open are what is known. What was observed of the
process itself (files, reads in waits) wins over what two clocks claim where they contradict
each other, and only for a profile that is surely of the log's process: another run of the same
program looks alike. The order of workers' reads never does: it rests on other logs, each with
an error of its own (`late_logs`), which no offset of the profile puts right. Where several
offsets remain, or none, nothing is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from vanidl.formatting.units import border, offset, range_words, seconds
from vanidl.merge.clocks import known_files, reads_in_waits, worker_order
from vanidl.merge.clocks.evidence import AlignmentInputs, Evidence, make_interval
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import ClockReason, SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers.records import TracerLog
from vanidl.schema.dataclass import dataclass

ABSOLUTE = "absolute"
NOT_ALIGNED = "not aligned"
GIVEN = "given offset"

Observed = Callable[[AlignmentInputs, Intervals], Evidence | None]

EVIDENCE: tuple[Observed, ...] = (
    known_files.find_by_events,
    known_files.find_by_profile,
    reads_in_waits.find_reads_in_waits,
    worker_order.find_worker_order,
)
"""What a run can show beside two absolute clocks, most direct first."""

_PLACE_NS = 2_000_000_000  # what is known less well than a second each way is no place in time


@dataclass(frozen=True, slots=True)
class Clock:
    """The offset to add to a profile's times, all in ns: it lies in [low_ns, high_ns].

    `method` names the kinds of evidence; "not aligned": no offset is known, and `low_ns`,
    `high_ns` are what the life of the process leaves. `evidence` says each kind in words.
    """

    method: str
    offset_ns: int
    low_ns: int
    high_ns: int
    evidence: tuple[ClockReason, ...]
    notices: tuple[Notice, ...] = ()

    @property
    def aligned(self) -> bool:
        """Whether the profile can be laid over the I/O."""
        return self.method != NOT_ALIGNED

    @property
    def uncertainty_ns(self) -> int:
        """How far the true offset may lie from the one that is used."""
        return max(self.high_ns - self.offset_ns, self.offset_ns - self.low_ns)


def align_profile(inputs: AlignmentInputs, given_ns: int | None = None) -> Clock:
    """The clock of one profile; `given_ns` overrides every evidence."""
    if not inputs.logs or not len(inputs.profile.start_ns):
        alone = (ClockReason(ABSOLUTE, "", "there is no log that it has to agree with"),)
        return Clock(ABSOLUTE, given_ns or 0, given_ns or 0, given_ns or 0, alone)
    if given_ns is not None:
        half = max(log.start_uncertainty_ns for log in inputs.logs)
        why = (ClockReason(GIVEN, "", "with --clock-offset"),)
        if len(intervals.intersect(inputs.lifetime, make_interval(given_ns, given_ns)).start):
            return Clock(GIVEN, given_ns, given_ns - half, given_ns + half, why)
        return _give_up(inputs, (_tell_outside(inputs, given_ns),), why)
    claimed = find_absolute(inputs)
    within = inputs.lifetime
    if claimed is not None and not inputs.meets_logs:  # another run, whatever else fits
        return _give_up(inputs, (_tell_outside(inputs, 0),), _list_reasons([claimed]))
    # Of one process for sure: what the run shows can correct the clocks.
    if claimed is not None and inputs.identified:
        return _reconcile(inputs, claimed, _observe(inputs, claimed, within))
    if claimed is not None:
        # Perhaps of another process: only offsets are looked at that the clocks allow.
        inside = intervals.intersect(within, claimed.offsets)
        if not len(inside.start):
            return _give_up(inputs, (_tell_outside(inputs, 0),), ())
        return _reconcile(inputs, claimed, _observe(inputs, None, inside))
    return _reconcile(inputs, None, _observe(inputs, None, within))


def find_absolute(inputs: AlignmentInputs) -> Evidence | None:
    """The offsets that the error of the log's start leaves; None for a clock that is relative."""
    if not inputs.absolute:
        return None
    # The least certain log limits what is known of all.
    log = max(_logs_of(inputs), key=lambda log: log.start_uncertainty_ns)
    coarse, exact = log.start_resolution_ns, log.start_error_ns
    method, own = inputs.profile.clock_method, inputs.profile.clock_uncertainty_ns
    if coarse <= exact:
        half = log.start_uncertainty_ns
        reason = (
            f"both clocks count from the epoch, and the log's start is known to {_tell_ms(half)}"
        )
        late = -inputs.own.clock.low_ns if inputs.own and inputs.own.clock.late else half
        if late > half:
            reason += f", or late by up to {seconds(late / 1e9)} as that of a forked process"
        return Evidence(
            method, make_interval(-half - own, late + own), reason + _tell_roughness(own), 0
        )
    # Such a start was cut off: the true one is later, by up to that second.
    reason = "both clocks count from the epoch, and the log gives its start in whole seconds"
    return Evidence(
        method, make_interval(-coarse - exact - own, exact + own), reason + _tell_roughness(own)
    )


def _logs_of(inputs: AlignmentInputs) -> tuple[TracerLog, ...]:
    return (inputs.own.log,) if inputs.own else inputs.logs


def _tell_roughness(ns: int) -> str:
    """What to add for a profile that does not give its own start."""
    return f", the profile's to {_tell_ms(ns)}" if ns else ""


def _tell_ms(ns: int) -> str:
    return f"± {border(ns / 1e9)}"


def _observe(
    inputs: AlignmentInputs, claimed: Evidence | None, within: Intervals
) -> list[Evidence]:
    """What the run shows; first near the offset that the clocks claim, then anywhere.

    Marks of the loop count from the epoch in the traced process itself. Their file grows while
    the program runs, and they say nothing of batches and workers: there is nothing to show.
    """
    found: list[Evidence] = []
    if not inputs.one_axis or inputs.profile.marks_loop:
        return found
    for kind in EVIDENCE:
        near = None if claimed is None else kind(inputs, claimed.offsets)
        evidence = near if near is not None else kind(inputs, within)
        if evidence is not None:
            found.append(evidence)
    return found


def _reconcile(
    inputs: AlignmentInputs, claimed: Evidence | None, observed: list[Evidence]
) -> Clock:
    if claimed is None and not observed:
        nothing = "it does not count from the epoch, and nothing else shows how they differ"
        return _give_up(inputs, (_tell_ambiguity(inputs, nothing),), ())
    if claimed is not None:
        # The order of reads is inferred: where it contradicts the clocks, these are believed.
        against = [
            e for e in observed if e.method == worker_order.WORKER_ORDER and _is_apart(e, claimed)
        ]
        if against:
            clock = _reconcile(inputs, claimed, [e for e in observed if e not in against])
            notice = _tell_contradiction(inputs, [claimed, *against], "what the clocks say is used")
            return replace(clock, notices=(*clock.notices, notice))
    observed = [e for e in observed if claimed is None or _is_telling(e, claimed)]
    # What all observations allow together.
    seen = _intersect_all(observed, inputs.lifetime)
    if observed and not len(seen.start):
        notice = _tell_contradiction(inputs, observed, "so no overlap is claimed")
        return _give_up(inputs, (notice,), _list_reasons(observed))
    if claimed is None:
        return _place_clock(inputs, observed, seen, ())
    # Where observations contradict the claim they are used: a clock can be set wrong.
    both = intervals.intersect(seen, claimed.offsets)
    if len(both.start):
        return _place_clock(inputs, [claimed, *observed], both, ())
    if not observed:
        return _give_up(inputs, (_tell_outside(inputs, 0),), _list_reasons([claimed]))
    notice = _tell_contradiction(inputs, [claimed, *observed], "what the run shows is used")
    return _place_clock(inputs, observed, seen, (notice,))


def _is_telling(evidence: Evidence, claimed: Evidence) -> bool:
    """Whether evidence agrees with what the clocks claim, or is clear enough to contradict it."""
    return not _is_apart(evidence, claimed) or len(evidence.offsets.start) == 1


def _is_apart(evidence: Evidence, claimed: Evidence) -> bool:
    return not len(intervals.intersect(evidence.offsets, claimed.offsets).start)


def _intersect_all(observed: Iterable[Evidence], within: Intervals) -> Intervals:
    for evidence in observed:
        within = intervals.intersect(within, evidence.offsets)
    return within


def _place_clock(
    inputs: AlignmentInputs, used: list[Evidence], left: Intervals, notices: tuple[Notice, ...]
) -> Clock:
    """The clock where one short interval is left, "not aligned" else."""
    width = int((left.end - left.start).max())
    if len(left.start) > 1 or width > _PLACE_NS + 2 * 10_000_000:
        many = f"{len(left.start)} places fit" if len(left.start) > 1 else _tell_width(width)
        return _give_up(inputs, (*notices, _tell_ambiguity(inputs, many)), _list_reasons(used))
    low, high = int(left.start[0]), int(left.end[0]) - 1
    notices = (*notices, *_warn_of_coarse(inputs, low, high))
    # An offset that an observation prefers, else the middle.
    best = [e.best_ns for e in used if e.best_ns is not None and low <= e.best_ns <= high]
    offset = best[0] if best else (low + high) // 2
    method = " + ".join(e.method for e in used)
    return Clock(method, offset, low, high, _list_reasons(used), notices)


def _warn_of_coarse(inputs: AlignmentInputs, low: int, high: int) -> Iterator[Notice]:
    """A warning where I/O may be laid over a neighbouring step."""
    start, end = inputs.kind(SpanKind.STEP)
    usual = float(np.median(end - start)) if len(start) else 0.0
    if usual and high - low > usual:
        yield Notice(
            "clock_coarse",
            f"{inputs.profile.path}: its clock is known to lie within "
            f"{range_words(low / 1e9, high / 1e9)} of that of the logs, and a step takes "
            f"{seconds(usual / 1e9)}: what I/O fell into which step, and what was hidden, may be "
            "that of a neighbouring step.",
        )


def _tell_width(width: int) -> str:
    return f"what is known leaves {seconds(width / 1e9)} open"


def _list_reasons(evidence: Iterable[Evidence]) -> tuple[ClockReason, ...]:
    return tuple(ClockReason(e.method, _tell_range(e.offsets), e.reason) for e in evidence)


def _tell_range(offsets: Intervals) -> str:
    """The offsets that are left open, in words."""
    low, high = int(offsets.start[0]), int(offsets.end[-1]) - 1
    many = "" if len(offsets.start) == 1 else f" in {len(offsets.start)} intervals"
    # No lower end: the evidence only bounds the offset from above.
    if low < -(2**61):
        return f"at most {offset(high / 1e9)}"
    return range_words(low / 1e9, high / 1e9) + many


def _give_up(
    inputs: AlignmentInputs, notices: tuple[Notice, ...], evidence: tuple[ClockReason, ...]
) -> Clock:
    life = inputs.lifetime
    low, high = (int(life.start[0]), int(life.end[0]) - 1) if len(life.start) else (0, 0)
    return Clock(NOT_ALIGNED, 0, low, high, evidence, notices)


def _tell_contradiction(inputs: AlignmentInputs, evidence: list[Evidence], result: str) -> Notice:
    return Notice(
        "clock_contradiction",
        f"{inputs.profile.path}: the evidence on its clock contradicts itself, {result}: "
        f"{'; '.join(map(str, _list_reasons(evidence)))}. If you know the difference, give "
        "--clock-offset SECONDS.",
    )


def _tell_ambiguity(inputs: AlignmentInputs, why: str) -> Notice:
    return Notice(
        "clock_unverified",
        f"{inputs.profile.path}: its clock could not be put on that of the logs ({why}), so no "
        "overlap is claimed. If you know the difference, give --clock-offset SECONDS.",
    )


def _tell_outside(inputs: AlignmentInputs, offset_ns: int) -> Notice:
    """A profile outside the time that the logs cover."""
    start = min(log.start_ns for log in inputs.logs)
    end = max(log.end_ns for log in inputs.logs)
    first, last = (bound + offset_ns - start for bound in inputs.bounds)
    return Notice(
        "clock_unverified",
        f"{inputs.profile.path}: its spans run from {first / 1e9:.3f} to {last / 1e9:.3f} s after "
        f"the first log's start, the logs end at {(end - start) / 1e9:.3f} s. The clocks do not "
        "agree or these are different runs: no overlap is claimed. If you know the difference, "
        "give --clock-offset SECONDS.",
    )
