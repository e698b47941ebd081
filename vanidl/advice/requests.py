"""Single requests, to files and to objects: size, order, chunks, alignment, how long they take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vanidl.advice.facts import MATTERS, Claim, Facts
from vanidl.advice.finding import Rule, RuleResult, Value
from vanidl.breakdown.account import MEAN, WAIT
from vanidl.breakdown.causes import INPUT_CPU, READ, STORAGE
from vanidl.dataset.tfrecord import READ_BUFFER
from vanidl.formatting.units import count, nbytes, number, percent, plural, seconds, times
from vanidl.model.run_facts import ArrayFacts
from vanidl.model.trace import OBJECT

if TYPE_CHECKING:
    from vanidl.model.lines import FunctionLines

_READS = f"{STORAGE}.{READ}"
MANY = 1000
SMALL = 128 << 10
RANDOM = 1 << 20
BUFFER_SHARE = 0.8
CHUNK_ROWS = 4
MANY_EMPTY = 100
EMPTY_OF_RUN = 0.01
CHUNKS_AGAIN = 8
USED, MUCH_READ = 0.25, 8 << 20
"""Of the bytes read for batches, in memory, and how many are read for one: less of them is small
beside what is read and thrown away, and of fewer their requests take as long as they."""
OF_FETCHES = 0.1
SLOW_SHARE = 0.02
"""Of the observed time what slow reads take beyond the median."""
_CHUNKED = ("h5py", "zarr", "netCDF4", "tables", "xarray", "hdf5plugin")
"""Libraries whose files are read a chunk at a time."""
CHUNK_PIECES = 16
MANY_OPENS = 100
WHOLE = 0.9
SHUFFLED_SAMPLES = (
    "Shuffling single samples defeats read-ahead. Shuffling is wanted; reading in random order is "
    "not the only way to it.",
    "Shuffle shards and a buffer of samples instead of single samples, or plan the shuffle ahead "
    "and read what is near together (the scheduled loader).",
)
WHOLE_FILES = (
    "Each file is read whole, in pieces that do not follow each other: headers, indices and "
    "chunks one by one.",
    "Read a file with one request (open(path, 'rb').read(), np.fromfile), and take it apart in "
    "memory.",
)
MOST = 0.5
"""Share of the bytes at which one file is named as the cause."""


def _find_small_reads(facts: Facts) -> RuleResult | None:
    if not facts.matters or facts.reads < MANY or facts.mean_read_nbytes >= SMALL:
        return None
    if facts.on_objects:  # a request costs more there: `object_requests_small`
        return None
    data = facts.results.dataset
    busiest = data.files[0] if data and data.files[0].bytes_read > MOST * data.bytes_read else None
    return RuleResult(
        f"{count(facts.reads)} dataset reads of {nbytes(facts.mean_read_nbytes)} on average",
        "Each pays the latency of the storage."
        + (f" Most bytes come from {busiest.path}." if busiest else ""),
        "Read more at once: larger shards or chunks, whole samples per request, neighbouring "
        "samples merged (the scheduled loader merges where a gap costs less than a request).",
        {
            "reads": facts.reads,
            "mean_bytes": facts.mean_read_nbytes,
            "busiest_file": busiest.path if busiest else None,
            "ranks_on_it": busiest.ranks if busiest else None,
        },
        facts.larger_reads(),
    )


def _find_random_reads(facts: Facts) -> RuleResult | None:
    jumps = facts.jumps
    if not facts.matters or facts.reads < MANY or jumps is None:
        return None
    if facts.mean_read_nbytes >= RANDOM or jumps < 0.5:
        return None
    detail, advice = WHOLE_FILES if _is_reading_whole_files(facts) else SHUFFLED_SAMPLES
    return RuleResult(
        f"{percent(jumps)} of the dataset reads jump within a file",
        detail,
        advice,
        {"jumps": jumps, "reads": facts.reads, "mean_bytes": facts.mean_read_nbytes},
        facts.larger_reads(),
    )


def _is_reading_whole_files(facts: Facts) -> bool:
    """Whether each open of a dataset file is followed by as many bytes as the file has.

    Files are then shuffled, not what lies in them. Of a few opens that is not known: a file that
    stays open can be read whole, once, in any order.
    """
    data = facts.results.dataset
    if data is None or facts.opens < MANY_OPENS:
        return False
    known = [(f.opens, f.known_nbytes) for f in data.files]
    whole = sum((opens or 0) * (size or 0) for opens, size in known)
    return data.bytes_read >= WHOLE * whole > 0


def _find_small_tfrecord_buffer(facts: Facts) -> RuleResult | None:
    data = facts.results.dataset
    if not facts.matters or data is None or not data.files:
        return None
    if "tfrecord" not in data.files[0].path.rsplit("/", 1)[-1].lower():
        return None
    # A mode of exactly one size, the reader's buffer, and not of sizes near it.
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
        facts.larger_reads(),
    )


def _measure_chunk_misfit(array: ArrayFacts, *, shuffled: bool) -> dict[str, Value] | None:
    """How one array's chunks miss what is read of it: one sample along the first axis."""
    if array.chunk is None or not array.shape or array.shape[0] < CHUNK_ROWS:
        return None
    rows = array.chunk[0]
    pairs = zip(array.shape[1:], array.chunk[1:], strict=True)
    pieces = math.prod(math.ceil(n / max(c, 1)) for n, c in pairs)
    # Shuffled samples use one row of a chunk; in order, only many pieces a sample are a misfit.
    if not (shuffled and rows >= CHUNK_ROWS) and pieces < CHUNK_PIECES:
        return None
    return {
        "array": array.name,
        "shape": list(array.shape),
        "chunk": list(array.chunk),
        "samples_a_chunk": rows,
        "chunks_a_sample": pieces,
    }


