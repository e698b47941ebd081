"""The dataset of a run at its local path: sizes, contents, files never opened."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vanidl.errors import InputError, UsageError
from vanidl.formatting.from_logs import clean_path
from vanidl.model.run_facts import DataOptions, FileFacts, UserData
from vanidl.model.trace import Trace
from vanidl.model.warnings import Notice

MOST_INSPECTED = 256
MOST_LISTED = 1_000_000


def read_user_data(trace: Trace, options: DataOptions) -> tuple[UserData, tuple[Notice, ...]]:
    """What is known of the run's data, and notices of what could not be opened.

    Without a folder or `inspect` nothing outside the log is touched.

    Raises:
        UsageError: a folder is not there, or a number makes no sense.
    """
    _check_options(options)
    stated = UserData(options.record_bytes, options.samples_per_step)
    if not options.folders and not options.inspect:
        return stated, ()
    # Files of the local folder and paths in the logs meet by the longest end that they share.
    found = [path for folder in options.folders for path in _list_files(Path(folder))]
    here = _find_places(trace, found)
    sizes = {job: path.stat().st_size for job, path in here.items()}
    facts, notices = _inspect_data(trace, here) if options.inspect else ({}, ())
    # What lies there and was not read, where the user named the whole dataset.
    opened = set(here.values())
    on_disk = (
        tuple(sorted(clean_path(str(p)) for p in found if p not in opened))
        if options.folders
        else None
    )
    return replace(stated, sizes=sizes, facts=facts, on_disk=on_disk), notices


def _check_options(options: DataOptions) -> None:
    numbers = (
        ("--record-size", options.record_bytes),
        ("--samples-per-step", options.samples_per_step),
    )
    for name, value in numbers:
        if value is not None and value <= 0:
            raise UsageError(f"{name} {value}: expected a number above 0.")
    for folder in options.folders:
        if not Path(folder).exists():
            raise UsageError(f"--data {folder}: expected the folder of the dataset, found nothing.")


def _list_files(folder: Path) -> Iterator[Path]:
    """Regular files under a folder (or the file itself), without following links to folders."""
    if folder.is_file():
        yield folder
        return
    number = 0
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            number += 1
            if number > MOST_LISTED:
                raise UsageError(
                    f"--data {folder}: more than {MOST_LISTED:,} files. Name the dataset's folder."
                )
            if not name.startswith("."):
                yield Path(root, name)


def _find_places(trace: Trace, found: Sequence[Path]) -> dict[str, Path]:
    """Path as the trace shows it -> where the file lies here.

    By the longest common end of the paths that only one file here has; else by the very path.
    """
    by_name: dict[str, list[Path]] = {}
    for path in found:
        by_name.setdefault(path.name, []).append(path)
    places = {}
    for shown, job in zip(trace.files.path, trace.files.true_path, strict=True):
        match = _find_match(PurePosixPath(job), by_name.get(PurePosixPath(job).name, []))
        if match is None and not found and job.startswith("/") and Path(job).is_file():
            match = Path(job)
        if match is not None and match.is_file():  # a pipe would never end
            places[shown] = match
    return places


def _find_match(job: PurePosixPath, candidates: Sequence[Path]) -> Path | None:
    common = [_count_common_end(job.parts, path.parts) for path in candidates]
    most = max(common, default=0)
    best = [path for path, n in zip(candidates, common, strict=True) if n == most]
    return best[0] if len(best) == 1 else None


def _count_common_end(a: Sequence[str], b: Sequence[str]) -> int:
    equal = [x == y for x, y in zip(reversed(a), reversed(b), strict=False)]
    return equal.index(False) if False in equal else len(equal)


def _inspect_data(
    trace: Trace, here: dict[str, Path]
) -> tuple[dict[str, FileFacts], tuple[Notice, ...]]:
    """Facts of the dataset files that lie here; at most MOST_INSPECTED are opened."""
    kinds = zip(trace.files.path, trace.files.kind, strict=True)
    data = {path for path, kind in kinds if kind == trace.files.data_kind}
    wanted = sorted(data & set(here))
    # What cannot be looked at is said, and is no error.
    notices = []
    if not wanted:
        message = "--inspect: no dataset file of the run lies here. Name its folder with --data."
        notices.append(Notice("not_inspected", message, "info"))
    if len(wanted) > MOST_INSPECTED:
        message = f"--inspect opened {MOST_INSPECTED} of {len(wanted):,} dataset files."
        notices.append(Notice("not_inspected", message, "info"))
    facts = {}
    opened = wanted[:MOST_INSPECTED]

    # Opened by a child process: a damaged file may end the library that reads it.
    from vanidl.dataset.sandbox import inspect_files

    for job, found in zip(opened, inspect_files([here[job] for job in opened]), strict=True):
        if isinstance(found, InputError):
            notices.append(Notice("not_inspected", str(found)))
        elif found is not None:
            facts[job] = replace(found, path=clean_path(found.path))
    return facts, tuple(notices)
