"""`compare_runs`: paths in, the comparison of their runs out.

A path is a run, a folder of repeats, or what `vanidl ab` left: `ab.json` and a folder a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import exp, fsum, log, nextafter
from os import PathLike
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import orjson

from vanidl.ceiling import measure
from vanidl.compare import statistics
from vanidl.compare.comparison import Comparison, compare
from vanidl.compare.json import make_object, render_json
from vanidl.compare.sides import LETTERS, Opener, Sample, Side, distinct_names, sample_of, side_of
from vanidl.compare.text import write_headline
from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError, UsageError
from vanidl.files.atomic import write_whole
from vanidl.files.checked_json import checked_fields
from vanidl.model.run_facts import Ceiling
from vanidl.readers.run_folder import AB_FILE
from vanidl.run import Run, open_run
from vanidl.schema.dataclass import dataclass
from vanidl.schema.meanings import means

if TYPE_CHECKING:
    import pandas


# What `vanidl ab` leaves. With `--ceiling` each pair has a third run, of command A with batches
# from memory: what the steps of both sides take without input. The steps of either side are held
# against that of their own pair; over pairs the interval is Student's t on logarithms of ratios.

SCHEMA = "vanidl-ab/1"
SIDES = ("a", "b")
CEILING = "ceiling"
"""The side of runs of command A with batches from memory."""
WARM = "warm: caches left alone"
DROPPED = "cold: dropped before every run"


_WORDS = {"a": "A", "b": "B", CEILING: "memory"}


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run of one command; pair 0 only warms up and is not compared."""

    side: Annotated[str, means("a, b or ceiling: a with batches from memory")]
    pair: int
    folder: Annotated[str, means("Folder of the run, relative to that of ab.json")]
    wall_time_s: float
    exit_status: int
    tracer: str


@dataclass(frozen=True, slots=True)
class Experiment:
    """Two commands run alternately, in the order of `runs`."""

    a: Annotated[str, means("Command of the first side")]
    b: Annotated[str, means("Command of the second side")]
    cache_policy: Annotated[str, means("What was done with the page cache before each run")]
    runs: Annotated[tuple[RecordedRun, ...], means("Runs in the order in which they were made")]


def save(experiment: Experiment, folder: Path) -> None:
    """Writes ab.json into the folder."""
    content = {"schema": SCHEMA, **asdict(experiment)}
    text = json.dumps(content, indent=2) + "\n"
    write_whole(folder / AB_FILE, text.encode(), "the record of the runs")


def load(folder: Path) -> Experiment:
    """The experiment of a folder.

    Raises:
        InputError: its ab.json cannot be read or is not one.
    """
    path = folder / AB_FILE
    try:
        content = orjson.loads(read_whole(path))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']!r}")
        runs = tuple(_parse_run(run) for run in content["runs"])
        return Experiment(**checked_fields(Experiment, content), runs=runs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: expected what vanidl ab writes, found something else "
            f"({type(error).__name__}: {error}). Record again, or compare its runs by path."
        ) from error


def open_recorded(
    folder: Path, opener: Opener, labels: Sequence[str] = ()
) -> tuple[tuple[Side, Side], tuple[tuple[str, str], ...]]:
    """Both sides, paired, without the pair that warmed up; and how they were made.

    Raises:
        InputError: ab.json is damaged, or no pair is complete.
    """
    experiment = load(folder)
    whole = _keep_complete_pairs(experiment)
    if not whole:
        raise InputError(
            f"{folder}: expected at least one complete pair of runs after the one that warms up, "
            f"found {len(experiment.runs)} runs in all. Record again with vanidl ab."
        )
    sides, notes = [], list[tuple[str, str]]()
    # Sides hold the same pairs in the same order: they are compared pair by pair.
    for side, letter, command in (("a", "A", experiment.a), ("b", "B", experiment.b)):
        runs = sorted((r for r in whole if r.side == side), key=lambda r: r.pair)
        samples = tuple(_open_sample(run, folder, opener) for run in runs)
        name = labels["AB".index(letter)] if len(labels) > "AB".index(letter) else command
        # What the runs of one side are worth beside those of their pairs from memory.
        free = {r.pair: folder / r.folder for r in experiment.runs if r.side == CEILING}
        pairs = [(folder / r.folder, free[r.pair]) for r in runs if r.pair in free]
        measured = measure_ceiling(
            [pair for pair in pairs if all(_is_inside(p, folder) for p in pair)]
        )
        notes += [("ceiling", f"{letter}: {measured.why_not}")] if measured.why_not else []
        sides.append(Side(letter, name, samples, measured.ceiling))
    return (sides[0], sides[1]), (*_describe_conditions(experiment, len(sides[0].samples)), *notes)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _parse_run(values: object) -> RecordedRun:
    """One run; its folder lies in that of ab.json, whatever the file says."""
    run = RecordedRun(**checked_fields(RecordedRun, values))
    # The file may come from anywhere: it must not make other folders be read.
    folder = PurePath(run.folder)
    if folder.is_absolute() or ".." in folder.parts or not folder.parts:
        raise ValueError(f"a folder outside of this one: {run.folder[:100]!r}")
    if run.side not in (*SIDES, CEILING) or run.pair < 0 or not 0 <= run.wall_time_s < float("inf"):
        raise ValueError("a run with an impossible side, pair or time")
    return run


def _keep_complete_pairs(experiment: Experiment) -> list[RecordedRun]:
    kept = [r for r in experiment.runs if r.pair > 0 and r.exit_status == 0]
    both = {r.pair for r in kept if r.side == "a"} & {r.pair for r in kept if r.side == "b"}
    return [r for r in kept if r.pair in both]


