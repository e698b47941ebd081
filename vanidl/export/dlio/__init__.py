"""A run as a workload of DLIO, the benchmark of storage: `--to dlio -o workload.yaml`.

Each value is measured, given by the user, or a named default; what is not known and matters must
be set before DLIO runs. Keys are those of DLIO 2.0.0 and of its main branch of June 2026.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from vanidl import __version__
from vanidl.export.dlio import dataset, own_files, reader, training
from vanidl.export.dlio.computation import computation
from vanidl.export.dlio.dataset import DataFacts
from vanidl.export.dlio.entries import ASSUMED, GIVEN, MEASURED, UNKNOWN, Entry, rendered
from vanidl.export.dlio.fetched import Fetched, fetched
from vanidl.files.atomic import write_whole
from vanidl.formatting.units import plural
from vanidl.run import Run

_WHOLE_FILE = ("npz", "npy")


def write(run: Run, path: Path) -> list[tuple[str, str]]:
    """Writes the workload; how many values are of which source."""
    found = workload(run)
    text = rendered(_header(run, found), found, _footer(run))
    write_whole(path, text.encode(), "the workload")
    count = Counter(entry.source for entry in found)
    unset = [f"{e.section}.{e.key}" for e in found if e.source == UNKNOWN]
    rows = [(MEASURED, plural(count[MEASURED], "value"))]
    rows += [(word, plural(count[word], "value")) for word in (GIVEN, ASSUMED) if count[word]]
    return [*rows, ("to be set", ", ".join(unset))] if unset else rows


def workload(run: Run) -> tuple[Entry, ...]:
    """Every key, section by section, with its value and where that is from."""
    loader = fetched(run.trace)
    facts = dataset.data_facts(run, loader)
    framework, data_loader = reader.framework(run, loader)
    saves = list(training.checkpoints(run))
    rows = [
        Entry("model", "name", "recorded", ASSUMED, "a name, nothing more"),
        *(entry for entry in saves if entry.section == "model"),
        framework,
        Entry("workflow", "generate_data", False, ASSUMED, "generate once, then train"),
        Entry("workflow", "train", True, ASSUMED, "the same"),
        *(entry for entry in saves if entry.section == "workflow"),
        *dataset.entries(run, facts),
        data_loader,
        *reader.entries(run, loader, facts),
        training.epochs(run, loader),
        *computation(run),
        *(entry for entry in saves if entry.section == "checkpoint"),
    ]
    return tuple(rows)


def _header(run: Run, found: tuple[Entry, ...]) -> Iterator[str]:
    ranks = max(len(run.trace.ranks), 1)
    loader = fetched(run.trace)
    yield f"A workload for DLIO, by vanidl {__version__} from a recorded run on {ranks:,} rank(s)."
    yield (
        f"Each value says where it is from: {MEASURED}, {GIVEN} by the user, {ASSUMED} (a "
        f"default), or {UNKNOWN}: set those first."
    )
    unset = [f"{entry.section}.{entry.key}" for entry in found if entry.source == UNKNOWN]
    yield f"To be set: {', '.join(unset) or 'nothing'}."
    yield ""
    yield "  mkdir -p configs/workload; cp THIS_FILE configs/workload/recorded.yaml"
    run_it = f"  mpirun -n {ranks} dlio_benchmark --config-dir configs workload=recorded"
    yield f"{run_it} \\"
    yield "    ++workload.workflow.generate_data=True ++workload.workflow.train=False \\"
    yield "    ++workload.workflow.checkpoint=False"
    yield run_it
    yield ""
    facts = dataset.data_facts(run, loader)
    yield from own_files.commands(run, facts, run_it)
    yield from _expected(run, facts, loader, ranks)


def _expected(run: Run, facts: DataFacts, loader: Fetched | None, ranks: int) -> Iterator[str]:
    """What DLIO will do otherwise than the run did, as far as its keys tell."""
    _, batch = reader.batch_size(run, loader)
    if facts.samples and batch and facts.files:
        unit = facts.samples * batch * ranks
        left = len(facts.files) // unit * unit
        if left < len(facts.files):
            yield (
                f"DLIO after 2.0.0 takes {left:,} of the {len(facts.files):,} files: a multiple of "
                f"samples in a file x batch x ranks = {unit:,}; it drops a last short batch."
            )
    if facts.samples and facts.samples > 1 and facts.format in _WHOLE_FILE:
        yield (
            f"DLIO reads a whole {facts.format} file for each of its {facts.samples:,} samples: "
            f"{facts.samples:,} times the bytes of a program that reads a file once."
        )
    if facts.format == "hdf5":
        yield (
            "DLIO's generator writes HDF5 in its newest layout, which takes fewer small reads to "
            "open than h5py's usual one: requests are those of the run with its own files alone."
        )
    if loader is not None and loader.others:
        yield (
            f"Files of other loaders ({', '.join(loader.others)}) are counted as files of "
            "training: which file is whose is not told apart."
        )


def _footer(run: Run) -> Iterator[str]:
    yield (
        "Not recorded, and left at DLIO's defaults: pin_memory, odirect, seeds, compression, sizes "
        "of samples once decoded (record_length_bytes_resize), fsync of checkpoints, evaluation."
    )
    for notice in run.coverage.warnings:
        yield f"The recording says ({notice.code}): {notice.message}"
