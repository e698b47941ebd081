"""Where a command writes: never over what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from vanidl.commands import console
from vanidl.errors import InputError, UsageError
from vanidl.files.names import AB_FILE
from vanidl.formatting.names import printable
from vanidl.readers import discover, run_folder

_RECORDS = (run_folder.RECORD_NAME, AB_FILE)


def refuse_input(
    output: str | PathLike[str] | None,
    runs: Sequence[str | PathLike[str]],
    data: Sequence[str | PathLike[str]] = (),
) -> None:
    """Nothing where the output is none of the files that belong to the runs and their data.

    One that is there already is named: it will be replaced. A run may be PATH:TAG, as of --steps.

    Raises:
        UsageError: it is one of them, under this name or another.
    """
    if output is None or not Path(output).is_file():
        return
    target = Path(output)
    places = [place for run in runs for place in (str(run), str(run).rpartition(":")[0]) if place]
    if any(_is_input(target, Path(place)) for place in places) or any(
        _is_below(target, Path(folder)) for folder in data
    ):
        raise UsageError(
            f"-o {printable(str(output))}: expected a file to make or to replace, found one that "
            "is read here; choose another name."
        )
    console.tell(f"vanidl: {printable(str(output))} is there already, and will be replaced\n")


def _is_input(target: Path, run: Path) -> bool:
    """Whether it is the run's file, or one in its folder that a run consists of."""
    if not _is_below(target, run):
        return False
    return not run.is_dir() or target.name in _RECORDS or _is_of_a_run(target)


def _is_below(target: Path, place: Path) -> bool:
    if place.is_dir():
        return place.resolve() in target.resolve().parents
    return place.exists() and target.samefile(place)


def _is_of_a_run(path: Path) -> bool:
    try:
        discover.find(path)
    except InputError:
        return False
    return True
