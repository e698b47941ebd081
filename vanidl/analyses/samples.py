"""How many samples each dataset file holds, where the size of one is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.access import AccessCounts
from vanidl.analyses.dataset_records import DataFile
from vanidl.formatting.units import percent
from vanidl.model.user_data import UserData

_STRONG = 0.8
_SMALLEST = 1024  # smaller pieces are headers and indices more often than samples


@dataclass(frozen=True, slots=True)
class Record:
    """How samples are counted: `nbytes` each, or as the opened files say."""

    nbytes: int | None
    source: str  # "given", "files", "inferred" or "" where unknown
    evidence: str


@dataclass(frozen=True, slots=True)
class SampleBin:
    """Files that hold low <= samples < high."""

    low: int
    high: int
    files: int


@dataclass(frozen=True, slots=True)
class SamplesPerFile:
    """Distribution of samples over dataset files; numbers are None where samples are unknown."""

    record_bytes: int | None
    source: str | None
    evidence: str
    files: int  # how many files the numbers are of
    total: int | None
    min: int | None
    median: float | None
    max: int | None
    histogram: tuple[SampleBin, ...]


def record_size(
    user_data: UserData,
    sizes: tuple[NDArray[np.int64], NDArray[np.int64]],
    within: AccessCounts | None,
) -> Record:
    """The size of one sample: given, else as opened files say, else inferred from strong evidence.

    Inferred only where one transfer size carries 80 % of the dataset's bytes and 80 % of the
    reads begin elsewhere than the one before ended: then one read is one sample. Reads that
    moved nothing, as at the end of a file, are neither.

    Args:
        user_data: what the user and opened files say.
        sizes: distinct sizes of reads, and how many reads have each.
        within: where the reads that moved bytes begin.
    """
    if user_data.record_bytes is not None:
        return Record(user_data.record_bytes, "given", "--record-size")
    known = [f for f in user_data.facts.values() if f.samples is not None]
    if known:
        return Record(None, "files", f"counted in {len(known):,} opened files")
    nbytes, counts = sizes
    volume = nbytes * counts
    if len(volume) == 0 or within is None or not volume.sum() or not within.ops:
        return Record(None, "", "no reads with sizes and offsets were traced")
    top = int(np.argmax(volume))
    share = float(volume[top] / volume.sum())
    jumps = ((within.forward or 0) + (within.backward or 0)) / within.ops
    if share >= _STRONG and jumps >= _STRONG and nbytes[top] >= _SMALLEST:
        of_size = f"{percent(share)} of the bytes came in reads of this size"
        evidence = f"{of_size}, {percent(jumps)} of reads begin elsewhere than the one before ended"
        return Record(int(nbytes[top]), "inferred", evidence)
    return Record(
        None,
        "",
        "no single transfer size stands for one sample: give --record-size, or --inspect where "
        "the files can be opened",
    )


def with_samples(file: DataFile, record: Record, user_data: UserData) -> DataFile:
    """The file with the number of samples in the part of it that was read."""
    if record.source == "files":
        facts = user_data.facts.get(file.path)
        if facts is None or facts.samples is None:
            return file
        size = max(facts.size, 1)
        seen = size if file.unique_bytes is None else min(file.unique_bytes, size)
        whole = seen >= 0.98 * size  # footers, padding and indices are not always read
        return replace(file, samples=facts.samples if whole else facts.samples * seen // size)
    if record.nbytes is None:
        return file
    read = file.unique_bytes if file.unique_bytes is not None else file.extent
    return file if read is None else replace(file, samples=read // record.nbytes)


def per_file(files: Sequence[DataFile], record: Record) -> SamplesPerFile:
    """Distribution of `samples` over the files that have one; histogram in powers of two."""
    values = np.array([f.samples for f in files if f.samples is not None], np.int64)
    source = record.source or None
    if len(values) == 0:
        return SamplesPerFile(record.nbytes, source, record.evidence, 0, None, None, None, None, ())
    return SamplesPerFile(
        record.nbytes,
        source,
        record.evidence,
        len(values),
        int(values.sum()),
        int(values.min()),
        float(np.median(values)),
        int(values.max()),
        _histogram(values),
    )


def _histogram(values: NDArray[np.int64]) -> tuple[SampleBin, ...]:
    top = int(values.max()).bit_length()
    edges = [0, *(1 << i for i in range(top + 1))]
    counts = np.histogram(values, [*edges[:-1], edges[-1]])[0].tolist()
    bins = [SampleBin(a, b, n) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]
    used = [i for i, b in enumerate(bins) if b.files]
    return tuple(bins[used[0] : used[-1] + 1])
