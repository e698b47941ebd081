"""The shape of single requests: size, order, chunks, alignment."""

from __future__ import annotations

import math

from vanidl.dataset.tfrecord import READ_BUFFER
from vanidl.findings.facts import Facts
from vanidl.findings.finding import Rule, RuleResult, Value
from vanidl.formatting.units import count, nbytes, percent
from vanidl.model.file_facts import ArrayFacts

MANY = 1000
SMALL = 128 << 10
RANDOM = 1 << 20
BUFFER_SHARE = 0.8
CHUNK_ROWS = 4
CHUNK_PIECES = 16
MOST = 0.5
"""Of the bytes, from which on one file is named as the cause."""


def _small_reads(facts: Facts) -> RuleResult | None:
    if not facts.matters or facts.reads < MANY or facts.mean_read_nbytes >= SMALL:
        return None
    data = facts.results.dataset
    busiest = data.files[0] if data else None
    holds_most = data and busiest and busiest.bytes_read > MOST * data.bytes_read
    return RuleResult(
        f"{count(facts.reads)} dataset reads of {nbytes(facts.mean_read_nbytes)} on average",
        "Each pays the latency of the storage. "
        + (f"Most bytes come from {busiest.path}." if busiest and holds_most else ""),
        "Read more at once: larger shards or chunks, whole samples per request, neighbouring "
        "samples merged (the scheduled loader merges where a gap costs less than a request).",
        {
            "reads": facts.reads,
            "mean_bytes": facts.mean_read_nbytes,
            "busiest_file": busiest.path if busiest else None,
            "ranks_on_it": busiest.ranks if busiest else None,
        },
        facts.io_bound_s,
    )


def _random_reads(facts: Facts) -> RuleResult | None:
    jumps = facts.jumps
    if not facts.matters or facts.reads < MANY or jumps is None:
        return None
    if facts.mean_read_nbytes >= RANDOM or jumps < 0.5:
        return None
    return RuleResult(
        f"{percent(jumps)} of the dataset reads jump within a file",
        "Shuffling single samples defeats read-ahead. Shuffling is wanted; reading in random order "
        "is not the only way to it.",
        "Shuffle shards and a buffer of samples instead of single samples, or plan the shuffle "
        "ahead and read what is near together (the scheduled loader).",
        {"jumps": jumps, "reads": facts.reads, "mean_bytes": facts.mean_read_nbytes},
        facts.io_bound_s,
    )


def _tfrecord_buffer(facts: Facts) -> RuleResult | None:
    data = facts.results.dataset
    if not facts.matters or data is None or not data.files:
        return None
    if "tfrecord" not in data.files[0].path.rsplit("/", 1)[-1].lower():
        return None
    mode = next((m for m in data.modes if m.low == m.high == READ_BUFFER), None)
    if mode is None or mode.share_of_bytes < BUFFER_SHARE:
        return None
    return RuleResult(
        "TFRecord files are read in pieces of 256 KiB, the reader's default",
        f"{count(mode.reads)} reads of exactly {nbytes(READ_BUFFER)} carry "
        f"{percent(mode.share_of_bytes)} of the dataset's bytes.",
        "TFRecordDataset(files, buffer_size=8 << 20, num_parallel_reads=...): fewer requests for "
        "the same bytes.",
        {
            "reads": mode.reads,
            "share_of_bytes": mode.share_of_bytes,
            "reads_at_8_mib": math.ceil(mode.reads * READ_BUFFER / (8 << 20)),
        },
        facts.io_bound_s,
    )


def _misfit(array: ArrayFacts, *, shuffled: bool) -> dict[str, Value] | None:
    """How one array's chunks miss what is read of it: one sample along the first axis."""
    if array.chunk is None or not array.shape or array.shape[0] < CHUNK_ROWS:
        return None
    rows = array.chunk[0]
    pairs = zip(array.shape[1:], array.chunk[1:], strict=True)
    pieces = math.prod(math.ceil(n / max(c, 1)) for n, c in pairs)
    if not (shuffled and rows >= CHUNK_ROWS) and pieces < CHUNK_PIECES:
        return None
    return {
        "array": array.name,
        "shape": list(array.shape),
        "chunk": list(array.chunk),
        "samples_a_chunk": rows,
        "chunks_a_sample": pieces,
    }


