"""What stands above the keys of a workload: how to run it, and what DLIO will do otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vanidl import __version__
from vanidl.export.dlio import own_files, reader
from vanidl.export.dlio.dataset import DataFacts
from vanidl.export.dlio.entries import ASSUMED, GIVEN, MEASURED, UNKNOWN
from vanidl.export.dlio.fetched import Fetched
from vanidl.run import Run

_WHOLE_FILE = ("npz", "npy")


def lines(
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
    yield from _commands(start)
    yield from own_files.commands(run, facts, start)
    yield from _left_out(run, loader, facts, ranks)
    yield from _otherwise(loader, facts)


def _commands(start: str) -> Iterator[str]:
    yield ""
    yield "  mkdir -p configs/workload; cp THIS_FILE configs/workload/recorded.yaml"
    yield f"{start} \\"
    yield "    ++workload.workflow.generate_data=True ++workload.workflow.train=False \\"
    yield "    ++workload.workflow.checkpoint=False"
    yield start
    yield ""


def _left_out(run: Run, loader: Fetched | None, facts: DataFacts, ranks: int) -> Iterator[str]:
    """Files that DLIO will not read, as far as its keys tell."""
    _, batch = reader.batch_size(run, loader)
    if not (facts.samples and batch and facts.files):
        return
    unit = facts.samples * batch * ranks
    left = len(facts.files) // unit * unit
    if left < len(facts.files):
        yield (
            f"DLIO after 2.0.0 takes {left:,} of the {len(facts.files):,} files: a multiple of "
            f"samples in a file x batch x ranks = {unit:,}; it drops a last short batch."
        )


def _otherwise(loader: Fetched | None, facts: DataFacts) -> Iterator[str]:
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
