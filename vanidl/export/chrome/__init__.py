"""The merged timeline for Perfetto and chrome://tracing: one JSON file, written as a stream.

Trace Event Format, JSON object form. Times are microseconds since the start of the job, or of
what came before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import IO

from vanidl.errors import UsageError
from vanidl.export.chrome import counters, flows, slices, tracks
from vanidl.files import atomic
from vanidl.formatting.units import plural
from vanidl.frames import storable
from vanidl.model.selection import select
from vanidl.model.trace import Trace
from vanidl.run import Run


def write(run: Run, path: Path) -> list[tuple[str, str]]:
    """Operations, spans, bandwidth and what ties them together; gzip where the name says so.

    Raises:
        UsageError: there is neither an operation nor a span to write.
        VanidlError: the file cannot be written.
    """
    trace = select(run.trace, run.selection)
    events = _Events(run, trace)
    if not trace.io and not len(trace.spans):
        raise UsageError(
            "--to chrome: no single operation was traced and no step profiled: there is nothing "
            "to put on a timeline."
        )
    with atomic.streamed_file(path) as file:
        head = json.dumps(_about(trace, events.zero_ns), separators=(",", ":"))
        file.write(f'{{"displayTimeUnit":"ms","otherData":{head},"traceEvents":[\n'.encode())
        _write_lines(file, events.blocks())
        file.write(b"\n]}\n")
    return [(name, plural(count, "event")) for name, count in events.counts.items()]


class _Events:
    """All events of a run in turn, counted by what they are."""

    def __init__(self, run: Run, trace: Trace) -> None:
        self._run, self._trace = run, trace
        self._tracks = tracks.Tracks()
        self.zero_ns = _zero_ns(trace)
        self.counts: dict[str, int] = {}

    def blocks(self) -> Iterator[list[str]]:
        """The events in blocks, none of them empty."""
        trace, named, zero_ns = self._trace, self._tracks, self.zero_ns
        timeline = self._run.results.timeline
        arrows = flows.Flows(self._run.trace, trace, zero_ns)
        yield from self._counted("process names", [list(tracks.processes(trace))])
        yield from self._counted("spans", slices.spans(trace, named, zero_ns))
        yield from self._counted("operations", self._operations(arrows))
        yield from self._counted("arrows", _blocks(arrows.text(named)))
        yield from self._counted("bandwidth", _blocks(counters.counters(trace, timeline, zero_ns)))
        yield from self._counted("track names", _blocks(named.metadata()))

    def _operations(self, arrows: flows.Flows) -> Iterator[list[str]]:
        writer = slices.Operations(self._trace, self._tracks, self.zero_ns)
        for part, rows in writer.blocks(self._trace.io):
            arrows.meet(part, rows.track)
            yield writer.text(part, rows)

    def _counted(self, name: str, blocks: Iterable[list[str]]) -> Iterator[list[str]]:
        self.counts[name] = 0
        for block in blocks:
            self.counts[name] += len(block)
            yield block


def _blocks(events: Iterator[str]) -> Iterator[list[str]]:
    while block := list(islice(events, slices.BLOCK_ROWS)):
        yield block


def _write_lines(file: IO[bytes], blocks: Iterable[list[str]]) -> None:
    """One event a line, with a comma between."""
    separator = ""
    for block in blocks:
        file.write((separator + ",\n".join(block)).encode())
        separator = ",\n"


def _zero_ns(trace: Trace) -> int:
    """The start of the job, or of the first operation or span where one began before."""
    starts = [int(part.start[0]) for part in trace.io if len(part)]
    starts += [int(trace.spans.start[0])] if len(trace.spans) else []
    return min([trace.job.start_ns, *starts])


def _about(trace: Trace, zero_ns: int) -> dict[str, object]:
    zero = datetime.fromtimestamp(zero_ns // 10**9, timezone.utc)
    return {
        "command": storable(trace.job.command),
        "zero": f"{zero:%Y-%m-%dT%H:%M:%S}.{zero_ns % 10**9:09d}Z",
        "zero_ns": zero_ns,
        "clocks": [
            {
                "profile": storable(Path(profile.path).name),
                "method": profile.clock_method,
                "uncertainty_s": profile.clock_uncertainty_ns / 1e9,
            }
            for profile in trace.profiles
        ],
    }
