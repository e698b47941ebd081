"""Hours of a fleet: which are added up, over which jobs, and what a job belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.sources.data_reads import HOUR_S
from vanidl.survey.fleet import Fleet, Parts, labelled

UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class HoursOf:
    """Hours of nodes where every job with input says on how many it ran, else of ranks."""

    noun: str  # "node" or "rank"

    def input(self, jobs: Fleet) -> NDArray[np.float64]:
        """Hours of each job in reads of the dataset; 0 where they are not known."""
        return jobs.amounts(f"input_{self.noun}_hours")

    def all(self, jobs: Fleet) -> NDArray[np.float64]:
        """Hours that each job had: nodes, or ranks, x run time."""
        return self._many(jobs) * jobs.amounts("run_time_s") / HOUR_S

    def gains(self, jobs: Fleet, job: NDArray[np.intp], gain_s: NDArray[np.float64]) -> (
        NDArray[np.float64]
    ):  # fmt: skip
        """Hours of gains of so many seconds per rank, each of one of the jobs."""
        return self._many(jobs)[job] * gain_s / HOUR_S

    def _many(self, jobs: Fleet) -> NDArray[np.float64]:
        return jobs.amounts("nodes" if self.noun == "node" else "ranks")


def hours_of(jobs: Fleet) -> HoursOf:
    """Those of nodes where they are known of all jobs that counted their reads."""
    nodes = with_input(jobs).known("input_node_hours").all()
    return HoursOf("node" if nodes else "rank")


def with_input(jobs: Fleet) -> Fleet:
    """Jobs of which the time in reads was counted."""
    return jobs.only(jobs.known("input_rank_hours"))


def program_of(command: str | None) -> str:
    """The program without folders and options, with the script that an interpreter runs."""
    words = (command or "").split()
    if not words:
        return "not recorded"
    program = words[0].rpartition("/")[2]
    if not program.startswith(_INTERPRETERS):
        return program
    rest = iter(words[1:])
    for word in rest:
        if word in {"-c", "-m"}:
            return f"{program} {word}" + (f" {next(rest, '')}" if word == "-m" else "")
        if not word.startswith("-"):
            return f"{program} {word.rpartition('/')[2]}"
    return program


_INTERPRETERS = ("python", "bash", "sh", "perl", "julia", "Rscript", "java", "node")


def known_name(name: str | None) -> str:
    """The name, where there is one."""
    return name or UNKNOWN


def by_user(jobs: Fleet) -> Parts:
    """The one user, with all of the job's time."""
    return jobs.parts("user", known_name)


def by_program(jobs: Fleet) -> Parts:
    """The one program, with all of the job's time."""
    return jobs.parts("command", program_of)


def by_file_system(jobs: Fleet) -> Parts:
    """Types of file systems, with their shares of the job's time in reads of the dataset."""
    is_timed = jobs.amounts("input_s") != 0
    timed = jobs.only(is_timed)
    job, kinds = timed.items("input_file_systems")
    group, names = labelled(kinds, known_name)
    share = timed.item_numbers("input_file_system_s") / timed.numbers("input_s")[job]
    return Parts(np.flatnonzero(is_timed)[job], group, share, names)
