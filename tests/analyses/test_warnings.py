"""Every warning: a log that raises it, and one that is like it and does not.

The counters are those that Darshan 3.4.7 recorded of small scripts that did what the name of
each case says; paths and sizes are neutral.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import vanidl
from tests.analyses.recorded_warnings import RECORDED
from tests.analyses.unseen_warnings import UNSEEN
from tests.makers import dlio_results, xplane_files
from tests.makers.darshan_logs import Log, log_bytes, random_records
from tests.makers.event_files import Event, event_file
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from tests.makers.states_files import LEFT_OUT, StatesFile, row
from tests.makers.step_journals import journal_bytes
from tests.makers.training_loops import loop, marked
from tests.readers.steps.test_windows import Call, epoch, recorded
from tests.readers.test_run_folder import CEILING
from vanidl.analyses.results import analyse
from vanidl.dataset.locate import read_user_data
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.run_facts import DataOptions
from vanidl.model.trace import WRITE, SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers import run_folder
from vanidl.readers.records import CounterFile, CounterRecords, ProfileTrace, StepDurations
from vanidl.readers.run_folder import write_ceiling
from vanidl.record.injected.vanidl_steps import journal

KIB = 1024
SECOND = 1_000_000_000
EACH_NS = 10_000
SPAWN = "python -c from multiprocessing.spawn import spawn_main; --multiprocessing-fork"


def inspected(folder: Path, content: bytes | None) -> tuple[Notice, ...]:
    """The notices of opening the one dataset file of a run, which holds `content` here."""
    if content is not None:
        (folder / "part.tfrecord").write_bytes(content)
    log = darshan_log([Io(0, EACH_NS, 0, 9)], names={1: "/data/part.tfrecord"})
    trace = assemble(Group((log,), ()), {})
    return read_user_data(trace, DataOptions((str(folder),), inspect=True))[1]


@dataclass(frozen=True)
class File:
    """One file as one process used it: traced reads and what the counters say."""

    path: str = "/data/part.h5"
    reads: Sequence[tuple[int, int]] = ((0, 4 * KIB), (4 * KIB, 4 * KIB))  # offset, bytes
    opens: int = 1
    seeks: int = 0
    mmaps: int = -1
    counted: int | None = None  # reads by the counters, where not all were traced
    stdio_bytes: int = 0
    last_open_s: float = 0.1
    first_close_s: float = 0.9
    read_s: float = 0.0
    write_s: float = 0.0
    fsyncs: int = 0
    meta_s: float = 0.0


def benchmark_without(folder: Path, *names: str) -> tuple[Notice, ...]:
    """The warnings of a result of DLIO that lacks some of its files."""
    dlio_results.write(folder)
    for name in names:
        (folder / name).unlink()
    return vanidl.open_run(folder).coverage.warnings


def warnings_of(*files: File, partial: tuple[str, ...] = ()) -> tuple[Notice, ...]:
    """The warnings of a run of one process."""
    rows = [(i, *read) for i, file in enumerate(files, 1) for read in file.reads]
    operations = [
        Io(k * EACH_NS, (k + 1) * EACH_NS, offset, nbytes, file)
        for k, (file, offset, nbytes) in enumerate(rows)
    ]
    names = {i: file.path for i, file in enumerate(files, 1)}
    log = replace(darshan_log(operations, names=names), partial_layers=partial)
    counted = {log.path: CounterFile((_posix(files), _stdio(files)))}
    return analyse(assemble(Group((log,), ()), counted)).coverage.warnings


def _posix(files: Sequence[File]) -> CounterRecords:
    size = [sum(n for _, n in f.reads) for f in files]
    return _records(
        "POSIX",
        {
            "POSIX_OPENS": [f.opens for f in files],
            "POSIX_READS": [len(f.reads) if f.counted is None else f.counted for f in files],
            "POSIX_WRITES": [0 for _ in files],
            "POSIX_SEEKS": [f.seeks for f in files],
            "POSIX_MMAPS": [f.mmaps for f in files],
            "POSIX_FSYNCS": [f.fsyncs for f in files],
            "POSIX_BYTES_READ": size,
            "POSIX_BYTES_WRITTEN": [0 for _ in files],
            "POSIX_MAX_BYTE_READ": [max((a + n - 1 for a, n in f.reads), default=0) for f in files],
        },
        {
            "POSIX_F_READ_TIME": [f.read_s for f in files],
            "POSIX_F_WRITE_TIME": [f.write_s for f in files],
            "POSIX_F_META_TIME": [f.meta_s for f in files],
            "POSIX_F_OPEN_END_TIMESTAMP": [f.last_open_s for f in files],
            "POSIX_F_CLOSE_START_TIMESTAMP": [f.first_close_s for f in files],
        },
    )


def _stdio(files: Sequence[File]) -> CounterRecords:
    names = ("STDIO_OPENS", "STDIO_READS", "STDIO_BYTES_READ")
    values = [[f.stdio_bytes > 0, f.stdio_bytes > 0, f.stdio_bytes] for f in files]
    return _records("STDIO", dict(zip(names, np.transpose(values), strict=True)), {})


def _records(layer: str, counters: dict, seconds: dict) -> CounterRecords:
    n = len(next(iter(counters.values())))
    return CounterRecords(
        layer,
        np.arange(1, n + 1, dtype=np.uint64),
        np.zeros(n, np.int64),
        {name: np.array(values, np.int64) for name, values in counters.items()},
        {name: np.array(values, np.float64) for name, values in seconds.items()},
    )


def profiled(base_ns: int) -> tuple[Notice, ...]:
    log = darshan_log([Io(0, 10, 0, 5)])
    seen = profile([Span(SpanKind.STEP, 0, SECOND, 1)], base_ns=base_ns)
    return analyse(assemble(Group((log,), (seen,)), {})).coverage.warnings


def looped(*, late_ns: int, resolution_ns: int = 1, waits: bool = True) -> tuple[Notice, ...]:
    """Twenty uneven steps that read inside their waits, in a log that is late by so much."""
    starts = SECOND + np.cumsum(np.random.default_rng(3).integers(60, 140, 20)) * 1_000_000
    spans, ios = [], []
    for k, at in enumerate(starts.tolist()):
        spans.append(Span(SpanKind.STEP, at, at + 50_000_000, k))
        spans += [Span(SpanKind.INPUT_WAIT, at, at + 20_000_000)] if waits else []
        ios.append(Io(at + late_ns + 1_000_000, at + late_ns + 19_000_000, 0, 4096))
    log = replace(darshan_log(ios), start_resolution_ns=resolution_ns)
    return analyse(assemble(Group((log,), (profile(spans),)), {})).coverage.warnings


def spawned(trainers: int) -> tuple[Notice, ...]:
    logs = [darshan_log([Io(0, 10)], pid=pid, job_id="1") for pid in range(1, trainers + 1)]
    late = {"start_ns": JOB_START_NS + SECOND, "length_ns": SECOND}
    logs.append(darshan_log([Io(0, 10)], pid=9, job_id="1", command=SPAWN, **late))
    return analyse(assemble(Group(tuple(logs), ()), {})).coverage.warnings


def folder_of(kept: float, folder: Path, beside: str = "") -> tuple[Notice, ...]:
    """Warnings of a real log file of which a share was kept, perhaps with a file beside it."""
    content = log_bytes(Log(job=(1000, 7, 1), dxt={"DXT_POSIX": random_records(1, ranks=1)}))
    (folder / "user_python_id7-7_1.darshan").write_bytes(content[: int(kept * len(content))])
    if beside:
        (folder / beside).write_text("not a log")
    return vanidl.open_run(folder).coverage.warnings


def told_of_profiling(folder: Path, killed: bool = False, **text: object) -> tuple[Notice, ...]:
    """Warnings of recorded steps in which a process says what became of --profile."""
    events = journal.Journal(str(folder))
    if text:
        events.describe(text)
    for k in range(1, 9):
        events.add(journal.OPTIMIZER, 0, k * SECOND, k * SECOND)
    events.flush() if killed else events.close()
    return vanidl.open_run(folder).coverage.warnings


def told_of_ranks(folder: Path, ranks: int) -> tuple[Notice, ...]:
    """Warnings of the recorded steps of rank 0 of so many."""
    process = {"host": "n", "pid": 7, "rank": 0, "world_size": ranks}
    (folder / "n-7.steps").write_bytes(journal_bytes(process, "w0:0-1 o:5 w0:10-11 o:15"))
    return vanidl.open_run(folder).coverage.warnings


def told_of_marks(folder: Path, marks: int) -> tuple[Notice, ...]:
    """Warnings of recorded steps beside which the program marks some."""
    events = journal.Journal(str(folder))
    for k in range(1, 9):
        events.add(journal.OPTIMIZER, 0, k * SECOND, k * SECOND)
        if k <= marks:
            events.add(journal.STEP, 0, k * SECOND, k * SECOND + 9)
    events.close()
    return vanidl.open_run(folder).coverage.warnings


def told_of_loops(folder: Path, calls: Sequence[Call], **process: object) -> tuple[Notice, ...]:
    """Warnings of a process's recorded loops."""
    recorded(folder, calls, process)
    return vanidl.open_run(folder).coverage.warnings


