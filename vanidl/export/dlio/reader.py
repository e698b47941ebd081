"""The loader of a workload: batches, workers, what is read ahead, the order, decoding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vanidl.analyses.datafiles import NO_RANK
from vanidl.analyses.dataloader_batches import PREFETCH_FACTOR
from vanidl.export.dlio.dataset import IMAGES, DataFacts
from vanidl.export.dlio.entries import ASSUMED, GIVEN, MEASURED, Entry, unknown
from vanidl.export.dlio.fetched import Fetched
from vanidl.formatting.units import plural
from vanidl.run import Run

_SECTION = "reader"
_OPENING_S, _RAW_S_PER_BYTE, _IMAGE_S_PER_BYTE = 1e-3, 1e-9, 2e-8
"""What a reader needs of the processor for a file and for each byte, with room. Measured on one
core without a tracer: NumPy and h5py 0.05 to 0.2 ms and 0.4 ns; Pillow 4 to 13 ns (PNG, JPEG)."""
_TENSORFLOW = ("tensorflow", "keras", "tf.data", "xplane", "xprof")


def framework(run: Run, fetched: Fetched | None) -> tuple[Entry, Entry]:
    """The framework, and its loader in DLIO."""
    sources = {profile.source for profile in run.trace.profiles}
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
        Entry(_SECTION, "data_loader", found, source, "that of the framework"),
    )


def entries(run: Run, fetched: Fetched | None, facts: DataFacts) -> Iterator[Entry]:
    """The section without its loader, key by key."""
    size, _ = batch_size(run, fetched)
    yield size
    workers = _workers(run, fetched)
    yield workers
    if isinstance(workers.value, int):
        ahead = max(PREFETCH_FACTOR * workers.value, PREFETCH_FACTOR)
        note = f"{PREFETCH_FACTOR} batches for each worker, PyTorch's default; it is not recorded"
        yield Entry(_SECTION, "prefetch_size", ahead, ASSUMED, note)
    yield from _order(run)
    yield from _decoding(run, fetched, facts)


def batch_size(run: Run, fetched: Fetched | None) -> tuple[Entry, int | None]:
    """Samples in a batch of one rank, and the number where it is known."""
    stated = run.trace.user_data.samples_per_step
    key = "batch_size"
    if stated is not None:
        return Entry(_SECTION, key, stated, GIVEN, "--samples-per-step"), stated
    if fetched is None or not fetched.batch_size:
        note = (
            "samples of a batch of one rank: fetches were not recorded (vanidl record does that); "
            "--samples-per-step N states it"
        )
        return unknown(_SECTION, key, note), None
    note = f"samples of most of the {plural(fetched.batches, 'recorded fetch', 'recorded fetches')}"
    if fetched.short:
        note += f"; {fetched.short:,} had fewer, which DLIO leaves out"
    return Entry(_SECTION, key, fetched.batch_size, MEASURED, note), fetched.batch_size


def _workers(run: Run, fetched: Fetched | None) -> Entry:
    key = "read_threads"
    if fetched is not None:
        return Entry(_SECTION, key, fetched.workers, MEASURED, "workers of a loader that fetched")
    workers = run.results.workers
    if workers is not None and workers.largest_group:
        note = "processes that read the data side by side for one training process"
        return Entry(_SECTION, key, workers.largest_group, MEASURED, note)
    if _read_by_trainers(run):
        note = "training processes read the data themselves; their threads are not counted"
        return Entry(_SECTION, key, 0, MEASURED, note)
    return unknown(_SECTION, key, "workers of a loader: it was not recorded who read the data")


def _read_by_trainers(run: Run) -> bool:
    """Whether reads of the dataset were traced, all of them in families of ranks."""
    data = run.dataset
    if data is None or data.empty_reads is None:
        return False
    return all(share.label != NO_RANK or not share.bytes_read for share in data.ranks)


def _order(run: Run) -> Iterator[Entry]:
    order = run.dataset.order if run.dataset is not None else None
    name = order.name if order is not None else "not recorded"
    if name == "in order":
        yield Entry(_SECTION, "sample_shuffle", "off", MEASURED, "files were read in order")
        return
    measured = name == "shuffled"
    source = MEASURED if measured else ASSUMED
    note = "files were read shuffled" if measured else f"as training does; the order is {name}"
    yield Entry(_SECTION, "sample_shuffle", "seed", source, note)
    yield Entry(_SECTION, "file_shuffle", "seed", source, "the same")


def _decoding(run: Run, fetched: Fetched | None, facts: DataFacts) -> Iterator[Entry]:
    """Time per sample beyond what DLIO's own reader, which decodes as well, is taken to need."""
    each = _decoding_s(run, fetched)
    if each is None:
        return
    rate = _IMAGE_S_PER_BYTE if facts.format in IMAGES else _RAW_S_PER_BYTE
    own = _OPENING_S + rate * (facts.record_nbytes or 0.0)
    more = each - own
    note = (
        f"in the loader a sample takes {each:.6g} s (median) outside reads and metadata calls; "
        f"DLIO's own reader, which decodes as well, is taken to need {own:.6g} s of it"
    )
    if more < own:
        yield Entry(_SECTION, "preprocess_time", 0.0, ASSUMED, f"{note}: too near to tell apart")
        return
    note += "; DLIO sleeps for the rest, and no processor is busy"
    yield Entry(_SECTION, "preprocess_time", more, ASSUMED, note)


def _decoding_s(run: Run, fetched: Fetched | None) -> float | None:
    """Seconds of a sample, median over batches; None where not recorded."""
    if run.fetching is None or fetched is None or not fetched.batch_size:
        return None
    batches = run.fetching.batches
    mine = batches.name == run.fetching.names.index(fetched.name)
    known = batches.decoding_s[mine & ~np.isnan(batches.decoding_s) & (batches.samples > 0)]
    return float(np.median(known)) / fetched.batch_size if len(known) else None
