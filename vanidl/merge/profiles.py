"""Profiles and their clocks -> spans on the trace's clock, and steps that have no place on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.merge.clocks import Clock
from vanidl.merge.process_table import ProcessTable
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import (
    CheckpointCall,
    Process,
    Profile,
    SpanKind,
    Spans,
    UndatedSteps,
    concatenate_spans,
)
from vanidl.model.warnings import Notice
from vanidl.readers.records import ProfileTrace, StepDurations, same_host


def without_bare_loops(profiles: Sequence[ProfileTrace]) -> list[ProfileTrace]:
    """The profiles without recorded loops whose loader is unknown, where another has the steps.

    Of a loader that is no DataLoader the recorder sees optimizer steps and no wait.
    """

    def gives_way(bare: ProfileTrace) -> bool:
        if not bare.marks_loop or (bare.kind == SpanKind.INPUT_WAIT).any():
            return False
        return any(
            p.pid == bare.pid and not p.marks_loop and same_host(p.host, bare.host)
            for p in profiles
            if np.isin(p.kind, (SpanKind.STEP, SpanKind.INPUT_WAIT)).any()
        )

    return [profile for profile in profiles if not gives_way(profile)]


def spans(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> Spans:
    """All spans on one clock; those of a profile that is not aligned are left out."""
    names = sorted({name for p in profiles for name in p.names})
    code = {name: i for i, name in enumerate(names)}
    aligned = [k for k in range(len(profiles)) if clocks[k].aligned]
    looped = {processes.of_profile[k] for k in aligned if profiles[k].marks_loop}
    blocks = [
        _shifted(p, k, processes.of_profile[k], clocks[k].offset_ns, code).pick(
            _not_repeated(p, within=processes.of_profile[k] in looped)
        )
        for k, p in ((k, profiles[k]) for k in aligned)
    ]
    found = concatenate_spans(blocks, tuple(names))
    return found.pick(np.lexsort((found.end, found.process, found.start)))


def _not_repeated(profile: ProfileTrace, *, within: bool) -> NDArray[np.bool_]:
    """Spans to use: where the loop was marked as a whole, a profile's own steps are repeats."""
    if profile.marks_loop or not within:
        return np.ones(len(profile.kind), bool)
    return ~np.isin(profile.kind, (SpanKind.STEP, SpanKind.INPUT_WAIT))


def _shifted(
    profile: ProfileTrace, source: int, process: int, offset_ns: int, code: Mapping[str, int]
) -> Spans:
    n = len(profile.start_ns)
    renamed = np.array([code[name] for name in profile.names] or [0], np.int32)
    return Spans(
        start=profile.start_ns + offset_ns,
        end=profile.end_ns + offset_ns,
        process=np.full(n, process, np.int32),
        step=profile.step,
        kind=profile.kind,
        thread=profile.thread,
        name=renamed[profile.name],
        source=np.full(n, source, np.int32),
        names=profile.names,
    )


def describe(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> tuple[Profile, ...]:
    """Where each profile came from, and how it was put on the clock."""
    return tuple(
        Profile(
            path=p.path,
            source=p.source,
            process=processes.of_profile[k],
            has_wait_spans=bool((p.kind == SpanKind.INPUT_WAIT).any()),
            devices=p.devices,
            steps_from=p.steps_from,
            clock_method=clocks[k].method,
            clock_offset_ns=clocks[k].offset_ns,
            clock_uncertainty_ns=clocks[k].uncertainty_ns,
            clock_low_ns=clocks[k].low_ns,
            clock_high_ns=clocks[k].high_ns,
            clock_evidence=clocks[k].evidence,
            marks_loop=p.marks_loop,
            device=p.device,
            thread_known=processes.of_profile[k] in processes.threads,
            dataset_kind=p.dataset_kind,
            purpose=p.purpose,
            frameworks=p.frameworks,
            device_in_part=p.device_in_part,
        )
        for k, p in enumerate(profiles)
    )


def checkpoint_calls(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> tuple[CheckpointCall, ...]:
    """Saves and loads on the one clock, by start."""
    found = [
        replace(
            call,
            start=call.start + clocks[k].offset_ns,
            end=call.end + clocks[k].offset_ns,
            process=processes.of_profile[k],
        )
        for k, profile in enumerate(profiles)
        for call in profile.checkpoint_calls
        if clocks[k].aligned
    ]
    return tuple(sorted(found, key=lambda call: (call.start, call.end, call.process)))


def queued(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> dict[int, Intervals]:
    """When devices of a process did nothing though work had been handed to them."""
    found: dict[int, Intervals] = {}
    for k, profile in enumerate(profiles):
        if profile.queued is not None and clocks[k].aligned:
            process = processes.of_profile[k]
            times = profile.queued.shifted(clocks[k].offset_ns)
            found[process] = intervals.merge(found.get(process, intervals.EMPTY), times)
    return found


def unplaced_steps(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> list[UndatedSteps]:
    """The steps of profiles that are not aligned: how long they took is known all the same."""
    return [
        _durations(p, processes.of_profile[k])
        for k, p in enumerate(profiles)
        if not clocks[k].aligned
    ]


def _durations(profile: ProfileTrace, process: int) -> UndatedSteps:
    steps = profile.step >= 0
    duration = profile.end_ns[steps] - profile.start_ns[steps]
    return UndatedSteps(process, profile.source, profile.step[steps], duration)


def undated_steps(
    tables: Sequence[StepDurations], processes: Sequence[Process]
) -> tuple[list[UndatedSteps], list[Notice]]:
    """Step tables with their process, the only trainer of their host; and what has none."""
    found, lost = [], []
    for table in sorted(tables, key=lambda d: d.path):
        fits = [
            i
            for i, p in enumerate(processes)
            if p.role == "trainer" and same_host(p.host, table.host)
        ]
        if len(fits) == 1:
            found.append(UndatedSteps(fits[0], table.source, table.step, table.duration_ns))
        else:
            lost.append(f"{table.path} ({len(fits)} training processes on its host)")
    if not lost:
        return found, []
    message = (
        f"{len(lost)} step tables without times name a host and no process, and could not be "
        f"given to one (first: {lost[0]}): they are not in the report."
    )
    return found, [Notice("steps_unmatched", message)]