def _format_quantity(number: Value, noun: str) -> str:
    return plural(number, noun) if isinstance(number, int) else f"{number} {noun}s"


def _find_unfit_chunks(facts: Facts) -> RuleResult | None:
    if not facts.matters or facts.jumps is None:
        return None
    # Where half of the reads jump or more, samples are taken as shuffled.
    shuffled = facts.jumps >= 0.5
    found = []
    for path, file in facts.trace.user_data.facts.items():
        misfits = [m for a in file.arrays if (m := _measure_chunk_misfit(a, shuffled=shuffled))]
        found += [(path, m) for m in misfits if file.format == "HDF5"]
    if not found:
        return None
    # One array is named; the counts say how many others there are.
    path, worst = found[0]
    paths = {p for p, _ in found}
    samples = _format_quantity(worst["samples_a_chunk"], "sample")
    chunks = _format_quantity(worst["chunks_a_sample"], "chunk")
    where = f"{path}, {worst['array']}" if len(paths) == 1 else f"array {worst['array']}"
    return RuleResult(
        "HDF5 chunks do not fit the samples that are read",
        f"In {where}: a chunk holds {samples}, a sample "
        f"lies in {chunks}. A chunk is read whole, or piece by piece.",
        "Rewrite with chunks of one sample (h5repack -l), or read as many neighbouring samples as "
        "a chunk holds; a larger chunk cache (rdcc_nbytes) helps where they are read soon again.",
        {
            "file": path if len(paths) == 1 else None,
            "files_that_misfit": len(paths),
            "arrays_that_misfit": len(found),
            **worst,
        },
        facts.larger_reads(),
    )


def _find_reread_chunks(facts: Facts) -> RuleResult | None:
    """Whole chunks are read and unpacked for a sample of them: pass by pass many times over."""
    data, spent = facts.results.dataset, facts.sampled_share("fetch", _is_chunked)
    if data is None or not data.unique_bytes or spent is None or spent.least < OF_FETCHES:
        return None
    # Each rank may have to read all once in each pass.
    passes = facts.passes * max(len(data.ranks), 1)
    again = data.bytes_read / data.unique_bytes / passes
    if again < CHUNKS_AGAIN or facts.opens >= facts.reads * MOST:
        return None
    if facts.wait_share < OF_FETCHES:
        return None
    # Reading and unpacking come together: the claim goes to the longer of the two.
    waits_s = facts.account.length_ns(WAIT) / 1e9
    cells = {c: facts.account.cell(f"{MEAN}/{WAIT}/{c}") for c in (INPUT_CPU, STORAGE)}
    cause = max(cells, key=lambda each: cells[each].middle_ns)
    return RuleResult(
        f"Chunks are read {times(again)} in one pass over the samples",
        f"{nbytes(data.bytes_read)} were read of {nbytes(data.unique_bytes)} that differ, "
        f"{nbytes(facts.mean_read_nbytes)} a request: a whole chunk for a sample of it. Reading "
        f"and unpacking them took {percent(spent.middle)} of the fetches, by sampled lines.",
        "Rewrite with chunks of one sample, or read as many neighbouring samples as a chunk holds; "
        "a larger chunk cache (rdcc_nbytes) helps where they are read soon again.",
        {"reread_factor": again, "bytes_read": data.bytes_read,
         "different_bytes": data.unique_bytes, "share_of_fetches": spent.middle},
        Claim(
            cause, stays=1 / again, keeps="each chunk once", within_s=spent.most * waits_s,
            surely_s=spent.least * cells[cause].low_ns / 1e9,
        ),
    )  # fmt: skip


