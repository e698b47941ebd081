"""A run as a workload of DLIO, the benchmark of storage: `--to dlio -o workload.yaml`.

Each value is measured, given by the user, or a named default; what is not known and matters must
be set before DLIO runs. Keys are those of DLIO 2.0.0 and of its main branch of June 2026.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from vanidl import __version__
from vanidl.export.dlio.dataset import (
    DataFacts,
    describe_dataset,
    describe_reader,
    find_batch_size,
    gather_data_facts,
    identify_framework,
)
from vanidl.export.dlio.training import (
    ASSUMED,
    GIVEN,
    MEASURED,
    UNKNOWN,
    Entry,
    Fetched,
    count_epochs,
    describe_checkpoints,
    describe_computation,
    find_loader,
    render_entries,
)
from vanidl.files.atomic import write_whole
from vanidl.formatting.units import plural
from vanidl.run import Run


def write(run: Run, path: Path) -> list[tuple[str, str]]:
    """Writes the workload; how many values are of which source."""
    loader = find_loader(run.trace)
    facts = gather_data_facts(run, loader)
    found = _list_entries(run, loader, facts)
    unset = [f"{e.section}.{e.key}" for e in found if e.source == UNKNOWN]
    text = render_entries(_write_head(run, loader, facts, unset), found, _write_footer(run))
    write_whole(path, text.encode(), "the workload")
    count = Counter(entry.source for entry in found)
    rows = [(MEASURED, plural(count[MEASURED], "value"))]
    rows += [(word, plural(count[word], "value")) for word in (GIVEN, ASSUMED) if count[word]]
    return [*rows, ("to be set", ", ".join(unset))] if unset else rows


def build_workload(run: Run) -> tuple[Entry, ...]:
    """Every key, section by section, with its value and where that is from."""
    loader = find_loader(run.trace)
    return _list_entries(run, loader, gather_data_facts(run, loader))


def _list_entries(run: Run, loader: Fetched | None, facts: DataFacts) -> tuple[Entry, ...]:
    platform, data_loader = identify_framework(run, loader)
    saves = list(describe_checkpoints(run))
    # In the order of DLIO's own workload files.
    rows = [
        Entry("model", "name", "recorded", ASSUMED, "a name, nothing more"),
        *(entry for entry in saves if entry.section == "model"),
        platform,
        Entry("workflow", "generate_data", False, ASSUMED, "generate once, then train"),
        Entry("workflow", "train", True, ASSUMED, "the same"),
        *(entry for entry in saves if entry.section == "workflow"),
        *describe_dataset(run, facts),
        data_loader,
        *describe_reader(run, loader, facts),
        count_epochs(run, loader),
        *describe_computation(run),
        *(entry for entry in saves if entry.section == "checkpoint"),
    ]
    return tuple(rows)


def _write_footer(run: Run) -> Iterator[str]:
    yield (
        "Not recorded, and left at DLIO's defaults: pin_memory, odirect, seeds, compression, sizes "
        "of samples once decoded (record_length_bytes_resize), fsync of checkpoints, evaluation."
    )
    for notice in run.coverage.warnings:
        yield f"The recording says ({notice.code}): {notice.message}"


# What stands above the keys of a workload: how to run it, and what DLIO will do otherwise.

_WHOLE_FILE = ("npz", "npy")


def _write_head(
    run: Run, loader: Fetched | None, facts: DataFacts, unset: Sequence[str]
) -> Iterator[str]:
    """Texts of comments; what is indented is a command."""
    ranks = max(len(run.trace.ranks), 1)
    start = f"  mpirun -n {ranks} dlio_benchmark --config-dir configs workload=recorded"
    yield f"A workload for DLIO, by vanidl {__version__} from a recorded run on {ranks:,} rank(s)."
    yield (
        f"Each value says where it is from: {MEASURED}, {GIVEN} by the user, {ASSUMED} (a "
        f"default), or {UNKNOWN}: set those first."
    )
    yield f"To be set: {', '.join(unset) or 'nothing'}."
    yield ""
    yield "  mkdir -p configs/workload; cp THIS_FILE configs/workload/recorded.yaml"
    yield f"{start} \\"
    yield "    ++workload.workflow.generate_data=True ++workload.workflow.train=False \\"
    yield "    ++workload.workflow.checkpoint=False"
    yield start
    yield ""
    yield from _name_own_files(run, facts, start)
    yield from _explain_left_out(run, loader, facts, ranks)
    yield from _explain_differences(loader, facts)


def _explain_left_out(
    run: Run, loader: Fetched | None, facts: DataFacts, ranks: int
) -> Iterator[str]:
    """Files that DLIO will not read, as far as its keys tell."""
    _, batch = find_batch_size(run, loader)
    if not (facts.samples and batch and facts.files):
        return
    unit = facts.samples * batch * ranks
    left = len(facts.files) // unit * unit
    if left < len(facts.files):
        yield (
            f"DLIO after 2.0.0 takes {left:,} of the {len(facts.files):,} files: a multiple of "
            f"samples in a file x batch x ranks = {unit:,}; it drops a last short batch."
        )


def _explain_differences(loader: Fetched | None, facts: DataFacts) -> Iterator[str]:
    """How it will read what the run read otherwise."""
    if facts.samples and facts.samples > 1 and facts.format in _WHOLE_FILE:
        yield (
            f"DLIO reads a whole {facts.format} file for each of its {facts.samples:,} samples: "
            f"{facts.samples:,} times the bytes of a program that reads a file once."
        )
    if facts.format == "hdf5":
        yield (
            "DLIO's generator writes HDF5 in its newest layout, which takes fewer small reads to "
            "open than h5py's usual one: of such files requests are equal with the run's own alone."
        )
    if loader is not None and loader.others:
        yield (
            f"Files of other loaders ({', '.join(loader.others)}) are counted as files of "
            "training: which file is whose is not told apart."
        )


# How DLIO reads the run's own files instead of generated ones: commands, as comments.
#
# Its generator has one layout of HDF5, no labels of the run's size, and random content; files
# of another make take other requests. DLIO lists `DATA/train` and takes names that end with the
# format.

_FOLDER = "own"
_NAMED = ("hdf5", "npz")  # files of named arrays: DLIO's readers expect those of its generator
_FORMATS = (*_NAMED, "npy", "jpeg", "png")
_READER = "vanidl_loaders.dlio.OwnFilesReader"


def _name_own_files(run: Run, facts: DataFacts, start: str) -> Iterator[str]:
    """Lines for the head of the workload; `start` is the command that trains.

    None for formats that DLIO reads by an index of its own, and where paths are not whole.
    """
    # A format that DLIO opens by path.
    paths = [file.path for file in facts.files]
    if facts.format not in _FORMATS or not paths or not all(p.startswith("/") for p in paths):
        return
    yield "To have DLIO read the run's own files, where they lie here, instead of generated ones:"
    yield ""
    # Commands that name the files as DLIO lists them.
    yield f"  mkdir -p {_FOLDER}/train {_FOLDER}/valid"
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120
    found = f"find {shlex.quote(folder)} -iname '*{facts.suffix}' -type f"
    yield f"  {found} | sort | (n=0; while read -r file; do"
    target = f"{_FOLDER}/train/$(printf %09d $n).{facts.format}"
    yield f'    n=$((n + 1)); ln -s "$file" {target}; done)'
    # The settings, as one command of several lines.
    words = [f"dataset.data_folder={_FOLDER}", "dataset.num_subfolders_train=0"]
    named = facts.format in _NAMED
    if named:
        yield f"  export VANIDL_DLIO_ARRAY={shlex.quote(_find_largest_array(run, paths) or 'NAME')}"
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


def _find_largest_array(run: Run, paths: list[str]) -> str | None:
    """The array with most bytes of a file that was opened here."""
    facts = run.trace.user_data.facts
    arrays = next((facts[path].arrays for path in paths if path in facts), ())
    largest = max(arrays, key=lambda array: array.stored_bytes or 0, default=None)
    return None if largest is None else largest.name.strip("/")
