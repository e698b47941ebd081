"""Hours of a fleet: which are added up, over which jobs, and what a job belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vanidl.analyses.input_time import HOUR_S
from vanidl.survey.rows import Row


@dataclass(frozen=True, slots=True)
class HoursOf:
    """Hours of nodes where every job with input says on how many it ran, else of ranks."""

    noun: str  # "node" or "rank"

    def input(self, row: Row) -> float:
        """Hours in reads of the dataset; 0 where they are not known."""
        return float(row[f"input_{self.noun}_hours"] or 0.0)

    def all(self, row: Row) -> float:
        """Hours that the job had: nodes, or ranks, x run time."""
        many = row["nodes"] if self.noun == "node" else row["ranks"]
        return float((many or 0) * (row["run_time_s"] or 0.0)) / HOUR_S

    def gain(self, row: Row, gain_s: float) -> float:
        """Hours of a gain of so many seconds per rank."""
        many = row["nodes"] if self.noun == "node" else row["ranks"]
        return float(many or 0) * gain_s / HOUR_S


def hours_of(rows: Iterable[Row]) -> HoursOf:
    """Those of nodes where they are known of all jobs that counted their reads."""
    nodes = all(row["input_node_hours"] is not None for row in with_input(rows))
    return HoursOf("node" if nodes else "rank")


def with_input(rows: Iterable[Row]) -> list[Row]:
    """Jobs of which the time in reads was counted."""
    return [row for row in rows if row["input_rank_hours"] is not None]


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


def file_systems_of(row: Row) -> Sequence[tuple[str, float]]:
    """(type of the file system, share of the time in reads of the dataset)."""
    total = row["input_s"]
    if not total:
        return ()
    pairs = zip(row["input_file_systems"], row["input_file_system_s"], strict=True)
    return [(kind or "not known", seconds / total) for kind, seconds in pairs]