def _open_sample(run: RecordedRun, folder: Path, opener: Opener) -> Sample:
    """The sample of a run; one that left no readable logs still has its wall time."""
    path = folder / run.folder
    try:
        if not _is_inside(path, folder):
            raise InputError(
                f"{path}: expected a folder of this experiment, found a link out of it"
            )
        opened = opener(path)
    except InputError as error:
        return Sample(str(path), None, (), None, run.wall_time_s, run.pair, str(error))
    return sample_of(opened, path, wall_time_s=run.wall_time_s, pair=run.pair)


def _describe_conditions(experiment: Experiment, pairs: int) -> tuple[tuple[str, str], ...]:
    order = " ".join(_WORDS[r.side] for r in experiment.runs if r.pair > 0)
    tracers = sorted({r.tracer for r in experiment.runs if r.tracer}) or ["none"]
    return (
        ("page cache", experiment.cache_policy),
        ("order", f"{order} (the warm-up pair was discarded)"),
        ("tracer", ", ".join(tracers)),
        ("pairs", str(pairs)),
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """The ceiling of one side, or why there is none."""

    ceiling: Ceiling | None
    why_not: str = ""


def measure_ceiling(pairs: Sequence[tuple[Path, Path]]) -> Measured:
    """The ceiling over (run, run of the same pair with batches from memory)."""
    each = [_measure_pair(*pair) for pair in pairs]
    ceilings = [one.ceiling for one in each if one.ceiling is not None]
    if ceilings:
        return Measured(combine_ceilings(ceilings))
    # No pair was measured: the last one says why.
    return each[-1] if each else Measured(None)


def _measure_pair(run: Path, free: Path) -> Measured:
    try:
        return Measured(measure(run, free))
    except InputError as error:
        return Measured(None, str(error))


def combine_ceilings(each: Sequence[Ceiling]) -> Ceiling:
    """One ceiling of several pairs: geometric means, counts of all; that of one pair is its own."""
    first = each[0]
    if len(each) == 1:
        return first
    step_s, free_s = (
        _average_logarithms([getattr(c, name) for c in each]) for name in ("step_s", "free_s")
    )
    # Copying batches from memory is the measurement's own cost: without it a step could be shorter
    # by as much, hence the upper bound.
    low = _find_bounds(each, [c.free_s for c in each])[0]
    high = _find_bounds(each, [max(c.free_s - c.copying_s, nextafter(0, 1)) for c in each])[1]
    cost = 1 - free_s / step_s
    return replace(
        first,
        steps=min(c.steps for c in each),
        step_s=step_s,
        free_s=free_s,
        median_step_s=_average_logarithms([c.median_step_s for c in each]),
        median_free_s=_average_logarithms([c.median_free_s for c in each]),
        copying_s=fsum(c.copying_s for c in each) / len(each),
        cost=cost,
        low=min(low, cost),
        high=min(max(high, cost), nextafter(1.0, 0.0)),
        pairs=len(each),
        remarks=tuple(dict.fromkeys(remark for c in each for remark in c.remarks)),
    )


def _average_logarithms(values: Sequence[float]) -> float:
    return exp(fsum(map(log, values)) / len(values))


def _find_bounds(each: Sequence[Ceiling], free_s: Sequence[float]) -> tuple[float, float]:
    estimate = statistics.paired([c.step_s for c in each], free_s)
    if estimate is None:
        raise ValueError("expected at least two pairs")
    return 1 - estimate.high, 1 - estimate.low


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
        rows = [
            {
                "side": pairing.b.name,
                "quantity": change.metric.name,
                "unit": change.metric.unit,
                "a": change.a,
                "b": change.b,
                "ratio": change.ratio,
                "low": change.low,
                "high": change.high,
                "verdict": change.verdict,
            }
            for pairing in pairings
            for change in pairing.changes
        ]
        return pandas.DataFrame(rows)


def compare_runs(*sides: Given | Sequence[Given], labels: Sequence[str] = ()) -> Compared:
    """Compares runs with the first one; a single path is what `vanidl ab` left.

    Each side is a run in hand, a path of a log, of a folder of logs and profiler output or of a
    folder whose sub-folders are repeats of one run, or a list of runs and paths: repeats of one
    run. `labels` name the sides in order.

    Raises:
        InputError: nothing usable is there.
        UsageError: too few or too many sides or labels.
    """
    # Paths alone may be what `vanidl ab` left, with its conditions.
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
    # Where two sides have the same name their letters tell them apart.
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
    # One path is the folder of an experiment, which holds both sides.
    if len(paths) == 1:
        if not (paths[0] / AB_FILE).is_file():
            raise UsageError(
                f"{paths[0]}: expected two or more runs to compare, or one folder that vanidl ab "
                f"left (with {AB_FILE} in it)."
            )
        if len(labels) > 2:
            raise UsageError(f"--label: expected at most 2, found {len(labels)}.")
        return open_recorded(paths[0], opener, labels)
    if not 0 < len(paths) <= len(LETTERS):
        most = len(LETTERS)
        raise UsageError(f"expected at least one and at most {most} runs, found {len(paths)}.")
    if len(labels) > len(paths):
        raise UsageError(f"--label: expected at most {len(paths)}, found {len(labels)}.")
    # Empty labels for sides without one, whose names are made from their paths.
    names = [*labels, *[""] * len(paths)]
    sides = []
    for path, letter, name in zip(paths, LETTERS, names, strict=False):
        if (path / AB_FILE).is_file():
            raise UsageError(
                f"{path}: holds both sides of an A/B, so expected it alone, or its runs."
            )
        sides.append(side_of(path, letter, opener, name))
    return distinct_names(sides, paths), ()
