"""The dataset of a workload: format, files, samples in a file, bytes of a sample."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.datafiles import DataFile
from vanidl.export.dlio.entries import ASSUMED, GIVEN, MEASURED, Entry, unknown
from vanidl.export.dlio.fetched import Fetched
from vanidl.formatting.units import nbytes, percent, plural
from vanidl.run import Run

_SECTION = "dataset"
_FORMATS = {
    ".npz": "npz", ".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".he5": "hdf5",
    ".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".jpg": "jpeg", ".jpeg": "jpeg",
    ".png": "png", ".csv": "csv",
}  # fmt: skip
IMAGES = ("jpeg", "png")
_EQUAL = 0.01  # of the mean: a smaller spread of sizes is that of headers and labels


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the files: on disk where found here, else by what was read of them."""

    each: NDArray[np.float64]  # one a file whose size is known in some way
    how: str

    @property
    def mean(self) -> float:
        """Bytes of a file; nan where none is known."""
        return float(self.each.mean()) if len(self.each) else np.nan


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What is known of the files that training reads. None: not known."""

    files: tuple[DataFile, ...]
    others: tuple[DataFile, ...]  # of another kind, with far fewer bytes: descriptions, indices
    format: str | None
    suffix: str
    sizes: Sizes
    samples: int | None  # in a file
    samples_source: str
    samples_note: str

    @property
    def record_nbytes(self) -> float | None:
        """Bytes of one sample in its file, without what the format adds to each file."""
        if not self.samples or not len(self.sizes.each):
            return None
        inside = self.sizes.mean - _added(self.format, self.samples)
        return max(inside, 1.0) / self.samples


def data_facts(run: Run, fetched: Fetched | None) -> DataFacts:
    """The files of the suffix that carries most bytes, and what is known of them."""
    read = [f for f in run.dataset.files if f.bytes_read] if run.dataset is not None else []
    traffic: Counter[str] = Counter()
    for file in read:
        traffic[_suffix(file)] += file.bytes_read
    suffix = max(traffic, key=lambda s: (traffic[s], s), default="")
    files = tuple(f for f in read if _suffix(f) == suffix)
    others = tuple(f for f in read if _suffix(f) != suffix)
    form = _FORMATS.get(suffix)
    samples = _samples(run, files, form, fetched)
    return DataFacts(files, others, form, suffix, _sizes(run, files), *samples)


def _suffix(file: DataFile) -> str:
    return PurePosixPath(file.path).suffix.lower()


def _sizes(run: Run, files: tuple[DataFile, ...]) -> Sizes:
    """The best kind of size that every file has."""
    passes = len(run.phases.epochs) if run.phases is not None else 0
    kinds = (
        ([f.size for f in files], "sizes on disk"),
        ([f.extent for f in files], "highest byte read of each file"),
        ([f.bytes_read / f.opens if f.opens and _known(f.opens, passes) else None for f in files],
         "bytes read of each file and time that it was opened; --data FOLDER gives sizes on disk"),
        ([f.bytes_read / passes if passes else None for f in files],
         "bytes read of each file and epoch; --data FOLDER gives sizes on disk"),
    )  # fmt: skip
    for values, how in kinds:
        if values and all(value for value in values):
            return Sizes(np.array(values, np.float64), how)
    return Sizes(np.empty(0), "")


def _known(opens: int, passes: int) -> bool:
    return opens > 0 and (not passes or opens <= passes)


def _samples(
    run: Run, files: tuple[DataFile, ...], form: str | None, fetched: Fetched | None
) -> tuple[int | None, str, str]:
    """Samples in a file, where that is from, and how."""
    counted = [f.samples for f in files]
    known = [n for n in counted if n]
    source = run.dataset.samples.source if run.dataset is not None else None
    if files and len(known) == len(files) and source in ("given", "files"):
        word = GIVEN if source == "given" else MEASURED
        spread = "" if min(known) == max(known) else f", of {min(known):,} to {max(known):,}"
        evidence = run.dataset.samples.evidence if run.dataset is not None else ""
        return round(float(np.median(known))), word, f"median{spread}: {evidence}"
    if files and fetched is not None and fetched.samples_per_epoch:
        each, rest = divmod(fetched.samples_per_epoch, len(files))
        if each and not rest:
            note = f"{fetched.samples_per_epoch:,} samples were fetched in each epoch"
            return each, MEASURED, f"{note}, from {plural(len(files), 'file')}"
    if files and len(known) == len(files) and run.dataset is not None:
        note = f"inferred: {run.dataset.samples.evidence}"
        return round(float(np.median(known))), MEASURED, note
    if form in IMAGES:
        return 1, ASSUMED, "an image is one sample"
    return None, "", "samples in a file: --record-size or --inspect would tell"


def _added(form: str | None, samples: int) -> int:
    """Bytes that DLIO's generator adds to each file of this format, beside the samples."""
    file = io.BytesIO()
    if form == "npz":
        np.savez(file, x=np.empty(0, np.uint8), y=np.zeros(samples, np.int64))
    elif form == "npy":
        np.save(file, np.empty(0, np.uint8))
    return file.tell()