def told_of_threads(folder: Path, threads: int) -> tuple[Notice, ...]:
    """Warnings of recorded steps of so many threads that train."""
    events = journal.Journal(str(folder))
    for ident in range(1, threads + 1):
        for k in range(1, 9):
            events.add(journal.OPTIMIZER, 0, k * SECOND, k * SECOND, ident)
    events.close()
    return vanidl.open_run(folder).coverage.warnings


def told_of_states(folder: Path, more: bytes) -> tuple[Notice, ...]:
    """Warnings of a log beside samples of states."""
    (folder / "node01-1.states").write_bytes(StatesFile(more=more).content())
    return folder_of(1, folder)


def told_of_replay(folder: Path, **text: object) -> tuple[Notice, ...]:
    """Warnings of a log beside recorded steps, whose process says what it got from memory."""
    events = journal.Journal(str(folder))
    if text:
        events.describe(text)
    events.add(journal.OPTIMIZER, 0, SECOND, SECOND)
    events.close()
    return folder_of(1, folder)


def with_ceiling(folder: Path, content: str | None) -> tuple[Notice, ...]:
    """Warnings of a RUN beside which a ceiling lies: this text, or a sound one."""
    (folder / "run.json").write_text("{}")
    write_ceiling(folder, CEILING)
    if content is not None:
        (folder / run_folder.CEILING_JSON).write_text(content)
    return folder_of(1, folder)