def _find_unused_bytes(facts: Facts) -> RuleResult | None:
    """Most of what is read for batches is in none of them: crops, or values computed from it."""
    data, held = facts.results.dataset, facts.batches_nbytes
    size = facts.trace.fetches.mean_nbytes
    if not facts.matters or data is None or not held or size is None:
        return None
    # What was read before the first step, as a scan of the data, was for no batch.
    before = facts.before_steps
    read = data.bytes_read - (before.nbytes if before else 0)
    used, of_batch = held / max(read, 1), read / len(facts.trace.fetches)
    if used > USED or of_batch < MUCH_READ:
        return None
    # As many requests stay, or more: at best they take as long as their bytes alone.
    return RuleResult(
        f"Batches hold {percent(used)} of the bytes that are read for them",
        f"{nbytes(round(of_batch))} of files are read for a batch, which takes "
        f"{nbytes(round(size))} in memory: parts of what was read, or what is "
        "computed from it.",
        'Read only the part that is used (np.load(..., mmap_mode="r"), slices of HDF5 or Zarr '
        "arrays), or store samples once as they are used: cropped, resized, computed.",
        {"bytes_read": read, "batch_bytes": round(size), "used_share": used},
        Claim(
            _READS, stays=used, surely_s=0.0, keeps="requests for the bytes that are used",
        ),
    )  # fmt: skip


def _is_chunked(function: FunctionLines) -> bool:
    return any(f"/{name}/" in function.posix_file for name in _CHUNKED)


def _find_misaligned_reads(facts: Facts) -> RuleResult | None:
    table = facts.counters
    if not facts.matters or table is None or "POSIX_FILE_NOT_ALIGNED" not in table.counters:
        return None
    files = facts.trace.files
    mine = facts.of_files(
        table,
        lambda c: files.file_system[c] == "lustre" and files.kind[c] in ("dataset", "checkpoint"),
    )
    # Darshan writes -1 where it has no count.
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
        facts.larger_reads(),
    )


def _find_empty_reads(facts: Facts) -> RuleResult | None:
    found = facts.results.durations
    if found is None or found.empty < MANY_EMPTY:
        return None
    gain_s = facts.worth_s(found.empty_s, EMPTY_OF_RUN)
    if gain_s is None:
        return None
    return RuleResult(
        f"{count(found.empty)} dataset reads of 0 bytes take {seconds(found.empty_s)}",
        "A reader that reads to the end of a file asks once more to learn that nothing is left; "
        f"on this storage each such request takes {seconds(found.empty_s / found.empty)}.",
        "Ask for the size that is known (os.fstat, then one read of that size; np.fromfile with "
        "count), and read small files once.",
        {"empty_reads": found.empty, "spent_s": found.empty_s},
        Claim(_READS, within_s=gain_s),
    )


_PER_READ = "Drishti's P05 counts every read under 1 MB of every file; here only the dataset's, and"
MANY_OBJECTS = 50
SMALL_OBJECT = 1 << 20
HALF = 0.5


