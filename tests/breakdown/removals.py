"""Evidence removed from a recorded run, at random: what is left must widen cells, not move them.

A trace that lost something says so, as a reader would: a log that is cut is not whole, a layer
that was switched off and a process without a log are warned of, marks that are missing leave a
gap in their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from vanidl.model.intervals import Intervals
from vanidl.model.trace import NO_FETCHES, STDIO, Part, SpanKind, Trace
from vanidl.model.warnings import Notice

Random: TypeAlias = np.random.Generator
Removal = Callable[[Trace, Random], Trace]


def remove_some(trace: Trace, random: Random) -> tuple[Trace, tuple[str, ...]]:
    """The trace without one to three kinds of evidence, and what was removed."""
    names = random.choice(sorted(REMOVALS), size=int(random.integers(1, 4)), replace=False).tolist()
    for name in names:
        trace = REMOVALS[name](trace, random)
    return trace, tuple(names)


def _layer(trace: Trace, random: Random) -> Trace:
    """A layer was switched off: no call of it was traced or counted."""
    known = sorted({*trace.layers_traced, *trace.counters})
    if not known:
        return trace
    layer = str(random.choice(known))
    counters = {name: table for name, table in trace.counters.items() if name != layer}
    io = [part for part in trace.io if part.layer != layer]
    # What is no data call is told by layer in no tracer.
    calls = {} if layer != STDIO else {"metadata_calls": trace.metadata_calls, "calls": trace.calls}
    left = {"metadata_calls": {}, "calls": {}} | calls
    traced = tuple(name for name in trace.layers_traced if name != layer)
    return _warned(replace(trace, counters=counters, io=io, layers_traced=traced, **left),
                   "layer_switched_off")  # fmt: skip


def _counters(trace: Trace, random: Random) -> Trace:
    """Nothing was counted."""
    del random
    return replace(trace, counters={})


def _calls(trace: Trace, random: Random) -> Trace:
    """Nothing was traced."""
    del random
    return replace(trace, io=[], layers_traced=(), metadata_calls={}, calls={})


def _metadata_calls(trace: Trace, random: Random) -> Trace:
    """What is no data call was not timed one by one."""
    del random
    return replace(trace, metadata_calls={}, calls={})


def _half_a_log(trace: Trace, random: Random) -> Trace:
    """The log of a process ends early, or lost records here and there."""
    with_calls = sorted({part.process for part in trace.io})
    if not with_calls:
        return trace
    process = int(random.choice(with_calls))
    until = _middle(trace, random)
    early = bool(random.integers(2))

    def rest(part: Part) -> Part:
        if part.process != process:
            return part
        return part.rows(part.start < until if early else random.random(len(part)) < 0.5)

    def of_calls(times: Intervals) -> Intervals:
        kept = times.start < until if early else random.random(len(times.start)) < 0.5
        return Intervals(times.start[kept], times.end[kept])

    metadata = {p: of_calls(t) if p == process else t for p, t in trace.metadata_calls.items()}
    by_kind = {
        p: {kind: of_calls(t) for kind, t in kinds.items()} if p == process else kinds
        for p, kinds in trace.calls.items()
    }
    name = trace.processes[process].log
    logs = tuple(
        replace(log, whole=False) if log.path == name or len(trace.logs) == 1 else log
        for log in trace.logs
    )
    cut = replace(trace, io=[rest(part) for part in trace.io], metadata_calls=metadata,
                  calls=by_kind, logs=logs)  # fmt: skip
    return _warned(cut, "truncated")


def _log(trace: Trace, random: Random) -> Trace:
    """The log of a process is missing."""
    with_logs = [i for i, process in enumerate(trace.processes) if process.log]
    if not with_logs:
        return trace
    gone = int(random.choice(with_logs))
    processes = list(trace.processes)
    processes[gone] = replace(processes[gone], log="")
    counters = {}
    for name, table in trace.counters.items():
        kept = table.process != gone
        counters[name] = replace(
            table,
            process=table.process[kept],
            file=table.file[kept],
            counters={k: v[kept] for k, v in table.counters.items()},
            seconds={k: v[kept] for k, v in table.seconds.items()},
        )
    left = replace(
        trace,
        processes=tuple(processes),
        counters=counters,
        io=[part for part in trace.io if part.process != gone],
        metadata_calls={p: t for p, t in trace.metadata_calls.items() if p != gone},
        calls={p: t for p, t in trace.calls.items() if p != gone},
    )
    return _warned(left, "processes_missing")


def _profile(trace: Trace, random: Random) -> Trace:
    """A profile of what computes is missing."""
    of_work = [i for i, profile in enumerate(trace.profiles) if not profile.marks_loop]
    if not of_work:
        return trace
    gone = int(random.choice(of_work))
    kinds = (SpanKind.OP, SpanKind.KERNEL, SpanKind.COMMUNICATION)
    lost = (trace.spans.source == gone) & np.isin(trace.spans.kind, kinds)
    return replace(trace, spans=trace.spans.pick(~lost))


def _fetches(trace: Trace, random: Random) -> Trace:
    """Fetches were not marked, or some of them."""
    kept = random.random(len(trace.fetches)) < random.choice([0.0, 0.5, 0.9])
    return replace(trace, fetches=trace.fetches.pick(kept) if kept.any() else NO_FETCHES)


def _ahead(trace: Trace, random: Random) -> Trace:
    """Nobody knows how many batches were asked for ahead."""
    del random
    fetches = trace.fetches
    return replace(trace, fetches=replace(fetches, ahead=np.full(len(fetches), -1, np.int64)))


def _steps(trace: Trace, random: Random) -> Trace:
    """Marks of some steps are lost, of none at an end: their numbers show it."""
    steps = np.flatnonzero(trace.spans.kind == SpanKind.STEP)
    lost = steps[random.random(len(steps)) < 0.3]
    for rank in np.unique(trace.spans.process[steps]).tolist():
        mine = steps[trace.spans.process[steps] == rank]
        lost = np.setdiff1d(lost, mine[[0, -1]])
    return replace(trace, spans=trace.spans.pick(np.setdiff1d(np.arange(len(trace.spans)), lost)))


def _waits(trace: Trace, random: Random) -> Trace:
    """Input waits were not marked, nor which of them took a batch."""
    del random
    profiles = tuple(replace(profile, has_wait_spans=False) for profile in trace.profiles)
    spans = trace.spans.pick(trace.spans.kind != SpanKind.INPUT_WAIT)
    return replace(trace, profiles=profiles, spans=spans, fetches=NO_FETCHES)


def _clocks(trace: Trace, random: Random) -> Trace:
    """The clock of a process is known less well, and its calls lie elsewhere within that."""
    with_calls = sorted({part.process for part in trace.io})
    if not with_calls:
        return trace
    process = int(random.choice(with_calls))
    off = int(random.integers(2_000_000, 20_000_001)) * int(random.choice([-1, 1]))

    def moved(times: Intervals) -> Intervals:
        return Intervals(times.start + off, times.end + off)

    processes = list(trace.processes)
    one = processes[process]
    processes[process] = replace(
        one,
        clock_offset_ns=one.clock_offset_ns + off,
        clock_low_ns=min(one.clock_low_ns, one.clock_low_ns + off),
        clock_high_ns=max(one.clock_high_ns, one.clock_high_ns + off),
        clock_uncertainty_ns=one.clock_uncertainty_ns + abs(off),
    )
    return replace(
        trace,
        processes=tuple(processes),
        io=[part.shifted(off) if part.process == process else part for part in trace.io],
        metadata_calls={p: moved(t) if p == process else t
                        for p, t in trace.metadata_calls.items()},
        calls={p: {k: moved(t) for k, t in kinds.items()} if p == process else kinds
               for p, kinds in trace.calls.items()},
    )  # fmt: skip


def _middle(trace: Trace, random: Random) -> int:
    low, high = trace.job.start_ns, trace.job.end_ns
    return int(low + random.uniform(0.2, 0.8) * (high - low))


def _warned(trace: Trace, code: str) -> Trace:
    return replace(trace, warnings=(*trace.warnings, Notice(code, "Evidence was removed.")))


REMOVALS: dict[str, Removal] = {
    "a layer": _layer,
    "counters": _counters,
    "traced calls": _calls,
    "metadata calls": _metadata_calls,
    "half a log": _half_a_log,
    "a log": _log,
    "profile": _profile,
    "fetches": _fetches,
    "batches asked ahead": _ahead,
    "steps": _steps,
    "waits": _waits,
    "clocks": _clocks,
}