def commanded(command: str) -> tuple[Notice, ...]:
    log = darshan_log([Io(0, SECOND, 0, 10)], command=command)
    return analyse(assemble(Group((log,), ()), {})).coverage.warnings


def timed(host: str) -> tuple[Notice, ...]:
    """A run on node01 beside a step table of a host."""
    log = darshan_log([Io(0, SECOND, 0, 10)])
    table = StepDurations("t.pb", "x", host, np.zeros(1, np.int32), np.ones(1, np.int64))
    return analyse(assemble(Group((log,), ()), {}, durations=[table])).coverage.warnings


def logged(folder: Path, *, stride: int = 1, beside: str = "") -> tuple[Notice, ...]:
    """A log and one event file of its process, or two at the same time."""
    name = "u_python_id7-42_1-1-1-1_1.darshan"
    (folder / name).write_bytes(log_bytes(Log(job=(1000, 7, 1), dxt={"DXT_POSIX": ONE_RANK})))
    for late, part in enumerate(filter(None, ("train", beside))):
        content = event_file([Event(1_700_000_010 + late / 2 + i, i * stride) for i in range(5)])
        (folder / part).mkdir()
        (folder / part / "events.out.tfevents.1700000001.node00.42.0").write_bytes(content)
    return vanidl.open_run(folder).coverage.warnings