def _find_small_object_requests(facts: Facts) -> RuleResult | None:
    if not facts.on_objects or not facts.matters or facts.reads < MANY_OBJECTS:
        return None
    mean, time = facts.mean_read_nbytes, facts.results.summary.time
    # Larger requests spend their time on bytes rather than on the round trip.
    if mean >= SMALL_OBJECT or time is None or not time.any_rank_s:
        return None

    # Time of all requests over time with any: so many were under way at once.
    each_s = time.sum_s / max(facts.results.summary.ops or 1, 1)
    at_once = time.sum_s / time.any_rank_s
    return RuleResult(
        f"{count(facts.reads)} requests for {nbytes(mean)} on average: most of their time is "
        "latency",
        f"A request took {seconds(each_s)} on average, and {number(at_once)} were under way at "
        "once while there were any. Object storage answers each after a round trip and a look-up, "
        "however little is asked for.",
        "Ask for more at once: samples packed into shards of 64 MiB and more (WebDataset, MDS, "
        "Parquet) and ranges of several MiB (fsspec's block_size, cat_ranges). Have more requests "
        "under way: more workers, or asynchronous requests within a worker."
        f"{facts.before_workers}",
        {
            "reads": facts.reads,
            "mean_bytes": mean,
            "mean_request_s": each_s,
            "requests_at_once": at_once,
        },
        facts.reading(),
    )


def _find_lookups_before_gets(facts: Facts) -> RuleResult | None:
    """HEAD or a listing before the object itself."""
    overlap = facts.account.overlap
    if not facts.on_objects or overlap is None or not facts.reads:
        return None
    asking_s, window_s = overlap.mean.input_wait_metadata_s, overlap.mean.window_s
    if asking_s is None or asking_s < MATTERS * window_s:
        return None
    # A listing made once is no look-up before each read.
    asked = _count_requests(facts, "STATS") + _count_requests(facts, "LISTS")
    if asked < HALF * facts.reads:
        return None
    return RuleResult(
        f"{count(asked)} HEAD and LIST requests beside {count(facts.reads)} reads",
        f"Training waited {seconds(asking_s)} for them alone: they ask whether an object is there "
        "and how large it is, one round trip each, before it is read.",
        "Read without asking: boto3's get_object instead of download_file, fsspec's "
        "cat_file(path, start, end) instead of open(path) or of whole files, with sizes from a "
        "listing made once or from an index beside the data.",
        {
            "heads": _count_requests(facts, "STATS"),
            "lists": _count_requests(facts, "LISTS"),
            "reads": facts.reads,
            "in_waits_s": asking_s,
        },
        Claim(STORAGE, within_s=asking_s),
    )


def _count_requests(facts: Facts, what: str) -> int:
    table = facts.trace.counters.get(OBJECT)
    values = None if table is None else table.counters.get(f"{OBJECT}_{what}")
    return 0 if values is None else int(values.sum())


def _find_slow_operations(facts: Facts) -> RuleResult | None:
    if facts.results.durations is None:
        return None
    from vanidl.analyses.durations import DATA_READS, SLOW_FACTOR

    found = facts.results.durations.groups.get(DATA_READS)
    if found is None or not facts.matters or found.count < MANY:
        return None
    if found.p99_s < SLOW_FACTOR * found.median_s or found.median_s <= 0:
        return None
    # Per rank, and no more than the run is bound by I/O.
    excess = found.excess_s / max(len(facts.trace.ranks), 1)
    gain_s = min(excess, facts.io_bound_s or 0.0)
    if gain_s < SLOW_SHARE * facts.base_s:
        return None
    return RuleResult(
        f"One dataset read in a hundred takes {times(found.p99_s / found.median_s)} the median",
        f"Half of {count(found.count)} reads take under {seconds(found.median_s)}, 1 % over "
        f"{seconds(found.p99_s)}, the slowest {seconds(found.longest_s)}. The {count(found.slow)} "
        f"that take {SLOW_FACTOR:.0f} times the median or more cost {seconds(found.excess_s)} over "
        "all ranks.",
        "Look at the slowest operations below: which files, which times, which hosts. A "
        "storage server that is busy with other jobs, a file that was not cached, or retries look "
        "like this. A longer prefetch queue evens out what is rare.",
        {
            "reads": found.count,
            "median_s": found.median_s,
            "p99_s": found.p99_s,
            "longest_s": found.longest_s,
            "slow_reads": found.slow,
            "excess_s": found.excess_s,
        },
        Claim(STORAGE, within_s=excess),
    )


