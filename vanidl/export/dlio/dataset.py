"""The dataset of a workload (format, files, samples, bytes of each), and who reads it how."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.datafiles import NO_RANK, DataFile
from vanidl.analyses.dataloader_batches import PREFETCH_FACTOR
from vanidl.export.dlio.training import ASSUMED, GIVEN, MEASURED, Entry, Fetched, mark_unknown
from vanidl.formatting.units import nbytes, percent, plural
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass

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
        inside = self.sizes.mean - _measure_format_bytes(self.format, self.samples)
        return max(inside, 1.0) / self.samples


def gather_data_facts(run: Run, fetched: Fetched | None) -> DataFacts:
    """The files of the suffix that carries most bytes, and what is known of them."""
    read = [f for f in run.dataset.files if f.bytes_read] if run.dataset is not None else []
    traffic: Counter[str] = Counter()
    for file in read:
        traffic[_get_suffix(file)] += file.bytes_read
    suffix = max(traffic, key=lambda s: (traffic[s], s), default="")
    files = tuple(f for f in read if _get_suffix(f) == suffix)
    others = tuple(f for f in read if _get_suffix(f) != suffix)
    form = _FORMATS.get(suffix)
    samples = _count_samples(run, files, form, fetched)
    return DataFacts(files, others, form, suffix, _pick_sizes(run, files), *samples)


def _get_suffix(file: DataFile) -> str:
    return PurePosixPath(file.path).suffix.lower()


def _pick_sizes(run: Run, files: tuple[DataFile, ...]) -> Sizes:
    """The best kind of size that every file has."""
    passes = len(run.phases.epochs) if run.phases is not None else 0
    # From sizes on disk to what reads alone tell.
    kinds = (
        ([f.size for f in files], "sizes on disk"),
        ([f.extent for f in files], "highest byte read of each file"),
        ([f.bytes_read / f.opens if f.opens and 0 < f.opens <= (passes or f.opens) else None
          for f in files],
         "bytes read of each file and time that it was opened; --data FOLDER gives sizes on disk"),
        ([f.bytes_read / passes if passes else None for f in files],
         "bytes read of each file and epoch; --data FOLDER gives sizes on disk"),
    )  # fmt: skip
    for values, how in kinds:
        if values and all(value for value in values):
            return Sizes(np.array(values, np.float64), how)
    return Sizes(np.empty(0), "")


def _count_samples(
    run: Run, files: tuple[DataFile, ...], form: str | None, fetched: Fetched | None
) -> tuple[int | None, str, str]:
    """Samples in a file, where that is from, and how."""
    # Stated by the user, or read in the files themselves.
    counted = [f.samples for f in files]
    known = [n for n in counted if n]
    source = run.dataset.samples.source if run.dataset is not None else None
    if files and len(known) == len(files) and source in ("given", "files"):
        word = GIVEN if source == "given" else MEASURED
        spread = "" if min(known) == max(known) else f", of {min(known):,} to {max(known):,}"
        evidence = run.dataset.samples.evidence if run.dataset is not None else ""
        return round(float(np.median(known))), word, f"median{spread}: {evidence}"
    # Else the fetches of an epoch, where they spread evenly over the files.
    if files and fetched is not None and fetched.samples_per_epoch:
        each, rest = divmod(fetched.samples_per_epoch, len(files))
        if each and not rest:
            note = f"{fetched.samples_per_epoch:,} samples were fetched in each epoch"
            return each, MEASURED, f"{note}, from {plural(len(files), 'file')}"
    if files and len(known) == len(files) and run.dataset is not None:
        note = f"inferred: {run.dataset.samples.evidence}"
        return round(float(np.median(known))), MEASURED, note
    # Nothing tells, but an image file holds one.
    if form in IMAGES:
        return 1, ASSUMED, "an image is one sample"
    return None, "", "samples in a file: --record-size or --inspect would tell"


def _measure_format_bytes(form: str | None, samples: int) -> int:
    """Bytes that DLIO's generator adds to each file of this format, beside the samples."""
    file = io.BytesIO()
    if form == "npz":
        np.savez(file, x=np.empty(0, np.uint8), y=np.zeros(samples, np.int64))
    elif form == "npy":
        np.save(file, np.empty(0, np.uint8))
    return file.tell()


