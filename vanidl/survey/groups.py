"""Which users, programs and file systems lose most hours to input, and which findings say why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Cell, Link, count
from vanidl.survey.hours import HoursOf, file_systems_of, hours_of, program_of, with_input
from vanidl.survey.rows import Row

SECTION = "Input"
MOST_GROUPS = 100
_LONGEST = 60

_Parts = Callable[[Row], Iterable[tuple[str, float]]]
_NO_COUNTERS = "No job has counters of the time in reads."


@dataclass(slots=True)
class _Sum:
    """What the jobs of one group sum to; `worst` is the index of the one with most."""

    jobs: int = 0
    lost: float = 0.0
    had: float = 0.0
    users: set[str] = field(default_factory=set)
    worst: tuple[float, int] = (-1.0, -1)

    def add(self, row: Row, index: int, lost: float, had: float) -> None:
        self.jobs += 1
        self.lost += lost
        self.had += had
        self.users.add(row["user"] or "not known")
        self.worst = max(self.worst, (lost, -index))


def user_of(row: Row) -> Iterable[tuple[str, float]]:
    """The one user, with all of the job's time."""
    return ((row["user"] or "not known", 1.0),)


def program_part(row: Row) -> Iterable[tuple[str, float]]:
    """The one program, with all of the job's time."""
    return ((program_of(row["command"]), 1.0),)


GROUPS: tuple[tuple[str, str, _Parts], ...] = (
    ("users", "user", user_of),
    ("commands", "command", program_part),
    ("file-systems", "file system", file_systems_of),
)
"""Id of the figure, what a group is, and in which groups a job is with which shares."""


def group_figures(rows: Sequence[Row], reports: Mapping[int, str]) -> tuple[Figure, ...]:
    """A table for each of GROUPS, and one of the findings."""
    hours = hours_of(rows)
    made = [_figure(rows, reports, hours, named) for named in GROUPS]
    return (*made, findings_figure(rows, reports))


def _figure(
    rows: Sequence[Row], reports: Mapping[int, str], hours: HoursOf, named: tuple[str, str, _Parts]
) -> Figure:
    key, noun, parts = named
    title = f"Input by {noun}"
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for index, row in enumerate(rows):
        if row["input_rank_hours"] is not None:
            for name, share in parts(row):
                sums[name].add(row, index, share * hours.input(row), hours.all(row))
    if not sums:
        return Figure(key, SECTION, title, "", empty_reason=_NO_COUNTERS)
    total = sum(one.lost for one in sums.values())
    order = sorted(sums, key=lambda name: (-sums[name].lost, name))
    lines = tuple(
        (elided(name, limit=_LONGEST), sums[name].lost, sums[name].lost / total if total else None,
         sums[name].lost / sums[name].had if sums[name].had else None, sums[name].jobs,
         *([] if noun == "user" else [len(sums[name].users)]),
         _worst(rows, reports, sums[name]))
        for name in order[:MOST_GROUPS]
    )  # fmt: skip
    columns = (
        Column(noun), Column(f"input ({hours.noun} h)", "number"), Column("of all input", "share"),
        Column("of its jobs' time", "share"), Column("jobs", "count"),
        *([] if noun == "user" else [Column("users", "count")]),
        Column("job with most"),
    )  # fmt: skip
    table = Table(columns, lines, n_of_m(len(lines), len(order), f"{noun}s"), sorted_by=1)
    return Figure(key, SECTION, title, _caption(rows, hours), table=table)


def _caption(rows: Sequence[Row], hours: HoursOf) -> str:
    known = with_input(rows)
    said = [
        f"Hours of {hours.noun}s in which reads of the dataset went on, hidden or not: no more "
        "was lost."
    ]
    if hours.noun == "rank":
        missing = sum(row["input_node_hours"] is None for row in known)
        jobs = f"{count(missing)} of {count(len(known))} jobs"
        said.append(f"Hours of ranks, as {jobs} do not say on which nodes all their ranks ran.")
    return " ".join(said)


def _worst(rows: Sequence[Row], reports: Mapping[int, str], found: _Sum) -> Cell:
    return job_cell(rows, reports, -found.worst[1])


def job_cell(rows: Sequence[Row], reports: Mapping[int, str], index: int) -> Cell:
    """The name of a job, which leads to its report where there is one."""
    name = elided(rows[index]["job"] or rows[index]["first_log"], limit=22)
    return Link(name, reports[index]) if index in reports else name


def findings_figure(rows: Sequence[Row], reports: Mapping[int, str]) -> Figure:
    """The findings, most hours that following them can save first."""
    read = [row for row in rows if row["finding_codes"] is not None]
    hours = HoursOf("rank" if any(row["nodes"] is None for row in read) else "node")
    jobs: defaultdict[str, list[tuple[float | None, int]]] = defaultdict(list)
    for index, row in enumerate(rows):
        pairs = zip(row["finding_codes"] or (), row["finding_gains_s"] or (), strict=True)
        for code, gain_s in pairs:
            jobs[code].append((None if gain_s is None else hours.gain(row, gain_s), -index))
    title = "Findings of all jobs"
    if not jobs:
        return Figure("findings", SECTION, title, "", empty_reason="No job has a finding.")
    lines = [_finding(code, found, len(read), rows, reports) for code, found in jobs.items()]
    lines.sort(key=lambda line: (-(line[1] or 0.0), -line[2], line[0]))
    columns = (
        Column("finding"), Column(f"saves at most ({hours.noun} h)", "number"),
        Column("jobs", "count"), Column("of all jobs", "share"),
        Column("jobs with no bound", "count"),
        Column("job with most"),
    )  # fmt: skip
    caption = (
        "What following the advice of a finding can save at most, summed over the jobs whose trace "
        "bounds it. Findings of one job overlap: their savings do not add up."
    )
    return Figure(
        "findings", SECTION, title, caption, table=Table(columns, tuple(lines), sorted_by=1)
    )


_FindingLine = tuple[str, float | None, int, float, int, Cell]


def _finding(
    code: str,
    found: Sequence[tuple[float | None, int]],
    read: int,
    rows: Sequence[Row],
    reports: Mapping[int, str],
) -> _FindingLine:
    bounded = [(gain, at) for gain, at in found if gain is not None]
    gain = sum(hours for hours, _ in bounded) if bounded else None
    most = -max(bounded)[1] if bounded else -found[0][1]
    return (code, gain, len(found), len(found) / read, len(found) - len(bounded),
            job_cell(rows, reports, most))  # fmt: skip