def _find_saturated_storage(facts: Facts) -> RuleResult | None:
    """The storage delivers no more to more readers."""
    found = facts.throughput
    if found is None or not found.saturated or not facts.matters:
        return None
    return RuleResult(
        f"The storage delivers {nbytes(found.peak_bytes_per_s)}/s, and little more to more readers",
        f"On average {number(found.mean_depth)} reads of the dataset were under way at once; each "
        "took longer by what the others beside it took.",
        "More workers will not help. Read fewer bytes: smaller types, compressed samples, only "
        "what is used; keep the data in memory or on a local disk after the first read; or spread "
        "it over more servers (Lustre: more stripes).",
        {"bytes_per_s": found.peak_bytes_per_s, "reads_at_once": found.mean_depth},
        facts.reading(f"{STORAGE}.{READ}", keeps="what is still read"),
    )


RULES = (
    Rule(
        "empty_reads", "dataset reads that got 0 bytes, and the time in them",
        "100 of them, 1 % of the run per rank; where waits are known, I/O must matter",
        "a request costs the latency of the storage whether it brings bytes or not",
        _find_empty_reads,
    ),
    Rule(
        "small_reads", "mean size of the reads of dataset files",
        "1,000 reads under 128 KiB, where I/O matters",
        f"{_PER_READ} only where reading costs time at all; 128 KiB is Linux's read-ahead, under "
        "which a request is latency more than transfer",
        _find_small_reads,
    ),
    Rule(
        "random_reads", "share of dataset reads that begin elsewhere than the one before ended",
        "half of 1,000 reads under 1 MiB, where I/O matters",
        "Drishti's P11 fires on any shuffle; above 1 MiB a jump costs little beside the transfer",
        _find_random_reads,
    ),
    Rule(
        "tfrecord_default_buffer", "share of the bytes of TFRecord files in reads of 256 KiB",
        "80 %, where I/O matters", "the size of TensorFlow's default buffer and of nothing else",
        _find_small_tfrecord_buffer,
    ),
    Rule(
        "hdf5_chunk_misfit",
        "samples per chunk and chunks per sample, from opened files (--inspect)",
        "4 samples per chunk read in no order, or 16 chunks per sample, where I/O matters",
        "a compressed chunk is read and decoded whole for each sample of it",
        _find_unfit_chunks,
    ),
    Rule(
        "chunks_read_again",
        "bytes read / unique bytes, of a pass over the samples, in libraries that read chunks",
        "8 times, a tenth of the fetches by sampled lines, waits of a tenth of the window",
        "a chunk is unpacked whole for each of its samples, from the page cache too: it costs the "
        "processor, not the storage",
        _find_reread_chunks,
    ),
    Rule(
        "read_unused",
        "bytes of batches in memory / bytes read of the dataset after the first step began",
        "a quarter, and 8 MiB read for a batch, where I/O matters; batches that were measured",
        "decoding enlarges what is read, so memory holds less only where parts of samples are cut "
        "out or values are computed from them",
        _find_unused_bytes,
    ),
    Rule(
        "misaligned", "operations that Darshan counted as not aligned, on Lustre",
        "half of 1,000, where I/O matters",
        "Drishti's P08, only where alignment has a meaning: striped files",
        _find_misaligned_reads,
    ),
    Rule(
        "object_requests_small", "mean size of the reads of dataset objects in object storage",
        f"{MANY_OBJECTS} reads under 1 MiB, where I/O matters",
        "object stores answer after tens of milliseconds and then deliver 50 to 100 MB/s: under "
        "1 MiB a request is latency more than transfer",
        _find_small_object_requests,
    ),
    Rule(
        "object_asked_first", "HEAD and LIST requests / reads; time of the former in input waits",
        "half as many as reads, 2 % of the window in input waits",
        "a library that looks before it reads doubles the round trips of a small object",
        _find_lookups_before_gets,
    ),
    Rule(
        "slow_operations", "99th percentile of the durations of dataset reads / their median",
        "20 x, of 1,000 reads, 2 % of the window beyond the median, where I/O matters",
        "a cache that is missed now and then gives 5 to 10 x; beyond that requests are stuck",
        _find_slow_operations,
    ),
    Rule(
        "storage_saturated",
        "throughput of dataset reads / what any number of them at once would bring, by a line "
        "through how long a read takes beside how many others",
        "0.7, where I/O matters",
        "readers beside each other then only wait for each other", _find_saturated_storage,
    ),
)  # fmt: skip