def describe_dataset(run: Run, facts: DataFacts) -> Iterator[Entry]:
    """The section, key by key."""
    # Where the run read from, which is where such data may have to lie again.
    names = {f.path for f in facts.files}
    files = run.trace.files
    where = zip(files.path, files.mount, files.file_system, strict=True)
    mounts = Counter((mount, kind) for path, mount, kind in where if path in names and mount)
    place = "a new folder; put it on the storage to be tested"
    if mounts:
        (mount, kind), _ = mounts.most_common(1)[0]
        place = (
            f"a new folder; the run read from the mount {mount} ({kind or 'unknown file system'})"
        )
    yield Entry(_SECTION, "data_folder", "data/recorded", ASSUMED, place)

    # Its format, by the names of files.
    if facts.format is None:
        name = facts.suffix or "without suffix"
        what = f"files {name}" if facts.files else "no read of a dataset file was recorded"
        note = f"{what}; DLIO has npz, npy, hdf5, tfrecord, jpeg, png, csv, indexed_binary"
        yield mark_unknown(_SECTION, "format", note)
    else:
        read = sum(f.bytes_read for f in facts.files)
        share = read / sum(f.bytes_read for f in (*facts.files, *facts.others))
        note = f"by the names of files: {percent(share)} of the bytes came from {facts.suffix}"
        yield Entry(_SECTION, "format", facts.format, MEASURED, note)

    # Files, folders, and the samples in each.
    yield _describe_files(run, facts)
    folders = len({PurePosixPath(f.path).parent for f in facts.files})
    if folders > 1:
        note = "folders that hold these files"
        yield Entry(_SECTION, "num_subfolders_train", folders, MEASURED, note)
    if facts.samples is None:
        yield mark_unknown(_SECTION, "num_samples_per_file", facts.samples_note)
    else:
        yield Entry(_SECTION, "num_samples_per_file", facts.samples, facts.samples_source,
                    facts.samples_note)  # fmt: skip
    yield from _describe_records(facts)


def _describe_files(run: Run, facts: DataFacts) -> Entry:
    if not facts.files:
        return mark_unknown(_SECTION, "num_files_train", "no read of a dataset file was recorded")
    notes = ["dataset files that were read; code, system files, logs and checkpoints are not"]
    if facts.others:
        suffixes = ", ".join(sorted({_get_suffix(f) or "no suffix" for f in facts.others})[:5])
        amount = nbytes(sum(f.bytes_read for f in facts.others))
        notes.append(f"{plural(len(facts.others), 'file')} of another kind ({suffixes}; {amount})")
    unopened = run.trace.user_data.on_disk
    if unopened:
        notes.append(f"{plural(len(unopened), 'file')} on disk were never opened")
    return Entry(_SECTION, "num_files_train", len(facts.files), MEASURED, "; not counted: ".join(
        [notes[0], "; ".join(notes[1:])] if notes[1:] else notes))  # fmt: skip


def _describe_records(facts: DataFacts) -> Iterator[Entry]:
    """Bytes of a sample: one size for all, or a mean and a spread."""
    record = facts.record_nbytes
    key = "record_length_bytes"
    if record is None or not facts.samples:
        size = f"a file has {facts.sizes.mean:,.0f} bytes" if len(facts.sizes.each) else "no size"
        yield mark_unknown(_SECTION, key, f"bytes of a sample ({size}; {facts.samples_note})")
        return
    spread = float(facts.sizes.each.std()) / facts.samples
    added = _measure_format_bytes(facts.format, facts.samples)
    note = f"mean bytes of a file / samples in it, by {facts.sizes.how}"
    note += f"; less the {added} bytes that the format adds to a file" if added else ""
    # Sizes that hardly differ are one; DLIO draws others from a normal distribution.
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


# The loader of a workload: batches, workers, what is read ahead, the order, decoding.

_READER_SECTION = "reader"
_OPENING_S, _RAW_S_PER_BYTE, _IMAGE_S_PER_BYTE = 1e-3, 1e-9, 2e-8
"""What a reader needs of the processor for a file and for each byte, with room. Measured on one
core without a tracer: NumPy and h5py 0.05 to 0.2 ms and 0.4 ns; Pillow 4 to 13 ns (PNG, JPEG)."""
_TENSORFLOW = ("tensorflow", "keras", "tf.data", "xplane", "xprof")


def identify_framework(run: Run, fetched: Fetched | None) -> tuple[Entry, Entry]:
    """The framework, and its loader in DLIO."""
    sources = {profile.source for profile in run.trace.profiles}
    # The surest evidence first: its own fetches, its profiler, words in a profile's name.
    if fetched is not None and fetched.name.startswith("DataLoader"):
        found, source, note = "pytorch", MEASURED, "fetches of its DataLoader were recorded"
    elif any(name.startswith("pytorch") for name in sources):
        found, source, note = "pytorch", MEASURED, "a trace of its profiler was recorded"
    elif any(word in name.lower() for name in sources for word in _TENSORFLOW):
        found, source, note = "tensorflow", ASSUMED, "a profile of TensorFlow or JAX was recorded"
    else:
        found, source, note = "pytorch", ASSUMED, "nothing recorded tells it"
    return (
        Entry("", "framework", found, source, note),
        Entry(_READER_SECTION, "data_loader", found, source, "that of the framework"),
    )


