"""What is compared: sides, and the runs that each holds.

A side is one run, or several repeats of it: a folder whose sub-folders are one run each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vanidl.analyses.results import Results
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.breakdown import Breakdown
from vanidl.errors import SeveralJobsError
from vanidl.formatting.from_logs import clean_path, clean_text, set_clean
from vanidl.model.run_facts import Ceiling, Ending
from vanidl.model.trace import Job
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a side: its results without its operations, and what was timed around it.

    `results` is None where a run left nothing that can be read; `missing` then says why.
    """

    path: str
    job: Job | None
    ranks: tuple[str, ...]  # labels, in the order of the results
    results: Results | None
    wall_time_s: float | None = None  # of the whole command, by `vanidl ab`
    pair: int | None = None  # runs of different sides with equal numbers belong together
    missing: str = ""
    ending: Ending | None = None  # of the recorded command
    account: Breakdown | None = None  # of time

    def __post_init__(self) -> None:
        """The path as it may be shown."""
        set_clean(self, path=clean_path(self.path))


@dataclass(frozen=True, slots=True)
class Side:
    """Runs of the same thing."""

    letter: str  # A, B, C ...: unique
    name: str  # may hold anything that a file name may
    samples: tuple[Sample, ...]
    ceiling: Ceiling | None = None  # by `vanidl ab --ceiling`

    def __post_init__(self) -> None:
        """The name as it may be shown."""
        set_clean(self, name=clean_text(self.name))


Opener = Callable[[Path], Run]
"""Reads and analyses the run at a path; raises as `vanidl.open_run`."""


def side_of(path: Path, letter: str, opener: Opener, name: str = "") -> Side:
    """The side at a path: the run there, or every run in its sub-folders.

    Raises:
        InputError: nothing usable is there.
        SeveralJobsError: several unrelated runs lie there that are not one a sub-folder.
    """
    try:
        samples: tuple[Sample, ...] = (sample_of(opener(path), path),)
    except SeveralJobsError:
        folders = sub_folders(path)
        if len(folders) < 2:
            raise
        samples = tuple(sample_of(opener(folder), folder) for folder in folders)
    return Side(letter, name or path.resolve().name, samples)


def sample_of(
    run: Run, path: Path, *, wall_time_s: float | None = None, pair: int | None = None
) -> Sample:
    """What a comparison keeps of a run."""
    trace = run.trace
    ranks = tuple(trace.processes[i].label for i in trace.ranks)
    return Sample(
        str(path), trace.job, ranks, run.results, wall_time_s, pair, ending=trace.ending,
        account=run.breakdown,
    )  # fmt: skip


def sub_folders(path: Path) -> list[Path]:
    """The folders in a folder, in natural order (run-2 before run-10), hidden ones left out."""
    if not path.is_dir():
        return []
    found = [p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")]
    return sorted(found, key=lambda p: _make_natural_key(p.name))


def distinct_names(sides: Sequence[Side], paths: Sequence[Path]) -> tuple[Side, ...]:
    """The sides, named by their whole path where their folders' names are the same."""
    names = [side.name for side in sides]
    return tuple(
        replace(side, name=str(path)) if names.count(side.name) > 1 else side
        for side, path in zip(sides, paths, strict=True)
    )


def anonymous_side(side: Side, names: Pseudonyms, labels: Sequence[str] = ()) -> Side:
    """The side without names of folders and commands; a label that the user gave it stays."""
    samples = tuple(
        replace(
            sample,
            path=names.folder(sample.path),
            missing=names.text(sample.missing),
            ending=None if sample.ending is None else replace(sample.ending, last_error=""),
        )
        for sample in side.samples
    )
    name = side.name if side.name in labels else f"run {side.letter}"
    ceiling = None if side.ceiling is None else replace(side.ceiling, remarks=())
    return Side(side.letter, name, samples, ceiling)


def _make_natural_key(name: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(False, int(p), "") if p.isdecimal() else (True, 0, p) for p in parts]
