"""The clock of every log, and logs and processes laid on the run's one clock by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from vanidl.formatting.units import plural, seconds
from vanidl.merge.clocks import log_fetches, log_order
from vanidl.merge.clocks.align import Clock
from vanidl.merge.clocks.inputs import AlignmentInputs, TracedProcess
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.merge.process_table import ProcessTable
from vanidl.model.trace import Process, SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers.records import TracerLog


def clocks_of_logs(
    traced: Mapping[int, TracedProcess], aligned: Iterable[tuple[AlignmentInputs, Clock]]
) -> dict[int, LogClock]:
    """The clock of the log of every traced process: its own records, then each profile's.

    A profile tells by the order of its waits, and by fetches where they were recorded. Of a
    process with several profiles the narrowest is used.
    """
    known = {number: process.clock for number, process in traced.items()}
    for inputs, clock in aligned:
        of_order, of_fetches = log_order.find(inputs, clock), log_fetches.find(inputs, clock)
        for number, found in (*of_order.items(), *of_fetches.items()):
            if found.high_ns - found.low_ns < known[number].high_ns - known[number].low_ns:
                known[number] = found
    return known


def laid_on_one_clock(
    logs: Sequence[TracerLog], processes: ProcessTable, clocks: Mapping[int, LogClock]
) -> tuple[list[TracerLog], tuple[Process, ...]]:
    """Logs and processes with the starts that their clocks give; ends were exact as logged."""
    offsets = {
        i: clocks[n].offset_ns
        for (i, _), n in processes.of_log.items()
        if n in clocks and not logs[i].beside
    }
    moved = [
        replace(log, start_ns=log.start_ns + offsets[i]) if offsets.get(i) else log
        for i, log in enumerate(logs)
    ]
    rows = [
        _known(process, clocks[number]) if number in clocks else process
        for number, process in enumerate(processes.rows)
    ]
    return moved, tuple(rows)


def _known(process: Process, clock: LogClock) -> Process:
    start = process.start_ns
    return replace(
        process,
        start_ns=None if start is None else start + clock.offset_ns,
        clock_offset_ns=clock.offset_ns,
        clock_uncertainty_ns=clock.uncertainty_ns,
        clock_low_ns=clock.low_ns,
        clock_high_ns=clock.high_ns,
        clock_evidence=clock.evidence,
    )


def coarse(
    aligned: Iterable[tuple[AlignmentInputs, Clock]], clocks: Mapping[int, LogClock]
) -> Iterator[Notice]:
    """A warning where I/O of workers may be laid over a neighbouring step of their trainer."""
    for inputs, clock in aligned:
        start, end = inputs.kind(SpanKind.STEP)
        usual = float(np.median(end - start)) if len(start) else 0.0
        widths = [clocks[w.number].high_ns - clocks[w.number].low_ns for w in inputs.workers]
        wide = [width for width in widths if width > usual]
        if clock.aligned and usual and wide:
            yield Notice(
                "clock_coarse",
                f"{inputs.profile.path}: the times in {plural(len(wide), 'log')} of "
                f"{plural(len(widths), 'worker')} are known to lie within "
                f"{seconds(max(wide) / 1e9)} and a step takes {seconds(usual / 1e9)}: what of "
                "their I/O fell into which step, and what was hidden, may be that of a "
                "neighbouring step. Darshan takes the start of a forked process late by an amount "
                "that it does not record: a smaller MODMEM makes it less, DFTracer has none of it.",
            )