def read_back(*, written: int) -> tuple[Notice, ...]:
    """2 MiB of a file read, maybe after a part of it was written."""
    reads = [Io(EACH_NS, 2 * EACH_NS, 0, 2048 * KIB)]
    writes = [Io(0, EACH_NS, 0, written, op=WRITE)] if written else []
    log = darshan_log([*writes, *reads], names={1: "/scratch/cache.dat"})
    return analyse(assemble(Group((log,), ()), {})).coverage.warnings


def with_modules(folder: Path, *modules: str) -> tuple[Notice, ...]:
    """A log that holds these modules beside traced operations."""
    dxt = {"DXT_POSIX": ONE_RANK}
    log = Log(job=(1000, 7, 1), dxt=dxt, raw=dict.fromkeys(modules, b"records of this module"))
    (folder / "u_python_id7-42_1-1-1-1_1.darshan").write_bytes(log_bytes(log))
    return vanidl.open_run(folder).coverage.warnings


def partly_profiled(folder: Path, *, steps: int) -> tuple[Notice, ...]:
    """A log, an event file of so many steps and a profile of two of them."""
    name = "u_python_id7-42_1-1-1-1_1.darshan"
    (folder / name).write_bytes(log_bytes(Log(job=(1000, 7, 1), dxt={"DXT_POSIX": ONE_RANK})))
    content = event_file([Event(1_700_000_010 + i, i) for i in range(steps + 1)])
    (folder / f"events.out.tfevents.1700000001.{xplane_files.HOST}.42.0").write_bytes(content)
    batches = [xplane_files.Event("train", 10 * i, 10 * i + 9, step=i) for i in range(2)]
    profile = xplane_files.xspace(batches, start_ns=1_700_000_011 * SECOND)
    xplane_files.write_xplane(folder, profile)
    return vanidl.open_run(folder).coverage.warnings


ONE_RANK = random_records(2, ranks=1)


def of_profile(seen: ProfileTrace) -> tuple[Notice, ...]:
    """The warnings of a run of which there is a profile only."""
    return assemble(Group((), (seen,)), {}).warnings


def forwards(n: int, nbytes: int = 1000) -> list[tuple[int, int]]:
    return [(i * nbytes, nbytes) for i in range(n)]


Case = Callable[[Path], tuple[Notice, ...]]


class Cases(NamedTuple):
    """What raises a warning, and what looks like it and must not."""

    raising: dict[str, Case]
    silent: dict[str, Case]


def use(*files: File, partial: tuple[str, ...] = ()) -> Case:
    return lambda _: warnings_of(*files, partial=partial)


