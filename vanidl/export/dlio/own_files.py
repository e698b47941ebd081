"""How DLIO reads the run's own files instead of generated ones: commands, as comments.

Its generator has one layout of HDF5, no labels of the run's size, and random content; files of
another make take other requests. DLIO lists `DATA/train` and takes names that end with the format.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from vanidl.export.dlio.dataset import DataFacts
from vanidl.run import Run

_FOLDER = "own"
_NAMED = ("hdf5", "npz")  # files of named arrays: DLIO's readers expect those of its generator
_FORMATS = (*_NAMED, "npy", "jpeg", "png")
_READER = "vanidl_loaders.dlio.OwnFilesReader"


def commands(run: Run, facts: DataFacts, start: str) -> Iterator[str]:
    """Lines for the head of the workload; `start` is the command that trains.

    None for formats that DLIO reads by an index of its own, and where paths are not whole.
    """
    paths = [file.path for file in facts.files]
    if facts.format not in _FORMATS or not paths or not all(p.startswith("/") for p in paths):
        return
    yield "To have DLIO read the run's own files, where they lie here, instead of generated ones:"
    yield ""
    yield from _links(paths, facts)
    words = [f"dataset.data_folder={_FOLDER}", "dataset.num_subfolders_train=0"]
    named = facts.format in _NAMED
    if named:
        yield f"  export VANIDL_DLIO_ARRAY={shlex.quote(_array(run, paths) or 'NAME')}"
        words.append(f"reader.reader_classname={_READER}")
    *first, last = (f"    ++workload.{word}" for word in words)
    yield from (f"{line} \\" for line in [start, *first])
    yield last
    yield ""
    if named:
        yield (
            "NAME is the array that training reads (--inspect finds it). The reader, which comes "
            "with pip install 'vanidl-io[dlio]', opens a file for each sample: requests are those "
            "of a program that does so, too."
        )
        yield ""


def _links(paths: list[str], facts: DataFacts) -> Iterator[str]:
    """Commands that name the files as DLIO lists them."""
    yield f"  mkdir -p {_FOLDER}/train {_FOLDER}/valid"
    found = f"find {shlex.quote(_above(paths))} -iname '*{facts.suffix}' -type f"
    yield f"  {found} | sort | (n=0; while read -r file; do"
    target = f"{_FOLDER}/train/$(printf %09d $n).{facts.format}"
    yield f'    n=$((n + 1)); ln -s "$file" {target}; done)'


def _above(paths: list[str]) -> str:
    return os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120


def _array(run: Run, paths: list[str]) -> str | None:
    """The array with most bytes of a file that was opened here."""
    facts = run.trace.user_data.facts
    arrays = next((facts[path].arrays for path in paths if path in facts), ())
    largest = max(arrays, key=lambda array: array.stored_bytes or 0, default=None)
    return None if largest is None else largest.name.strip("/")
