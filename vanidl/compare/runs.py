"""`compare_runs`: paths in, the comparison of their runs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanidl.compare import Change, Comparison, Pairing, Side, compare
from vanidl.compare.ab_folder import open_recorded
from vanidl.compare.json import make_object, render_json
from vanidl.compare.sides import LETTERS, Opener, distinct_names, sample_of, side_of
from vanidl.compare.wording import write_headline
from vanidl.errors import UsageError
from vanidl.files.names import AB_FILE
from vanidl.run import Run, open_run

if TYPE_CHECKING:
    import pandas

Sides = tuple[Side, ...]
Given = Run | str | PathLike[str]
"""A run in hand, or where it lies."""
Conditions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Compared:
    """A comparison, in words and as a frame. `comparison` holds all that is known."""

    comparison: Comparison

    def __repr__(self) -> str:
        """One line: the sides, and the answer."""
        names = ", ".join(side.name for side in self.comparison.sides)
        answer = write_headline(self.comparison)
        said = f"{answer.ending} {answer.title}".strip()
        return f"<vanidl comparison of {names}: {said}>"

    @property
    def headline(self) -> str:
        """The answer in words, the same as in the page."""
        return str(write_headline(self.comparison))

    def to_dict(self) -> dict[str, Any]:
        """What vanidl compare --json writes; `vanidl.output_schema("compare")` is its schema."""
        return make_object(self.comparison)

    def to_json(self) -> str:
        """The same as text."""
        return render_json(self.comparison)

    def frame(self) -> pandas.DataFrame:
        """A row a quantity and side after the first: values, ratio with interval, verdict."""
        import pandas

        pairings = self.comparison.pairings
        return pandas.DataFrame([_row(p, change) for p in pairings for change in p.changes])


def compare_runs(*sides: Given | Sequence[Given], labels: Sequence[str] = ()) -> Compared:
    """Compares runs with the first one; a single path is what `vanidl ab` left.

    Each side is a run in hand, a path of a log, of a folder of logs and profiler output or of a
    folder whose sub-folders are repeats of one run, or a list of runs and paths: repeats of one
    run. `labels` name the sides in order.

    Raises:
        InputError: nothing usable is there.
        UsageError: too few or too many sides or labels.
    """
    if all(isinstance(side, str | PathLike) for side in sides):
        opened, conditions = open_sides([Path(str(side)) for side in sides], open_run, labels)
        return Compared(compare(opened, conditions))
    if not 1 < len(sides) <= len(LETTERS) or len(labels) > len(sides):
        raise UsageError(
            f"expected 2 to {len(LETTERS)} runs and at most as many labels, found {len(sides)} "
            f"and {len(labels)}."
        )
    names = [*labels, *[""] * len(sides)]
    lists = [[s] if isinstance(s, str | PathLike | Run) else [*s] for s in sides]
    made = [_side_of_runs(*each) for each in zip(lists, LETTERS, names, strict=False)]
    letters = [Path(f"{side.name} ({side.letter})") for side in made]
    return Compared(compare(distinct_names(made, letters), ()))


def _side_of_runs(runs: Sequence[Given], letter: str, name: str) -> Side:
    """Repeats of one run; those of a path may be several."""
    if not runs:
        raise UsageError(f"side {letter}: expected at least one run, found an empty list.")
    held = [
        Side(letter, run.name, (sample_of(run, Path(run.name)),))
        if isinstance(run, Run)
        else side_of(Path(run), letter, open_run)
        for run in runs
    ]
    samples = tuple(sample for side in held for sample in side.samples)
    return Side(letter, name or held[0].name, samples)


def open_sides(
    paths: Sequence[Path], opener: Opener, labels: Sequence[str]
) -> tuple[Sides, Conditions]:
    """The sides at the paths and how they were made, as far as known.

    Raises:
        InputError: nothing usable is there.
        UsageError: too few or too many paths or labels.
    """
    if len(paths) == 1:
        return _both_sides(paths[0], opener, labels)
    if not 0 < len(paths) <= len(LETTERS):
        most = len(LETTERS)
        raise UsageError(f"expected at least one and at most {most} runs, found {len(paths)}.")
    if len(labels) > len(paths):
        raise UsageError(f"--label: expected at most {len(paths)}, found {len(labels)}.")
    names = [*labels, *[""] * len(paths)]
    sides = [
        _side(path, letter, opener, name)
        for path, letter, name in zip(paths, LETTERS, names, strict=False)
    ]
    return distinct_names(sides, paths), ()


def _side(path: Path, letter: str, opener: Opener, name: str) -> Side:
    if (path / AB_FILE).is_file():
        raise UsageError(f"{path}: holds both sides of an A/B, so expected it alone, or its runs.")
    return side_of(path, letter, opener, name)


def _both_sides(path: Path, opener: Opener, labels: Sequence[str]) -> tuple[Sides, Conditions]:
    if not (path / AB_FILE).is_file():
        raise UsageError(
            f"{path}: expected two or more runs to compare, or one folder that vanidl ab left "
            f"(with {AB_FILE} in it)."
        )
    if len(labels) > 2:
        raise UsageError(f"--label: expected at most 2, found {len(labels)}.")
    return open_recorded(path, opener, labels)


def _row(pairing: Pairing, change: Change) -> dict[str, object]:
    metric = change.metric
    return {
        "side": pairing.b.name,
        "quantity": metric.name,
        "unit": metric.unit,
        "a": change.a,
        "b": change.b,
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "verdict": change.verdict,
    }