HEADER = [(0, 4 * KIB)]
TABLE: dict[str, Cases] = {
    "truncated": Cases(
        {
            "a full trace buffer": use(File(reads=forwards(50), counted=200)),
            "fewer DXT records than files": use(File(), File("/data/b.h5", reads=(), counted=3)),
        },
        {
            "a whole trace": use(File(reads=forwards(50))),
            "nothing read": use(File(reads=())),
        },
    ),
    "partial": Cases(
        {"a full trace buffer": use(File(), partial=("DXT_POSIX",))},
        {"no flag": use(File())},
    ),
    "records_exhausted": Cases(
        {
            "imports used up the records": use(File(), partial=("POSIX", "DXT_POSIX")),
            "no memory for names": use(File(), partial=("HEATMAP", "POSIX", "STDIO")),
        },
        {"only the trace buffer is full": use(File(), partial=("DXT_POSIX",))},
    ),
    "reads_not_seen": Cases(
        {
            "np.load": use(File("/data/a.npy", HEADER, seeks=4)),
            "np.load five times": use(File("/data/a.npy", HEADER * 5, opens=5, seeks=20)),
            "np.load(mmap_mode)": use(File("/data/a.npy", HEADER * 2, opens=3, seeks=6)),
            "np.fromfile": use(File("/data/a.bin", (), seeks=4)),
            "mmap": use(File("/data/a.bin", (), seeks=1)),
        },
        {
            "np.load of .npz": use(File("/data/a.npz", [(0, 4), (4, 70_000)], seeks=16)),
            "np.load under Darshan 3.5": use(
                File("/data/a.npy", HEADER, opens=2, seeks=4, stdio_bytes=8_000_000)
            ),
            "np.fromfile under Darshan 3.5": use(
                File("/data/a.bin", (), opens=2, stdio_bytes=1 << 20)
            ),
            "HDF5 through stdio": use(File("/data/a.h5", (), opens=2, stdio_bytes=802_512)),
            "a small .npy read whole": use(File("/data/a.npy", [(0, 1128)])),
            "a .npy read with read()": use(File("/data/a.npy", [(0, 4096), (4096, 9000)])),
            "a library opened": use(File("/usr/lib/python3/x.py", ())),
        },
    ),
    "stdio_untraced": Cases(
        {"HDF5 through stdio": use(File(), File("/data/b.h5", (), stdio_bytes=802_512))},
        {
            "a line of output": use(File(reads=forwards(100, 1 << 20)), File(stdio_bytes=200)),
            "no STDIO": use(File()),
        },
    ),
    "mmap_not_monitored": Cases(
        {"Darshan 3.4.7": use(File())},
        {"mmap monitored": use(File(mmaps=0))},
    ),
    "offsets_ambiguous": Cases(
        {
            "two descriptors, read()": use(File(reads=forwards(14), opens=2, first_close_s=0)),
            "two file objects": use(File(reads=forwards(28), opens=2, seeks=2)),
            "two file objects that seek": use(
                File(reads=[(900, 50), (0, 50), (300, 50)], opens=2, seeks=8)
            ),
            "five pairs": use(
                File(reads=forwards(20) * 5, opens=10, last_open_s=0.8, first_close_s=0.2)
            ),
        },
        {
            "opened twice, one after another": use(
                File(reads=forwards(17) * 2, opens=2, last_open_s=0.5, first_close_s=0.4)
            ),
            "ten epochs": use(
                File(
                    reads=forwards(17) * 10, opens=10, last_open_s=0.8, first_close_s=0.1, seeks=10
                )
            ),
            "opened to look, then read": use(
                File(reads=forwards(17), opens=2, last_open_s=0.5, first_close_s=0.4)
            ),
            "two descriptors, pread": use(
                File(reads=[r for r in forwards(7) for _ in range(2)], opens=2, first_close_s=0)
            ),
            "HDF5": use(File(reads=[(0, 8), (2048, 512), (96, 40), (800, 7)], opens=4)),
            "one descriptor, four threads": use(File(reads=[(i % 5 * 900, 90) for i in range(20)])),
            "np.load(mmap_mode)": use(File("/data/a.npy", HEADER * 2, opens=3, seeks=6)),
        },
    ),
    "time_mismatch": Cases(
        {"the counters hold more time": use(File(read_s=1.0))},
        {
            "threads: the trace holds more time": use(File(reads=forwards(50), read_s=1e-5)),
            "fsync is write time": use(File(), File("/data/w.bin", fsyncs=50, write_s=0.383)),
        },
    ),
    "sync_untraced": Cases(
        {"fifty fsyncs": use(File(), File("/data/w.bin", fsyncs=50, write_s=0.383))},
        {
            "no sync": use(File(read_s=1e-5)),
            "a sync that took no time": use(File(fsyncs=1, write_s=1e-5)),
        },
    ),
    "meta_time_not_credible": Cases(
        {"concurrent opens": use(File(meta_s=11_218.0))},
        {"many opens": use(File(opens=24_000, meta_s=9.0))},
    ),
    "clock_unverified": Cases(
        {"a profile of another day": lambda _: profiled(JOB_START_NS + 86_400 * SECOND)},
        {"a profile of this run": lambda _: profiled(JOB_START_NS + SECOND)},
    ),
    "clock_contradiction": Cases(
        {"reads that fit the waits a second later": lambda _: looped(late_ns=SECOND)},
        {"reads in the waits": lambda _: looped(late_ns=0)},
    ),
    "clock_coarse": Cases(
        {"a log in whole seconds": lambda _: looped(late_ns=0, resolution_ns=SECOND, waits=False)},
        {"a log with an exact start": lambda _: looped(late_ns=0, waits=False)},
    ),
    "unassigned": Cases(
        {"a spawned worker, two trainers": lambda _: spawned(2)},
        {"a spawned worker, one trainer": lambda _: spawned(1)},
    ),
    "anonymised": Cases(
        {"a hash for a command": lambda _: commanded("2032579916")},
        {"a command": lambda _: commanded("python 42.py")},
    ),
    "dataset_not_seen": Cases(
        {"ten files in the command, none read": lambda _: commanded("x num_files_train=10")},
        {"nine files in the command": lambda _: commanded("x num_files_train=9")},
    ),
    "steps_unmatched": Cases(
        {"a step table of another host": lambda _: timed("node02")},
        {"a step table of this host": lambda _: timed("node01")},
    ),
    "steps_not_used": Cases(
        {"a validation run": lambda folder: logged(folder, beside="validation")},
        {"training alone": lambda folder: logged(folder)},
    ),
    "steps_sampled": Cases(
        {"every fifty steps": lambda folder: logged(folder, stride=50)},
        {"every step": lambda folder: logged(folder)},
    ),
    "steps_partly_profiled": Cases(
        {"two of twelve": lambda folder: partly_profiled(folder, steps=12)},
        {"two of three": lambda folder: partly_profiled(folder, steps=3)},
    ),
    "steps_not_recorded": Cases(
        {"a rank without steps": lambda folder: benchmark_without(folder, "1_output.json")},
        {"steps of every rank": lambda folder: benchmark_without(folder)},
    ),
    "steps_from_waits": Cases(
        {"a loop without marks": lambda _: of_profile(loop([["train"] * 4]))},
        {"marked steps": lambda _: of_profile(marked([100.0] * 5, [20.0] * 5))},
    ),
    "validation_steps": Cases(
        {"two batches without backward": lambda _: of_profile(loop([["train"] * 4, ["test"] * 2]))},
        {"only such batches": lambda _: of_profile(loop([["test"] * 4]))},
    ),
    "last_step_empty": Cases(
        {"a mark after the loop": lambda _: of_profile(marked([100.0] * 5, [*[20.0] * 4, 0.0]))},
        {"the last batch": lambda _: of_profile(marked([100.0] * 5, [20.0] * 5))},
    ),
    "damaged": Cases(
        {"a cut log": lambda folder: folder_of(0.9, folder)},
        {"a whole log": lambda folder: folder_of(1, folder)},
    ),
    "not_inspected": Cases(
        {
            "a record file cut": lambda folder: inspected(folder, b"cut" * 20),
            "no such file here": lambda folder: inspected(folder, None),
        },
        {"an empty record file": lambda folder: inspected(folder, b"")},
    ),
    "dataset_by_kind": Cases(
        {"a file that was written and read": lambda _: read_back(written=4 * KIB)},
        {"a file that was only read": lambda _: read_back(written=0)},
    ),
    "modules_not_read": Cases(
        {
            "a module of a later Darshan": lambda folder: with_modules(folder, "module 20"),
            "counters of the processor": lambda folder: with_modules(folder, "APXC"),
        },
        {"POSIX alone": lambda folder: with_modules(folder)},
    ),
    "steps_cut": Cases(
        {"killed": lambda folder: told_of_profiling(folder, killed=True)},
        {"ended": lambda folder: told_of_profiling(folder)},
    ),
    "ranks_silent": Cases(
        {"a rank that was killed at once": lambda folder: told_of_ranks(folder, 2)},
        {"the only rank": lambda folder: told_of_ranks(folder, 1)},
    ),
    "steps_incomplete": Cases(
        {"a hook failed": lambda folder: folder_of(1, folder, "node01-7.steps-error")},
        {"nothing failed": lambda folder: folder_of(1, folder)},
    ),
    "steps_profiled": Cases(
        {
            "a window of ten": lambda folder: told_of_profiling(
                folder, profile="steps", first=10, steps=10
            )
        },
        {
            "no window": told_of_profiling,
            "no numbers": lambda folder: told_of_profiling(folder, profile="steps", steps="x"),
        },
    ),
    "ceiling_run": Cases(
        {"replayed": lambda folder: told_of_replay(folder, replay=0, state="on", kept=4)},
        {"trained": told_of_replay},
    ),
    "ceiling_unreadable": Cases(
        {
            "no JSON": lambda folder: with_ceiling(folder, "{"),
            "another object": lambda folder: with_ceiling(folder, "{}"),
        },
        {"sound": lambda folder: with_ceiling(folder, None)},
    ),
    "steps_marked": Cases(
        {"five of eight": lambda folder: told_of_marks(folder, 5)},
        {"none": lambda folder: told_of_marks(folder, 0)},
    ),
    "batches_skipped": Cases(
        {
            "a pass before training": lambda folder: told_of_loops(
                folder, [*epoch(0, 0, 5), *epoch(0, 1, 12, "b", "o")]
            )
        },
        {"training alone": lambda folder: told_of_loops(folder, epoch(0, 0, 12, "b", "o"))},
    ),
    "no_gradient": Cases(
        {"batches alone": lambda folder: told_of_loops(folder, epoch(0, 0, 12))},
        {"training": lambda folder: told_of_loops(folder, epoch(0, 0, 12, "b", "o"))},
    ),
    "training_unsure": Cases(
        {"no known library": lambda folder: told_of_loops(folder, epoch(0, 0, 12), gradients=[])},
        {"PyTorch": lambda folder: told_of_loops(folder, epoch(0, 0, 12))},
    ),
    "loops_in_threads": Cases(
        {"two threads": lambda folder: told_of_threads(folder, 2)},
        {"one thread": lambda folder: told_of_threads(folder, 1)},
    ),
    "states_forbidden": Cases(
        {
            "a process of another user": lambda folder: told_of_states(
                folder, row(LEFT_OUT, 77, 0, 1, 0, 0)
            )
        },
        {"all of them": lambda folder: told_of_states(folder, b"")},
    ),
    "profile_gave_way": Cases(
        {"a profiler of its own": lambda folder: told_of_profiling(folder, profile="own")},
        {"none": told_of_profiling},
    ),
    "unreadable": Cases(
        {
            "a text file": lambda folder: folder_of(1, folder, "bad.darshan"),
            "a log left unfinished": lambda folder: folder_of(1, folder, "x.darshan_partial"),
        },
        {"another kind of file": lambda folder: folder_of(1, folder, "notes.txt")},
    ),
}


