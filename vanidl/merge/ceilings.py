"""Runs whose batches came from memory: nothing of them is ever part of a run of training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vanidl.model.warnings import Notice
from vanidl.readers.discover import Found
from vanidl.readers.run_json import Records


def left_out(found: Found, records: Records) -> tuple[Found, list[Notice]]:
    """The files of other runs, and a notice for each run of `vanidl ceiling`."""
    folders = records.ceilings
    if not folders:
        return found, []
    files = {kind: _outside(paths, folders) for kind, paths in found.files.items()}
    kept = replace(found, files={kind: paths for kind, paths in files.items() if paths})
    return kept, [Notice("ceiling_run", _message(folder), "info") for folder in folders]


def _outside(paths: tuple[Path, ...], folders: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(path for path in paths if not str(path.absolute()).startswith(folders))


def _message(folder: str) -> str:
    return (
        f"{folder}: expected a run of training, found one of vanidl ceiling, whose batches came "
        "from memory; give the RUN that it was measured against, which holds its result."
    )
