"""Files as such: too many, too small, opened too often; metadata; imports."""

from __future__ import annotations

import numpy as np

from vanidl.findings.facts import Facts
from vanidl.findings.finding import Rule, RuleResult, Value
from vanidl.formatting.units import count, nbytes, percent, seconds

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
    "unless told)."
)
EXCLUDE = (
    "Exclude library paths from the trace (vanidl record does so with Darshan; by hand: "
    "NAME_EXCLUDE). "
)
FASTER_IMPORTS = (
    "Imports are faster from an environment on local disk or in one packed file (squashfs, "
    "conda-pack)."
)
CODE_FILES = 500
CODE_SHARE = 0.05


def _tiny_files(facts: Facts) -> RuleResult | None:
    data = facts.results.dataset
    if not facts.matters or data is None or len(data.files) < MANY_FILES:
        return None
    sizes = [f.size if f.size is not None else f.extent for f in data.files]
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
        facts.files_bound_s,
    )


def _open_per_sample(facts: Facts) -> RuleResult | None:
    data = facts.results.dataset
    if not facts.matters or data is None:
        return None
    opens = facts.opens
    total = data.samples.total
    samples = round(total * (data.reread_factor or 1.0)) if total else facts.reads
    if opens < MANY_OPENS or opens < samples / 2:
        return None
    evidence: dict[str, Value] = {"opens": opens, "samples_or_reads": samples,
                                  "files": len(data.files), "stats": _stats(facts)}  # fmt: skip
    what = "samples" if total else "reads that moved bytes"
    in_a_file = samples / (data.reread_factor or 1.0) / len(data.files)
    return RuleResult(
        f"{count(opens)} opens of dataset files for {count(samples)} {what}",
        f"A file is opened for every {samples / opens:.1f} {what}.",
        PACK if in_a_file < FEW_IN_A_FILE else KEEP_OPEN,
        evidence,
        facts.files_bound_s,
    )


def _stats(facts: Facts) -> int | None:
    """Calls of stat on dataset files; None where none was counted: modern C libraries hide it."""
    table = facts.counters
    if table is None or "POSIX_STATS" not in table.counters:
        return None
    counted = table.counters["POSIX_STATS"][facts.of_kind(table, facts.data_kind)]
    return int(counted[counted > 0].sum()) or None


def _metadata(facts: Facts) -> RuleResult | None:
    table = facts.counters
    names = ("POSIX_F_META_TIME", "POSIX_F_READ_TIME", "POSIX_F_WRITE_TIME")
    if table is None or "meta_time_not_credible" in facts.serious:
        return None
    if facts.lost_s is not None and not facts.matters:
        return None
    if any(n not in table.seconds for n in names):
        return None
    mine = facts.of_kind(table, facts.data_kind)
    meta, read, write = (float(table.seconds[n][mine].clip(0).sum()) for n in names)
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
        {"meta_s": meta, "read_s": read, "write_s": write, "stats": _stats(facts)},
        min(meta / ranks, facts.lost_s) if facts.lost_s is not None else meta / ranks,
    )


def _imports(facts: Facts) -> RuleResult | None:
    code = facts.group("code")
    if code is None:
        return None
    run_s = facts.trace.job.run_time_s
    slow = code.busy_s is not None and run_s > 0 and code.busy_s >= CODE_SHARE * run_s
    if code.files < CODE_FILES and not slow:
        return None
    took = f" in {seconds(code.busy_s)} per rank" if code.busy_s is not None else ""
    return RuleResult(
        f"{count(code.files)} files of code were read{took}",
        "Imports come before training" + (RECORDS if facts.counts_apart else "."),
        (EXCLUDE if facts.counts_apart else "") + FASTER_IMPORTS,
        {"files": code.files, "bytes_read": code.bytes_read, "busy_s_a_rank": code.busy_s},
        code.busy_s,
    )


RULES = (
    Rule(
        "tiny_files", "median size of dataset files, as far as they were read",
        "100 files under 256 KiB, where I/O matters",
        "an open on a parallel file system costs about as long as reading 256 KiB",
        _tiny_files,
    ),
    Rule(
        "open_per_sample",
        "opens of dataset files by the counters / samples (or reads that moved bytes)",
        "100 opens, one for two samples or more, where I/O matters",
        "a loader that keeps files open needs one per file and worker",
        _open_per_sample,
    ),
    Rule(
        "metadata_share", "META time of dataset files / all their time by the counters",
        "30 %, and 1 % of the run per rank; where waits are known I/O must matter; not where the "
        "time is not credible",
        "Drishti's P17 wants 30 s a record, which no short run has; a share holds for all",
        _metadata,
    ),
    Rule(
        "import_noise", "files of kind code, and the time in reading them",
        "500 files or 5 % of the run",
        "half of Darshan's 1,024 records; or a start-up that is worth shortening",
        _imports,
    ),
)  # fmt: skip