TABLE |= {code: Cases(*both) for code, both in {**RECORDED, **UNSEEN}.items()}


def cases(field: str) -> list:
    return [
        pytest.param(code, case, id=f"{code}: {name}")
        for code, both in TABLE.items()
        for name, case in getattr(both, field).items()
    ]


@pytest.mark.parametrize(("code", "case"), cases("raising"))
def test_the_warning_is_raised_once_and_says_what_to_do(code, case, tmp_path):
    found = [w for w in case(tmp_path) if w.code == code]
    assert len(found) == 1
    assert found[0].message.endswith(".")
    assert found[0].severity in ("warning", "info")


@pytest.mark.parametrize(("code", "case"), cases("silent"))
def test_the_warning_is_not_raised(code, case, tmp_path):
    assert code not in {w.code for w in case(tmp_path)}


@pytest.mark.parametrize(
    ("name", "severity"),
    [("two descriptors, read()", "warning"), ("five pairs", "info")],
)
def test_openings_that_were_surely_together_weigh_more(name, severity, tmp_path):
    found = TABLE["offsets_ambiguous"].raising[name](tmp_path)
    assert [w.severity for w in found if w.code == "offsets_ambiguous"] == [severity]


def emitted() -> dict[str, str]:
    """Code -> module, of every notice that the package makes."""
    found = {}
    for path in sorted(Path(vanidl.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_notice = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Notice"
            if is_notice:
                assert isinstance(node.args[0], ast.Constant), f"{path}: a code that is computed"
                found[node.args[0].value] = path.name
    return found


def test_every_warning_of_the_package_is_in_the_table():
    assert sorted(emitted()) == sorted(TABLE)
