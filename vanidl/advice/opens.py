"""Files as such: too many, too small, opened too often; metadata; imports."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from vanidl.advice.facts import ANY, RUN, Claim, Facts, SampledShare
from vanidl.advice.finding import Rule, RuleResult, Value
from vanidl.analyses.datafiles import DataFile
from vanidl.breakdown.account import MEAN, WAIT
from vanidl.breakdown.causes import INPUT_CPU, METADATA, STORAGE
from vanidl.formatting.units import count, nbytes, percent, plural, seconds
from vanidl.model.trace import READ

if TYPE_CHECKING:
    from vanidl.model.lines import FunctionLines

_METADATA = f"{STORAGE}.{METADATA}"
MANY_FILES = 100
TINY = 256 << 10
MANY_OPENS = 100
META_SHARE = 0.30
META_OF_RUN = 0.01
FEW_IN_A_FILE = 2
PACK = (
    "Each file holds about one sample: pack many samples into a file (WebDataset tar, TFRecord, "
    "HDF5, MDS), or keep the files in memory after the first epoch."
)
KEEP_OPEN = (
    "Open a file once in each worker and keep it (h5py.File in worker_init_fn or at first use), "
    "or pack many samples into a file."
)
RECORDS = (
    "; in the log they use up records and trace that the dataset needs (Darshan keeps 1,024 files "
    "by default)."
)
EXCLUDE = (
    "Exclude library paths from the trace (vanidl record does so with Darshan; by hand: "
    "NAME_EXCLUDE). "
)
FASTER_IMPORTS = (
    "Imports are faster from an environment on local disk or in one packed file (squashfs, "
    "conda-pack)."
)
SMALL_FILE = 64 << 10
LARGE_FILE = 1 << 20
WHOLE_SHARE = 0.5  # of a file, read after each of its opens
OFTEN = 10
CODE_SHARE = 0.01
OPENING_SHARE = 0.1
READ_AGAIN = 8
_OPENING = re.compile(
    r"\b(ZipFile|TarFile|tarfile\.open|h5py\.File|netCDF4\.Dataset|open_dataset|zarr\.open\w*|"
    r"lmdb\.open|sqlite3\.connect|rasterio\.open|ParquetFile|safe_open|tifffile\.TiffFile)"
    r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*(?:\)(?!\s*[.\[])|$)"
)
"""Calls that open a file of many samples, in a line of the program that does not use it as well:
where `.read(...)` or `[i]` follows at once, nothing tells how much of the line opening took."""
_OPENERS = frozenset({
    ("zipfile.py", "ZipFile.__init__"), ("__init__.py", "ZipFile.__init__"),
    ("tarfile.py", "TarFile.open"), ("tarfile.py", "TarFile.__init__"),
    ("files.py", "File.__init__"),
})  # fmt: skip
"""The same in libraries: file and function."""


def _find_tiny_files(facts: Facts) -> RuleResult | None:
    data = facts.results.dataset
    if not facts.matters or data is None or len(data.files) < MANY_FILES:
        return None
    # The median: one large file among thousands changes nothing.
    sizes = [f.known_nbytes for f in data.files]
    known = [s for s in sizes if s is not None]
    if len(known) < MANY_FILES or float(np.median(known)) >= TINY:
        return None
    median = float(np.median(known))
    return RuleResult(
        f"The dataset is {count(len(data.files))} files of {nbytes(median)}",
        "Each costs an open, a close and a request of its own; parallel file systems are slow "
        "at that.",
        "Pack samples into shards (WebDataset tar, TFRecord, HDF5, MDS) of 64 MiB or more.",
        {"files": len(data.files), "median_bytes": median, "bytes_read": data.bytes_read},
        facts.calls_about(_METADATA),
    )


def _find_opens_per_sample(facts: Facts) -> RuleResult | None:
    data = facts.results.dataset
    if not facts.matters or data is None:
        return None
    # Files beside the samples, and those that an open reads whole, have findings of their own.
    again = {f.path for f in _select_reread_files(facts)}
    files = [f for f in data.files if f.path not in again and not _is_read_whole(f)]
    opens = sum(f.opens or 0 for f in files)
    total = data.samples.total
    # Without a count of samples each read stands for one.
    samples = round(total * (data.reread_factor or 1.0)) if total else facts.reads
    if opens < MANY_OPENS:
        return None
    # Rarer than every second sample: files may still be opened anew, samples uncounted.
    if opens < samples / 2:
        return None if total else _find_reopened_files(facts, files)
    evidence: dict[str, Value] = {"opens": opens, "samples_or_reads": samples,
                                  "files": len(files), "stats": _count_stats(facts)}  # fmt: skip
    each = "each of them" if samples / opens < 1.5 else "every two of them"
    what = "samples" if total else "reads that moved bytes"
    in_a_file = samples / (data.reread_factor or 1.0) / len(files)
    return RuleResult(
        f"{count(opens)} opens of dataset files for {count(samples)} {what}",
        f"That is one open for {each}.",
        PACK if in_a_file < FEW_IN_A_FILE else KEEP_OPEN,
        evidence,
        facts.calls_about(_METADATA),
    )


def _is_read_whole(file: DataFile) -> bool:
    """A large file of which an open reads nearly all, as once an epoch: no opens to save."""
    size = file.known_nbytes
    if size is None or size < LARGE_FILE or not file.opens:
        return False
    return file.bytes_read >= WHOLE_SHARE * size * file.opens


def _find_reopened_files(facts: Facts, files: Sequence[DataFile]) -> RuleResult | None:
    """Files that a process opens again and again, where samples cannot be counted."""
    opens = sum(f.opens or 0 for f in files)
    each = opens / max(_count_openers(facts, {f.path for f in files}), 1)
    if opens < MANY_OPENS or each < OFTEN:
        return None
    return RuleResult(
        f"Each dataset file is opened {count(each)} times by each process that reads it",
        f"{count(opens)} opens of {plural(len(files), 'dataset file')}: many reads follow each "
        "open, but no file is kept open from one sample to the next.",
        KEEP_OPEN,
        {
            "opens": opens,
            "files": len(files),
            "opens_per_file_and_process": each,
            "stats": _count_stats(facts),
        },
        facts.calls_about(_METADATA),
    )


def _find_reopens_per_sample(facts: Facts) -> RuleResult | None:
    """Files that are opened for each sample, and what that costs the processor.

    An archive's directory is read and parsed anew with each open, from the page cache too.
    """
    data, samples = facts.results.dataset, facts.fetched_samples
    if data is None or not samples or facts.wait_share < OPENING_SHARE:
        return None
    processes = max(len(facts.trace.processes), 1)
    files = [f for f in data.files if (f.opens or 0) >= OFTEN * processes]
    opens = sum(f.opens or 0 for f in files)
    if opens < max(MANY_OPENS, samples / 2):
        return None
    # By the lines that open, or by what each open reads again.
    spent = facts.sampled_share("fetch", _has_opens, _OPENING)
    again = data.bytes_read / data.unique_bytes / facts.passes if data.unique_bytes else 0.0
    seen = spent is not None and spent.least >= OPENING_SHARE
    if not seen and (spent is not None or again < READ_AGAIN):
        return None
    how = f"; opening took {percent(spent.middle)} of the fetches" if seen and spent else ""
    return RuleResult(
        f"{count(opens)} opens of {plural(len(files), 'file')} for {count(samples)} samples",
        f"{nbytes(data.bytes_read)} were read of {nbytes(data.unique_bytes or 0)} that differ: "
        f"each open reads again what the file begins or ends with, and takes it apart{how}.",
        KEEP_OPEN,
        {"opens": opens, "files": len(files), "samples": samples, "reread_factor": again,
         "share_of_fetches": spent.middle if spent is not None else None},
        _claim_reopens(facts, spent if seen else None, min(processes / opens, 1.0)),
    )  # fmt: skip


def _claim_reopens(facts: Facts, spent: SampledShare | None, stays: float) -> Claim:
    """What opening takes of the waits: where lines say how much it is, of the storage as well.

    Without workers what reading and computing take adds up; of workers each is known alone.
    """
    keeps = "one open in each process"
    if spent is None or facts.gains is None:
        return Claim(INPUT_CPU, stays=stays, keeps=keeps, surely_s=0.0)
    waits_s = facts.account.length_ns(WAIT) / 1e9
    causes = (INPUT_CPU, STORAGE)
    seen_s = sum(facts.account.cell(f"{MEAN}/{WAIT}/{cause}").low_ns for cause in causes) / 1e9
    # What is looked up behind the open is read again as well, and stays with a file that is kept.
    again_s = _compute_again_share(facts) * facts.gains.without(STORAGE).high_ns / 1e9
    alone_s = [facts.gains.without(cause).low_ns / 1e9 for cause in causes]
    known_s = max(alone_s) if facts.has_workers else sum(alone_s)
    return Claim(
        ANY,
        stays=stays,
        keeps=keeps,
        within_s=min(max(spent.most * waits_s, again_s), waits_s),
        surely_s=min(spent.least * seen_s, known_s * (1 - stays)),
    )


def _compute_again_share(facts: Facts) -> float:
    """Of the time in reads that of requests and bytes that were asked for before, by one process.

    Only within a pass: of reads in several passes each is taken to be asked for once more.
    """
    data, is_data = facts.results.dataset, facts.trace.files.is_data
    asked = different = 0
    for part in facts.trace.io:
        rows = (part.op == READ) & is_data[part.file] & (part.nbytes > 0) & (part.offset >= 0)
        requests = np.stack([part.file[rows], part.offset[rows], part.nbytes[rows]])
        asked += requests.shape[1]
        different += np.unique(requests, axis=1).shape[1]
    if data is None or not asked or not data.unique_bytes:
        return 0.0
    passes = facts.passes
    requests_again, bytes_again = (
        max(1 - passes * part / whole, 0.0)
        for part, whole in ((different, asked), (data.unique_bytes, data.bytes_read))
    )
    # Latency is paid by the request, transfer by the byte.
    share = facts.transfer_share
    return (1 - share) * requests_again + share * bytes_again


def _has_opens(function: FunctionLines) -> bool:
    path = PurePosixPath(function.posix_file)
    return (path.name, function.name) in _OPENERS


def _count_openers(facts: Facts, paths: Collection[str]) -> int:
    """How many pairs of process and file have an open, of some files."""
    table = facts.counters
    if table is None or "POSIX_OPENS" not in table.counters:
        return 0
    mine = facts.of_files(table, lambda code: facts.trace.files.path[code] in paths)
    return int(np.count_nonzero(table.counters["POSIX_OPENS"][mine] > 0))


def _select_reread_files(facts: Facts) -> list[DataFile]:
    """Small dataset files that processes open again and again."""
    data = facts.results.dataset
    rows = data.files if data else ()
    most = OFTEN * max(len(facts.trace.processes), 1)
    sizes = ((f, f.known_nbytes) for f in rows)
    return [
        f
        for f, size in sizes
        if size is not None and size <= SMALL_FILE and (f.opens or 0) >= max(MANY_OPENS, most)
    ]


def _find_reread_file(facts: Facts) -> RuleResult | None:
    rows = _select_reread_files(facts)
    if not rows:
        return None
    opens = sum(f.opens or 0 for f in rows)
    spent_s = facts.file_s({f.path for f in rows})
    all_s = sum(r.io_s or 0.0 for r in facts.results.files.rows)
    gain_s = facts.worth_s(spent_s, META_OF_RUN)
    if gain_s is None:
        return None
    # A file is named that has most of the opens.
    main = max(rows, key=lambda f: f.opens or 0)
    named = main.path if (main.opens or 0) > opens / 2 else None
    # `A file of 46 B is`, `3 files of at most 2 KiB are`.
    largest = nbytes(max(f.known_nbytes or 0 for f in rows))
    many = len(rows) > 1
    small_files = (
        f"{count(len(rows))} files of at most {largest} are" if many else f"A file of {largest} is"
    )
    return RuleResult(
        f"{small_files} opened {count(opens)} times",
        f"Opening and reading {_name_files(rows, named)} took {seconds(spent_s)} over all ranks, "
        f"beside {seconds(all_s)} of reading and writing all files.",
        "Read it once per process and keep what it holds; or put it beside the samples, in their "
        "own file.",
        {
            "opens": opens,
            "files": len(rows),
            "file": named,
            "spent_s": spent_s,
            "share_of_io": min(spent_s / all_s, 1.0) if all_s > 0 else None,
        },
        Claim(STORAGE, within_s=gain_s),
    )


def _name_files(rows: Sequence[DataFile], named: str | None) -> str:
    if len(rows) == 1:
        return rows[0].path
    return f"them (mostly {named})" if named else "them"


def _count_stats(facts: Facts) -> int | None:
    """Calls of stat on dataset files; None where none was counted: modern C libraries hide it."""
    table = facts.counters
    if table is None or "POSIX_STATS" not in table.counters:
        return None
    counted = table.counters["POSIX_STATS"][facts.of_kind(table, facts.data_kind)]
    return int(counted[counted > 0].sum()) or None


def _find_metadata_time(facts: Facts) -> RuleResult | None:
    table = facts.counters
    names = ("POSIX_F_META_TIME", "POSIX_F_READ_TIME", "POSIX_F_WRITE_TIME")
    if table is None or "meta_time_not_credible" in facts.serious:
        return None
    if facts.lost_s is not None and not facts.matters:
        return None
    if any(n not in table.seconds for n in names):
        return None
    # Of dataset files alone: imports are told apart, by a rule of their own.
    mine = facts.of_kind(table, facts.data_kind)
    meta, read, write = (float(table.seconds[n][mine].clip(0).sum()) for n in names)
    # A large share of little time is not worth a word: it is held against the run, too.
    ranks = max(len(facts.trace.ranks), 1)
    if meta < META_SHARE * (meta + read + write) or meta <= 0:
        return None
    if meta / ranks < META_OF_RUN * facts.trace.job.run_time_s:
        return None
    return RuleResult(
        f"{percent(meta / (meta + read + write))} of the time on dataset files goes to metadata",
        f"{seconds(meta)} of open, stat and close against {seconds(read)} of reading, summed over "
        "files and processes.",
        "Fewer files and fewer opens: pack samples into shards, keep files open, list the dataset "
        "once and store the list.",
        {"meta_s": meta, "read_s": read, "write_s": write, "stats": _count_stats(facts)},
        Claim(_METADATA, within_s=meta / ranks),
    )


def _find_imports(facts: Facts) -> RuleResult | None:
    code = facts.group("code")
    if code is None:
        return None
    run_s = facts.trace.job.run_time_s
    if code.busy_s is None or run_s <= 0 or code.busy_s < CODE_SHARE * run_s:
        return None
    took = f" in {seconds(code.busy_s)} per rank"
    return RuleResult(
        f"{count(code.files)} files of code were read{took}",
        "Imports come before training" + (RECORDS if facts.by_darshan else "."),
        (EXCLUDE if facts.by_darshan else "") + FASTER_IMPORTS,
        {"files": code.files, "bytes_read": code.bytes_read, "busy_s_a_rank": code.busy_s},
        Claim(STORAGE, RUN, within_s=code.busy_s),
    )


RULES = (
    Rule(
        "tiny_files", "median size of dataset files, as far as they were read",
        "100 files under 256 KiB, where I/O matters",
        "an open on a parallel file system costs about as long as reading 256 KiB",
        _find_tiny_files,
    ),
    Rule(
        "open_per_sample",
        "opens of dataset files by the counters / samples (or reads that moved bytes); where "
        "samples are not known, opens of each file by each process",
        "100 opens, one for two samples or more; or ten by each process; where I/O matters",
        "a loader that keeps files open needs one per file and worker",
        _find_opens_per_sample,
    ),
    Rule(
        "reopened",
        "opens of dataset files / samples that were fetched; the share of fetches in lines that "
        "open them, and bytes read / unique bytes of a pass",
        "100 opens, one for two samples or more, ten by each process; a tenth of the fetches, or "
        "all bytes 8 times where lines were not sampled; waits of a tenth of the window",
        "what an open costs the processor no count of metadata calls shows",
        _find_reopens_per_sample,
    ),
    Rule(
        "file_read_again",
        "time on dataset files of at most 64 KiB that are opened again and again",
        "100 opens, ten by each process, 1 % of the run per rank; where waits are known, I/O must "
        "matter",
        "what a process has read of a small file it can keep",
        _find_reread_file,
    ),
    Rule(
        "metadata_share", "META time of dataset files / all their time by the counters",
        "30 %, and 1 % of the run per rank; where waits are known I/O must matter; not where the "
        "time is not credible",
        "Drishti's P17 wants 30 s a record, which no short run has; a share holds for all",
        _find_metadata_time,
    ),
    Rule(
        "import_noise", "time in reading files of kind code",
        "1 % of the run",
        "a start-up that is worth shortening",
        _find_imports,
    ),
)  # fmt: skip
