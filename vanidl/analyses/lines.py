"""The lines of the program that fetches and steps spend their time in, each time once.

A line that calls a function which was sampled as well has what is left without that; what a line
of the program calls in libraries stays with it, as that is the line to change. So the shares of a
part add up to 1 at most.
"""

from __future__ import annotations

from collections import defaultdict

from vanidl.model.lines import FETCH, LOOP, FunctionLines, SampledPart
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass

MOST_LINES = 100
_LITTLE = 0.001  # of a part: lines with less are left out

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Line:
    """One line: shares of its part's wall time, of its processor time and of the rest."""

    file: str
    line: int
    function: str
    text: str  # "" where the source was not at hand
    share: float
    cpu_share: float
    blocked_share: float
    wall_s: float
    cpu_s: float
    hits: int


@dataclass(frozen=True, slots=True)
class PartLines:
    """What was sampled of fetches, or of steps between their batches; most costly lines first."""

    samples: int
    wall_s: float
    cpu_s: float
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Costs of lines. None: no function of that part could be sampled."""

    fetch: PartLines | None
    loop: PartLines | None


def finish(trace: Trace) -> Lines | None:
    """The lines of a run, over all its processes; None where none was sampled."""
    parts = {part.name: _count_part(part) for part in trace.lines if part.wall_ns}
    if not any(parts.values()):
        return None
    return Lines(parts.get(FETCH), parts.get(LOOP))


def _count_part(part: SampledPart) -> PartLines | None:
    known = {function.key: function for function in part.functions}
    shown = [f for f in part.functions if f.own] or list(part.functions)
    keys = {function.key for function in shown}
    # The time of a line holds that of functions it called: of those shown it is taken away.
    inside: dict[tuple[Key, int], list[int]] = defaultdict(lambda: [0, 0])
    for function in shown:
        place = _find_caller(function, known, keys)
        if place is not None:
            inside[place][0] += sum(line.wall_ns for line in function.lines)
            inside[place][1] += sum(line.cpu_ns for line in function.lines)
    spent = []
    for function in shown:
        for line in function.lines:
            wall_inside, cpu_inside = inside.get((function.key, line.number), (0, 0))
            wall_ns = max(line.wall_ns - wall_inside, 0)
            cpu_ns = min(max(line.cpu_ns - cpu_inside, 0), wall_ns)
            spent.append((function, line, wall_ns, cpu_ns))
    # Of inner and outer functions not quite the same was taken away for what tracing added.
    of_wall = max(part.wall_ns, sum(wall_ns for _, _, wall_ns, _ in spent))
    of_cpu = max(part.cpu_ns, sum(cpu_ns for _, _, _, cpu_ns in spent), 1)
    of_blocked = max(of_wall - of_cpu, sum(wall - cpu for _, _, wall, cpu in spent), 1)
    found = [
        Line(
            function.file, line.number, function.name, line.text, wall_ns / of_wall,
            cpu_ns / of_cpu, (wall_ns - cpu_ns) / of_blocked, wall_ns / 1e9, cpu_ns / 1e9,
            line.hits,
        )
        for function, line, wall_ns, cpu_ns in spent
    ]  # fmt: skip
    found.sort(key=lambda line: (-line.wall_s, line.file, line.line))
    kept = tuple(line for line in found[:MOST_LINES] if line.share >= _LITTLE)
    return PartLines(part.samples, part.wall_ns / 1e9, part.cpu_ns / 1e9, kept) if kept else None


def _find_caller(
    function: FunctionLines, known: dict[Key, FunctionLines], shown: set[Key]
) -> tuple[Key, int] | None:
    """The line of a shown function that a function is called from, through others that are not."""
    seen = {function.key}
    while function.parent is not None and function.parent not in seen:
        if function.parent in shown:
            return function.parent, function.parent_line
        seen.add(function.parent)
        if function.parent not in known:
            break
        function = known[function.parent]
    return None