def describe_reader(run: Run, fetched: Fetched | None, facts: DataFacts) -> Iterator[Entry]:
    """The section without its loader, key by key."""
    size, _ = find_batch_size(run, fetched)
    yield size
    workers = _describe_workers(run, fetched)
    yield workers
    if isinstance(workers.value, int):
        ahead = max(PREFETCH_FACTOR * workers.value, PREFETCH_FACTOR)
        note = f"{PREFETCH_FACTOR} batches for each worker, PyTorch's default; it is not recorded"
        yield Entry(_READER_SECTION, "prefetch_size", ahead, ASSUMED, note)
    # The order of files; where it was not recorded, shuffled as training does.
    order = run.dataset.order if run.dataset is not None else None
    name = order.name if order is not None else "not recorded"
    if name == "in order":
        yield Entry(_READER_SECTION, "sample_shuffle", "off", MEASURED, "files were read in order")
    else:
        source, note = ASSUMED, f"as training does; the order is {name}"
        if name == "shuffled":
            source, note = MEASURED, "files were read shuffled"
        yield Entry(_READER_SECTION, "sample_shuffle", "seed", source, note)
        yield Entry(_READER_SECTION, "file_shuffle", "seed", source, "the same")
    yield from _describe_decoding(run, fetched, facts)


def find_batch_size(run: Run, fetched: Fetched | None) -> tuple[Entry, int | None]:
    """Samples in a batch of one rank, and the number where it is known."""
    stated = run.trace.user_data.samples_per_step
    key = "batch_size"
    if stated is not None:
        return Entry(_READER_SECTION, key, stated, GIVEN, "--samples-per-step"), stated
    if fetched is None or not fetched.batch_size:
        note = (
            "samples of a batch of one rank: fetches were not recorded (vanidl record does that); "
            "--samples-per-step N states it"
        )
        return mark_unknown(_READER_SECTION, key, note), None
    note = f"samples of most of the {plural(fetched.batches, 'recorded fetch', 'recorded fetches')}"
    if fetched.short:
        note += f"; {fetched.short:,} had fewer, which DLIO leaves out"
    return Entry(_READER_SECTION, key, fetched.batch_size, MEASURED, note), fetched.batch_size


def _describe_workers(run: Run, fetched: Fetched | None) -> Entry:
    key = "read_threads"
    if fetched is not None:
        return Entry(
            _READER_SECTION, key, fetched.workers, MEASURED, "workers of a loader that fetched"
        )
    workers = run.results.workers
    if workers is not None and workers.largest_group:
        note = "processes that read the data side by side for one training process"
        return Entry(_READER_SECTION, key, workers.largest_group, MEASURED, note)
    if _read_by_trainers(run):
        note = "training processes read the data themselves; their threads are not counted"
        return Entry(_READER_SECTION, key, 0, MEASURED, note)
    return mark_unknown(
        _READER_SECTION, key, "workers of a loader: it was not recorded who read the data"
    )


def _read_by_trainers(run: Run) -> bool:
    """Whether reads of the dataset were traced, all of them in families of ranks."""
    data = run.dataset
    if data is None or data.empty_reads is None:
        return False
    return all(share.label != NO_RANK or not share.bytes_read for share in data.ranks)


def _describe_decoding(run: Run, fetched: Fetched | None, facts: DataFacts) -> Iterator[Entry]:
    """Time per sample beyond what DLIO's own reader, which decodes as well, is taken to need."""
    each = _compute_decoding_s(run, fetched)
    if each is None:
        return
    # DLIO's reader decodes, too: only what the program's loader takes beyond that is slept.
    rate = _IMAGE_S_PER_BYTE if facts.format in IMAGES else _RAW_S_PER_BYTE
    own = _OPENING_S + rate * (facts.record_nbytes or 0.0)
    more = each - own
    note = (
        f"in the loader a sample takes {each:.6g} s (median) outside reads and metadata calls; "
        f"DLIO's own reader, which decodes as well, is taken to need {own:.6g} s of it"
    )
    if more < own:
        yield Entry(
            _READER_SECTION, "preprocess_time", 0.0, ASSUMED, f"{note}: too near to tell apart"
        )
        return
    note += "; DLIO sleeps for the rest, and no processor is busy"
    yield Entry(_READER_SECTION, "preprocess_time", more, ASSUMED, note)


def _compute_decoding_s(run: Run, fetched: Fetched | None) -> float | None:
    """Seconds of a sample, median over batches; None where not recorded."""
    if run.fetching is None or fetched is None or not fetched.batch_size:
        return None
    batches = run.fetching.batches
    mine = batches.name == run.fetching.names.index(fetched.name)
    known = batches.decoding_s[mine & ~np.isnan(batches.decoding_s) & (batches.samples > 0)]
    return float(np.median(known)) / fetched.batch_size if len(known) else None
