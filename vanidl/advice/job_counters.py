"""Jobs that are no training: what counters of all their files say, weighed in seconds of the run.

The triggers and their thresholds are those of Drishti (J. L. Bez et al., Drishti: Guiding
End-Users in the I/O Optimization Journey, PDSW 2022): shares of operations and of bytes. Such a
share says how often, not how much; here each is held against the time of the calls that it is
about, and what cannot cost 1 % of the run is not said.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vanidl.advice.facts import IMBALANCE, RUN, Claim, Facts
from vanidl.advice.finding import Rule, RuleResult
from vanidl.breakdown.account import MEAN
from vanidl.breakdown.causes import METADATA, READ, STORAGE, WRITE
from vanidl.formatting.units import count, nbytes, percent, plural, seconds, times
from vanidl.model.counter_totals import count_by_record
from vanidl.model.trace import MPIIO, POSIX, STDIO

MANY = 1000
SMALL_SHARE = 0.10
MISALIGNED_SHARE = 0.10
RANDOM_SHARE = 0.20
STRAGGLER_SHARE = 0.15
NEARLY_ALL, LARGE_MEAN = 0.99, 512 * 1024
AGAIN_SHARE = 0.10
SIEVED_SHARE = 0.10
HEAVY_SHARE, FEWEST_RANKS = 0.5, 4
_WIDER = 8  # stripes
STREAMS = ("<STDOUT>", "<STDERR>")
_SMALL_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M")
_PART = {"READ": f"{STORAGE}.{READ}", "WRITE": f"{STORAGE}.{WRITE}"}
_WORDS = {"READ": ("reads", "read"), "WRITE": ("writes", "written")}


def _sum_counters(facts: Facts, layer: str, names: Sequence[str]) -> int:
    table = facts.trace.counters.get(layer)
    return sum(table.total(name) or 0 for name in names) if table is not None else 0


def _is_mpi_job(facts: Facts) -> bool:
    """Whether it is a job of MPI without steps, and nothing shows that it trains."""
    return facts.results.steps is None and not facts.trains and not facts.frameworks


def _find_small_requests(facts: Facts, way: str) -> RuleResult | None:
    ops = _sum_counters(facts, POSIX, [f"POSIX_{way}S"])
    small = _sum_counters(facts, POSIX, [f"POSIX_SIZE_{way}_{each}" for each in _SMALL_BINS])
    if not _is_mpi_job(facts) or small < MANY or small < SMALL_SHARE * ops:
        return None
    name = "READ" if way == "READ" else "WRITTEN"
    moved = _sum_counters(facts, POSIX, [f"POSIX_BYTES_{name}"])
    # Where nearly all are in these bins their mean is known; near its end they cost bandwidth.
    if small >= NEARLY_ALL * ops and moved >= LARGE_MEAN * ops:
        return None
    what = _WORDS[way][0]
    return RuleResult(
        f"{percent(small / ops)} of {count(ops)} {what} are smaller than 1 MiB",
        f"{nbytes(moved / max(ops, 1))} each on average. Most of such a request is latency.",
        f"Collect {what} into larger ones: MPI-IO collectives with collective buffering "
        "(romio_cb_write=enable), HDF5 with larger chunks and H5Pset_alignment, or a buffer of "
        "some MiB in the program.",
        {"operations": ops, "mean_bytes": moved / max(ops, 1), "share": small / ops},
        Claim(_PART[way], RUN, stays=1 - small / ops, keeps="larger requests"),
    )


def _find_small_reads(facts: Facts) -> RuleResult | None:
    return _find_small_requests(facts, "READ")


def _find_small_writes(facts: Facts) -> RuleResult | None:
    return _find_small_requests(facts, "WRITE")


def _find_random_reads(facts: Facts) -> RuleResult | None:
    ops = _sum_counters(facts, POSIX, ["POSIX_READS"])
    in_order = _sum_counters(facts, POSIX, ["POSIX_SEQ_READS"])
    jumping = ops - in_order
    if not _is_mpi_job(facts) or jumping < MANY or jumping < RANDOM_SHARE * ops:
        return None
    return RuleResult(
        f"{percent(jumping / ops)} of {count(ops)} reads start before the end of the one before",
        "Read-ahead of the file system works against such an order.",
        "Read in the order of the file, larger pieces at once, or tell the file system of the "
        "order (posix_fadvise, MPI-IO hint access_style=random).",
        {"operations": ops, "share": jumping / ops},
        Claim(_PART["READ"], RUN, stays=in_order / ops, keeps="what is read in order"),
    )


def _find_misaligned_requests(facts: Facts) -> RuleResult | None:
    ops = _sum_counters(facts, POSIX, ["POSIX_READS", "POSIX_WRITES"])
    off = min(_sum_counters(facts, POSIX, ["POSIX_FILE_NOT_ALIGNED"]), ops)
    if not _is_mpi_job(facts) or off < MANY or off < MISALIGNED_SHARE * ops:
        return None
    return RuleResult(
        f"{percent(off / ops)} of {count(ops)} requests are not aligned to the file system's unit",
        "Such a request can touch one more server, or read a block to write a part of it.",
        "Align data to the unit (HDF5: H5Pset_alignment; Lustre: stripe size), or let MPI-IO "
        "collectives make requests of whole stripes (striping_unit, cb_buffer_size).",
        {"not_aligned": off, "operations": ops},
        Claim(STORAGE, RUN, stays=1 - off / ops, keeps="aligned requests"),
    )


def _find_metadata_time(facts: Facts) -> RuleResult | None:
    if not _is_mpi_job(facts):
        return None
    # Time in metadata calls of the mean rank, where the counters are credible.
    tables = [t for layer, t in facts.trace.counters.items() if layer in facts.account.outermost]
    ranks = max(len(facts.trace.ranks), 1)
    counted_s = sum(t.total_s(f"{t.layer}_F_META_TIME") or 0.0 for t in tables) / ranks
    # Calls that moved data beneath, as closing an HDF5 file does, are no metadata for so long.
    known_s = facts.account.cell(f"{MEAN}/run/{STORAGE}.{METADATA}").low_ns / 1e9
    spent_s = min(counted_s, known_s)
    if "meta_time_not_credible" in facts.serious or not spent_s:
        return None
    calls = _sum_counters(facts, POSIX, ["POSIX_OPENS", "POSIX_STATS", "POSIX_SEEKS"])
    return RuleResult(
        f"Opening, closing and looking up files takes {seconds(spent_s)} of a rank",
        f"{count(calls)} opens, stats and seeks were counted in "
        f"{plural(len(facts.trace.files), 'file')}.",
        "Open files once, from one rank where all need the same (and broadcast what is in it); "
        "write to fewer files.",
        {"metadata_s": spent_s, "opens": _sum_counters(facts, POSIX, ["POSIX_OPENS"])},
        Claim(f"{STORAGE}.{METADATA}", RUN, within_s=spent_s),
    )


def _find_independent_io(facts: Facts) -> RuleResult | None:
    table = facts.trace.counters.get(MPIIO)
    if not _is_mpi_job(facts) or table is None or len(facts.trace.ranks) < 2:
        return None
    worst = None
    # The side with most independent operations, where these are the majority.
    for way in ("READ", "WRITE"):
        alone = _sum_counters(facts, MPIIO, [f"MPIIO_INDEP_{way}S"])
        together = _sum_counters(facts, MPIIO, [f"MPIIO_COLL_{way}S"])
        share = alone / max(alone + together, 1)
        if alone >= MANY and share > 0.5 and (worst is None or alone > worst[1]):
            worst = (way, alone, share)
    if worst is None:
        return None
    way, alone, share = worst
    what = _WORDS[way][0]
    return RuleResult(
        f"{percent(share)} of the MPI-IO {what} are independent, not collective",
        f"{count(alone)} {what}, each of one rank on its own.",
        f"Use collective {what} (MPI_File_{way.lower()}_at_all; HDF5: H5Pset_dxpl_mpio with "
        "H5FD_MPIO_COLLECTIVE), so that a few ranks make large requests for all.",
        {"operations": alone, "share": share},
        Claim(_PART[way], RUN, stays=1 - share, keeps="what the aggregators still do"),
    )


def _find_stragglers(facts: Facts) -> RuleResult | None:
    if not _is_mpi_job(facts) or len(facts.trace.ranks) < 2:
        return None
    worst: tuple[float, int, float] | None = None
    behind_all_s = 0.0
    # The shared file in which the slowest rank is furthest behind the fastest.
    for layer, table in facts.trace.counters.items():
        slowest = table.seconds.get(f"{layer}_F_SLOWEST_RANK_TIME")
        fastest = table.seconds.get(f"{layer}_F_FASTEST_RANK_TIME")
        if slowest is None or fastest is None or layer not in facts.account.outermost:
            continue
        # Records that Darshan merged over all ranks: others have no slowest and fastest rank.
        shared = (table.process < 0) & (slowest > 0) & (fastest >= 0)
        behind = np.where(shared, slowest - fastest, 0.0)
        if not len(behind):
            continue
        behind_all_s += float(behind.sum())
        row = int(np.argmax(behind))
        if behind[row] < STRAGGLER_SHARE * slowest[row]:
            continue
        if worst is None or behind[row] > worst[0]:
            worst = (float(behind[row]), int(table.file[row]), float(slowest[row]))
    if worst is None:
        return None
    behind_s, code, slowest_s = worst
    path = facts.trace.files.path[code]
    return RuleResult(
        f"One rank is {seconds(slowest_s)} in a shared file, another "
        f"{seconds(slowest_s - behind_s)}",
        f"It is {path}. In collective I/O the aggregators do the work of the others; else the "
        "slowest rank is waited for.",
        "Give ranks equal parts of the file; look for a slower node or target where the parts are "
        "equal; more aggregators (cb_nodes) and stripes where there are few.",
        {"file": path, "longest_s": slowest_s, "excess_s": behind_s},
        Claim(STORAGE, IMBALANCE, within_s=behind_all_s, keeps="the mean of the ranks"),
    )


def _find_redundant_reads(facts: Facts) -> RuleResult | None:
    table = facts.trace.counters.get(POSIX)
    names = ("POSIX_BYTES_READ", "POSIX_MAX_BYTE_READ")
    if not _is_mpi_job(facts) or table is None or not set(names) <= set(table.counters):
        return None
    read, last = (table.counters[name].astype(np.float64) for name in names)
    files = len(facts.trace.files)
    # What is read of a file beyond its highest byte was read before.
    of_file = np.bincount(table.file, read.clip(0), files)
    extent = np.zeros(files)
    np.maximum.at(extent, table.file, last + 1)
    again = np.maximum(of_file - extent, 0.0)
    total, code = float(of_file.sum()), int(np.argmax(again)) if files else 0
    if not total or again.sum() < AGAIN_SHARE * total:
        return None
    # The file of which most was read again stands for all.
    share, path = float(again.sum()) / total, facts.trace.files.path[code]
    return RuleResult(
        f"{percent(share)} of the bytes that are read were read before",
        f"{nbytes(again.sum())} of {nbytes(total)}; most of them of {path}, "
        f"{times(of_file[code] / max(extent[code], 1))} its length.",
        "Let one rank read what all need, and broadcast it; keep in memory what is needed again.",
        {"bytes_read": int(total), "share": share, "file": path},
        Claim(_PART["READ"], RUN, stays=1 - share, keeps="the first read of each byte"),
    )


def _find_reads_to_write(facts: Facts) -> RuleResult | None:
    """What MPI-IO reads to write over it: the data between the pieces that a rank writes alone.

    (Data sieving: R. Thakur, W. Gropp, E. Lusk, Data Sieving and Collective I/O in ROMIO, 1999.)
    """
    mpi, table = facts.trace.counters.get(MPIIO), facts.trace.counters.get(POSIX)
    if not _is_mpi_job(facts) or mpi is None or table is None:
        return None
    if "POSIX_F_READ_TIME" not in table.seconds:
        return None
    # Of files that the program writes by MPI-IO, and never reads.
    files = len(facts.trace.files)
    read, written = (
        np.bincount(mpi.file, count_by_record(mpi, what), files)
        for what in ("BYTES_READ", "BYTES_WRITTEN")
    )
    mine = ((written > 0) & (read == 0))[table.file]
    beneath = count_by_record(table, "BYTES_READ") * mine
    asked = float(written[read == 0].sum())
    if beneath.sum() < SIEVED_SHARE * asked or not asked:
        return None
    spent_s = float(table.seconds["POSIX_F_READ_TIME"][mine].clip(0).sum())
    path = facts.trace.files.path[int(table.file[int(np.argmax(beneath))])]
    return RuleResult(
        f"MPI-IO reads {nbytes(float(beneath.sum()))} of files that the job only writes",
        f"{nbytes(asked)} were written, in pieces with gaps: what lies between is read and written "
        f"again, most of it of {path}.",
        "Write with collective calls (MPI_File_write_all; HDF5: H5FD_MPIO_COLLECTIVE), which fill "
        "the gaps from other ranks, or in one piece a rank; the hint romio_ds_write=disable writes "
        "the pieces as they are.",
        {"bytes_read": int(beneath.sum()), "bytes_written": int(asked), "file": path},
        Claim(
            _PART["WRITE"], RUN, within_s=spent_s / max(len(facts.trace.ranks), 1),
            keeps="the writes themselves",
        ),
    )  # fmt: skip


def _find_blocking_io(facts: Facts) -> RuleResult | None:
    kinds = [f"{how}_{way}S" for how in ("INDEP", "COLL") for way in ("READ", "WRITE")]
    waiting = _sum_counters(facts, MPIIO, [f"MPIIO_{kind}" for kind in kinds])
    ahead = _sum_counters(facts, MPIIO, ["MPIIO_NB_READS", "MPIIO_NB_WRITES"])
    spent_s = facts.account.cell(f"{MEAN}/run/{STORAGE}").high_ns / 1e9
    if not _is_mpi_job(facts) or waiting < MANY or ahead > 0:
        return None
    # Computing can hide no more than it lasts.
    rest_s = max(facts.trace.job.run_time_s - spent_s, 0.0)
    return RuleResult(
        f"All {count(waiting)} MPI-IO operations block",
        "None was started while a rank computed on.",
        "Start them early and wait for them late (MPI_File_iread, iwrite, and their collective "
        "forms; HDF5: the asynchronous VOL connector), where there is computing to go on with.",
        {"operations": waiting},
        Claim(
            STORAGE, RUN, within_s=min(spent_s, rest_s), surely_s=0.0,
            keeps="what computing cannot hide",
        ),
    )  # fmt: skip


def _find_single_rank_io(facts: Facts) -> RuleResult | None:
    balance, ranks = facts.results.balance, len(facts.trace.ranks)
    if not _is_mpi_job(facts) or balance is None or ranks < FEWEST_RANKS or balance.shared_bytes:
        return None
    # In collective I/O few ranks are meant to do the work of all.
    if facts.has_aggregators:
        return None
    moved = {row.label: row.bytes_read + row.bytes_written for row in balance.rows}
    total = sum(moved.values())
    label = max(moved, key=lambda each: moved[each], default="")
    if not total or moved[label] < HEAVY_SHARE * total:
        return None
    return RuleResult(
        f"{label} moves {percent(moved[label] / total)} of the bytes of {ranks} ranks",
        f"{nbytes(moved[label])} of {nbytes(total)}, while the others wait or compute.",
        "Let ranks read and write their own parts (MPI-IO, parallel HDF5), or several of them "
        "for groups of ranks.",
        {"busiest": label, "share": moved[label] / total, "bytes_read": total},
        Claim(STORAGE, IMBALANCE, keeps="the mean of the ranks"),
    )


def _find_narrow_stripes(facts: Facts) -> RuleResult | None:
    if not _is_mpi_job(facts) or len(facts.trace.ranks) < 2 or not facts.trace.stripes:
        return None
    # Files of one stripe that several ranks use, the one with most bytes first. Of a record that
    # ranks share Darshan does not say which they were.
    narrow = {s.file: s for s in facts.trace.stripes if s.stripe_count == 1}
    records = [t.file[t.process < 0] for t in facts.trace.counters.values()]
    by_all = set(np.concatenate([*records, np.empty(0, np.int64)]).astype(np.int64).tolist())
    rows = {r.path: r for r in facts.results.files.rows}
    shared = [
        (rows[path].bytes_read + rows[path].bytes_written, path)
        for code in narrow
        if (path := facts.trace.files.path[code]) in rows
        and (code in by_all or (rows[path].ranks or 0) > 1)
    ]
    if not shared:
        return None
    moved, path = max(shared)
    if moved < 1 << 30:
        return None
    return RuleResult(
        f"{nbytes(moved)} of a file that ranks share go through one Lustre target",
        f"{path} has a stripe count of 1.",
        "Spread it: lfs setstripe -c 8 -S 4M FOLDER before the file is made (or the MPI-IO hint "
        "striping_factor).",
        {"file": path, "bytes_written": moved},
        Claim(
            STORAGE,
            RUN,
            stays=1 / _WIDER,
            surely_s=0.0,
            within_s=(1 - 1 / _WIDER) * _find_slowest_s(facts, path),
            keeps="an eighth of it, with 8 stripes",
        ),
    )


def _find_slowest_s(facts: Facts, path: str) -> float:
    """Time of the slowest rank in a shared file beneath MPI-IO: in collectives all wait for it."""
    table = facts.trace.counters.get(POSIX)
    slowest = table.seconds.get("POSIX_F_SLOWEST_RANK_TIME") if table is not None else None
    # Without that counter the mean over ranks is the least that the slowest took.
    if table is None or slowest is None:
        return facts.file_s({path}) / len(facts.trace.ranks)
    mine = facts.of_files(table, lambda code: facts.trace.files.path[code] == path)
    return float(slowest[mine].clip(0).max(initial=0.0))


def _find_frequent_prints(facts: Facts) -> RuleResult | None:
    table = facts.trace.counters.get(STDIO)
    names = ("STDIO_WRITES", "STDIO_BYTES_WRITTEN")
    # Where steps are known, the rule about logging measures writes of the loop.
    if facts.results.steps is not None or table is None or not set(names) <= set(table.counters):
        return None
    # Darshan counts what a program prints under names that are no paths.
    streams = [code for code, path in enumerate(facts.trace.files.path) if path in STREAMS]
    rows = np.isin(table.file, streams)
    writes, moved = (int(table.counters[name][rows].clip(0).sum()) for name in names)
    time_s = table.seconds.get("STDIO_F_WRITE_TIME")
    if writes < MANY or time_s is None:
        return None
    spent_s = float(time_s[rows].clip(0.0).sum()) / max(len(facts.trace.ranks), 1)
    return RuleResult(
        f"{count(writes)} writes to standard output and error take {seconds(spent_s)} of a rank",
        f"{nbytes(moved / writes)} each on average. What is printed goes through the launcher to a "
        "file or a terminal, and a full pipe blocks the program.",
        "Print less often, and from one rank. A progress bar with mininterval=10 or "
        "disable=rank != 0, Keras with verbose=2, a logger at WARNING; where no terminal reads it "
        "Python collects what is printed, unless -u or PYTHONUNBUFFERED forbids it.",
        {"operations": writes, "mean_bytes": moved / writes},
        Claim(_PART["WRITE"], RUN, within_s=spent_s, keeps="what is still printed"),
    )


RULES = (
    Rule(
        "standard_streams", "time in writes to <STDOUT> and <STDERR>",
        "1,000 writes, of runs without steps; 1 % of the run",
        "a progress bar of every rank wrote 38 million times a process in a public log",
        _find_frequent_prints,
    ),
    Rule(
        "job_redundant", "bytes read beyond the length of each file / bytes read",
        "10 %", "Drishti's P09 asks whether any file was read beyond its length, not how far",
        _find_redundant_reads,
    ),
    Rule(
        "job_sieving", "POSIX bytes read of files that MPI-IO only writes / bytes that it writes",
        "10 %; 1 % of the run in these reads",
        "independent writes with gaps are sieved by default; Drishti has no trigger for it",
        _find_reads_to_write,
    ),
    Rule(
        "job_blocking", "MPI-IO operations, none of them non-blocking", "1,000",
        "Drishti's M06 and M07; what can be hidden is no more than what else the ranks do",
        _find_blocking_io,
    ),
    Rule(
        "job_one_rank", "bytes of the rank that moves most / bytes of all",
        "half, of four ranks and more, without collective MPI-IO",
        "Drishti's P21 and P22 look at single files; here at what the others wait for",
        _find_single_rank_io,
    ),
    Rule(
        "job_small_reads", "POSIX reads under 1 MiB / all",
        "10 % and 1,000, in jobs that are no training; 1 % of the run in reads",
        "Drishti's P05, held against the time of reads", _find_small_reads,
    ),
    Rule(
        "job_small_writes", "POSIX writes under 1 MB / all", "as of reads",
        "Drishti's P06, held against the time of writes", _find_small_writes,
    ),
    Rule(
        "job_random_reads", "POSIX reads that begin before the end of the one before / all",
        "20 % and 1,000", "Drishti's P11, held against the time of reads", _find_random_reads,
    ),
    Rule(
        "job_misaligned", "requests not aligned to the file system's unit / all",
        "10 % and 1,000", "Drishti's P08, held against the time of storage",
        _find_misaligned_requests,
    ),
    Rule(
        "job_metadata", "time in metadata calls", "1 % of the run",
        "Drishti's P17 wants 30 s of a rank, which says nothing of the run", _find_metadata_time,
    ),
    Rule(
        "job_independent", "independent MPI-IO operations / all",
        "half, and 1,000", "Drishti's M02 and M03, held against the time of them",
        _find_independent_io,
    ),
    Rule(
        "job_stragglers", "slowest - fastest rank in a shared file / slowest",
        "15 %, in the layer that the program uses; slowest - mean 1 % of the run",
        "Drishti's P18 and P19 count files; what is lost is what the slowest takes beyond the mean",
        _find_stragglers,
    ),
    Rule(
        "job_stripes", "stripe count of files that ranks share", "1, from 1 GiB on",
        "one target serves all ranks", _find_narrow_stripes,
    ),
)  # fmt: skip
