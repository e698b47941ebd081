"""Which users, programs and file systems lose most hours to input, and which findings say why."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Cell, Link, count, plural
from vanidl.survey.fleet import (
    Fleet,
    HoursOf,
    Parts,
    label_texts,
    pick_hours,
    select_with_input,
    split_by_file_system,
    split_by_program,
    split_by_user,
)
from vanidl.survey.rows import Row

SECTION = "Input"
MOST_GROUPS = 100
_LONGEST = 60
_NO_COUNTERS = "No job has counters of the time in reads."

GROUPS: tuple[tuple[str, str, Callable[[Fleet], Parts]], ...] = (
    ("users", "user", split_by_user),
    ("commands", "command", split_by_program),
    ("file-systems", "file system", split_by_file_system),
)
"""Id of the figure, what a group is, and in which groups jobs are with which shares."""


def group_figures(jobs: Fleet, reports: Mapping[int, str]) -> tuple[Figure, ...]:
    """A table for each of GROUPS, and one of the findings."""
    hours = pick_hours(jobs)
    counted = select_with_input(jobs)
    caption = (
        f"Hours of {hours.noun}s in which reads of the dataset went on, hidden or not: no more "
        "was lost."
    )
    # Hours of ranks stand in where not all nodes are known.
    if hours.noun == "rank":
        missing = len(counted) - int(counted.known("input_node_hours").sum())
        whose = "does not say on which nodes all its"
        if missing != 1:
            whose = "do not say on which nodes all their"
        of_all = f"{count(missing)} of {plural(len(counted), 'job')}"
        caption += f" Hours of ranks, as {of_all} {whose} ranks ran."
    figures = []
    for key, noun, parts in GROUPS:
        table = _build_table(counted, parts(counted), reports, hours, noun)
        said, empty = (caption, "") if table else ("", _NO_COUNTERS)
        title = f"Input by {noun}"
        figures.append(Figure(key, SECTION, title, said, table=table, empty_reason=empty))
    return (*figures, draw_findings(jobs, reports))


def _build_table(
    jobs: Fleet, parts: Parts, reports: Mapping[int, str], hours: HoursOf, noun: str
) -> Table | None:
    """None where there is no group."""
    if not parts.names:
        return None
    lost_hours = hours.input(jobs)
    lost = parts.sums(lost_hours).tolist()
    order = sorted(range(len(lost)), key=lambda group: (-lost[group], parts.names[group]))
    shown, total = order[:MOST_GROUPS], sum(lost)
    # Jobs of each group and the hours that they had, and of its users how many they are.
    had = np.bincount(parts.group, hours.all(jobs)[parts.job], len(parts.names)).tolist()
    many = np.bincount(parts.group, minlength=len(parts.names)).tolist()
    user = split_by_user(jobs)
    pairs = np.unique(parts.group * len(user.names) + user.group[parts.job])
    users = np.bincount(pairs // len(user.names), minlength=len(parts.names)).tolist()
    lines = [
        (elided(parts.names[group], limit=_LONGEST), lost[group],
         lost[group] / total if total else None, lost[group] / had[group] if had[group] else None,
         many[group], *([] if noun == "user" else [users[group]]))
        for group in shown
    ]  # fmt: skip
    # The job of each group that lost most.
    most = _find_first_of_most(parts.group, parts.job, parts.share * lost_hours[parts.job])
    cells = make_job_cells(jobs, reports, jobs.index[parts.job[most[shown]]])
    columns = (
        Column(noun), Column(f"input ({hours.noun} h)", "number"), Column("of all input", "share"),
        Column("of its jobs' time", "share"), Column("jobs", "count"),
        *([] if noun == "user" else [Column("users", "count")]),
        Column("job with most"),
    )  # fmt: skip
    return Table(
        columns,
        tuple((*line, job) for line, job in zip(lines, cells, strict=True)),
        n_of_m(len(shown), len(order), f"{noun}s"),
        sorted_by=1,
    )


def _find_first_of_most(
    group: NDArray[np.intp], job: NDArray[np.intp], most: NDArray[np.float64]
) -> NDArray[np.intp]:
    """Of each group the index of the entry with most, the first of equal ones."""
    order = np.lexsort((job, -most, group))
    _, firsts = np.unique(group[order], return_index=True)
    return order[firsts]


def make_job_cells(jobs: Fleet, reports: Mapping[int, str], places: NDArray[np.intp]) -> list[Cell]:
    """The names of jobs by their places in the table, which lead to their reports."""
    found = jobs.rows(places.tolist())
    return [
        make_job_cell(row, reports.get(at)) for row, at in zip(found, places.tolist(), strict=True)
    ]


def make_job_cell(row: Row, report: str | None) -> Cell:
    """The name of a job, which leads to its report where there is one."""
    name = elided(row["job"] or row["first_log"], limit=22)
    return name if report is None else Link(name, report)


def draw_findings(jobs: Fleet, reports: Mapping[int, str]) -> Figure:
    """The findings, most hours that following them can save first."""
    title = "Findings of all jobs"
    read = jobs.only(jobs.known("finding_codes"))
    job, found = read.items("finding_codes")
    if not len(job):
        return Figure("findings", SECTION, title, "", empty_reason="No job has a finding.")
    # Hours that each finding can save at most, and the job with most of each.
    hours = HoursOf("node" if read.known("nodes").all() else "rank")
    gains = hours.gains(read, job, read.item_numbers("finding_gains_s"))
    code, names = label_texts(found, str)
    bound = np.where(np.isnan(gains), -np.inf, gains)
    most = read.index[job[_find_first_of_most(code, job, bound)]]
    worst = make_job_cells(jobs, reports, most)
    # A line for each finding; without a bound in any job nothing is known of what it saves.
    bounded = ~np.isnan(gains)
    sums = np.bincount(code[bounded], gains[bounded], len(names)).tolist()
    many = np.bincount(code, minlength=len(names)).tolist()
    with_bound = np.bincount(code[bounded], minlength=len(names)).tolist()
    order = sorted(range(len(names)), key=lambda i: (-sums[i], -many[i], names[i]))
    lines = tuple(
        (names[i], sums[i] if with_bound[i] else None, many[i], many[i] / len(read),
         many[i] - with_bound[i], worst[i])
        for i in order
    )  # fmt: skip
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
    return Figure("findings", SECTION, title, caption, table=Table(columns, lines, sorted_by=1))