def _chunks(facts: Facts) -> RuleResult | None:
    if not facts.matters or facts.jumps is None:
        return None
    shuffled = facts.jumps >= 0.5
    found = []
    for path, file in facts.trace.user_data.facts.items():
        misfits = [m for a in file.arrays if (m := _misfit(a, shuffled=shuffled))]
        found += [(path, m) for m in misfits if file.format == "HDF5"]
    if not found:
        return None
    path, worst = found[0]
    return RuleResult(
        "HDF5 chunks do not fit the samples that are read",
        f"In {path}, {worst['array']}: a chunk holds {worst['samples_a_chunk']} samples, a sample "
        f"lies in {worst['chunks_a_sample']} chunks. A chunk is read whole, or piece by piece.",
        "Rewrite with chunks of one sample (h5repack -l), or read as many neighbouring samples as "
        "a chunk holds; a larger chunk cache (rdcc_nbytes) helps where they are read soon again.",
        {"file": path, "arrays_that_misfit": len(found), **worst},
        facts.io_bound_s,
    )


def _misaligned(facts: Facts) -> RuleResult | None:
    table = facts.counters
    if not facts.matters or table is None or "POSIX_FILE_NOT_ALIGNED" not in table.counters:
        return None
    files = facts.trace.files
    mine = facts.of_files(
        table,
        lambda c: files.file_system[c] == "lustre" and files.kind[c] in ("dataset", "checkpoint"),
    )
    unaligned = table.counters["POSIX_FILE_NOT_ALIGNED"][mine]
    names = ("POSIX_READS", "POSIX_WRITES")
    ops = sum(int(table.counters[n][mine].clip(0).sum()) for n in names if n in table.counters)
    off = int(unaligned[unaligned > 0].sum())
    if ops < MANY or off < ops / 2:
        return None
    return RuleResult(
        f"{percent(off / ops)} of the requests on Lustre do not start on a stripe boundary",
        "Such a request can touch one more storage target and one more lock than it needs.",
        "Align samples to the file system's unit (h5py: alignment_interval, alignment_threshold; "
        "padded shards), or set the stripe size to the size of a sample.",
        {"not_aligned": off, "operations": ops},
        facts.io_bound_s,
    )


_PER_READ = "Drishti's P05 counts every read under 1 MB of every file; here only the dataset's, and"
RULES = (
    Rule(
        "small_reads", "mean size of the reads of dataset files",
        "1,000 reads under 128 KiB, where I/O matters",
        f"{_PER_READ} only where reading costs time at all; 128 KiB is Linux's read-ahead, under "
        "which a request is latency more than transfer",
        _small_reads,
    ),
    Rule(
        "random_reads", "share of dataset reads that begin elsewhere than the one before ended",
        "half of 1,000 reads under 1 MiB, where I/O matters",
        "Drishti's P11 fires on any shuffle; above 1 MiB a jump costs little beside the transfer",
        _random_reads,
    ),
    Rule(
        "tfrecord_default_buffer", "share of the bytes of TFRecord files in reads of 256 KiB",
        "80 %, where I/O matters", "the size of TensorFlow's default buffer and of nothing else",
        _tfrecord_buffer,
    ),
    Rule(
        "hdf5_chunk_misfit",
        "samples per chunk and chunks per sample, from opened files (--inspect)",
        "4 samples per chunk read in no order, or 16 chunks per sample, where I/O matters",
        "a compressed chunk is read and decoded whole for each sample of it",
        _chunks,
    ),
    Rule(
        "misaligned", "operations that Darshan counted as not aligned, on Lustre",
        "half of 1,000, where I/O matters",
        "Drishti's P08, only where alignment has a meaning: striped files",
        _misaligned,
    ),
)  # fmt: skip