def entries(run: Run, facts: DataFacts) -> Iterator[Entry]:
    """The section, key by key."""
    yield Entry(_SECTION, "data_folder", "data/recorded", ASSUMED, _place(run, facts))
    yield _format(facts)
    yield _files(run, facts)
    folders = len({PurePosixPath(f.path).parent for f in facts.files})
    if folders > 1:
        note = "folders that hold these files"
        yield Entry(_SECTION, "num_subfolders_train", folders, MEASURED, note)
    if facts.samples is None:
        yield unknown(_SECTION, "num_samples_per_file", facts.samples_note)
    else:
        yield Entry(_SECTION, "num_samples_per_file", facts.samples, facts.samples_source,
                    facts.samples_note)  # fmt: skip
    yield from _records(facts)


def _place(run: Run, facts: DataFacts) -> str:
    names = {f.path for f in facts.files}
    where = zip(run.trace.files.path, run.trace.files.mount, run.trace.files.file_system,
                strict=True)  # fmt: skip
    mounts = Counter((mount, kind) for path, mount, kind in where if path in names and mount)
    if not mounts:
        return "a new folder; put it on the storage to be tested"
    (mount, kind), _ = mounts.most_common(1)[0]
    return f"a new folder; the run read from the mount {mount} ({kind or 'unknown file system'})"


def _format(facts: DataFacts) -> Entry:
    if facts.format is None:
        name = facts.suffix or "without suffix"
        what = f"files {name}" if facts.files else "no read of a dataset file was recorded"
        note = f"{what}; DLIO has npz, npy, hdf5, tfrecord, jpeg, png, csv, indexed_binary"
        return unknown(_SECTION, "format", note)
    share = sum(f.bytes_read for f in facts.files) / sum(
        f.bytes_read for f in (*facts.files, *facts.others)
    )
    note = f"by the names of files: {percent(share)} of the bytes came from {facts.suffix}"
    return Entry(_SECTION, "format", facts.format, MEASURED, note)


def _files(run: Run, facts: DataFacts) -> Entry:
    if not facts.files:
        return unknown(_SECTION, "num_files_train", "no read of a dataset file was recorded")
    notes = ["dataset files that were read; code, system files, logs and checkpoints are not"]
    if facts.others:
        suffixes = ", ".join(sorted({_suffix(f) or "no suffix" for f in facts.others})[:5])
        amount = nbytes(sum(f.bytes_read for f in facts.others))
        notes.append(f"{plural(len(facts.others), 'file')} of another kind ({suffixes}; {amount})")
    unopened = run.trace.user_data.on_disk
    if unopened:
        notes.append(f"{plural(len(unopened), 'file')} on disk were never opened")
    return Entry(_SECTION, "num_files_train", len(facts.files), MEASURED, "; not counted: ".join(
        [notes[0], "; ".join(notes[1:])] if notes[1:] else notes))  # fmt: skip


def _records(facts: DataFacts) -> Iterator[Entry]:
    """Bytes of a sample: one size for all, or a mean and a spread."""
    record = facts.record_nbytes
    key = "record_length_bytes"
    if record is None or not facts.samples:
        size = f"a file has {facts.sizes.mean:,.0f} bytes" if len(facts.sizes.each) else "no size"
        yield unknown(_SECTION, key, f"bytes of a sample ({size}; {facts.samples_note})")
        return
    spread = float(facts.sizes.each.std()) / facts.samples
    added = _added(facts.format, facts.samples)
    note = f"mean bytes of a file / samples in it, by {facts.sizes.how}"
    note += f"; less the {added} bytes that the format adds to a file" if added else ""
    if spread <= _EQUAL * record:
        note += f"; standard deviation {spread:.6g}; DLIO 2.0.0 rounds it down to a square number"
        yield Entry(_SECTION, key, round(record), MEASURED, note)
        if facts.format not in IMAGES:
            yield Entry(_SECTION, "record_dims", (round(record),), MEASURED,
                        "the same, exact: for DLIO after 2.0.0, which 2.0.0 ignores")  # fmt: skip
        return
    yield Entry(_SECTION, key, round(record), MEASURED, note)
    note = "of the same; DLIO draws two sides apart, which gives sizes 0.71 times this spread"
    yield Entry(_SECTION, f"{key}_stdev", round(spread), MEASURED, note)
