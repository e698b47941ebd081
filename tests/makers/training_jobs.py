"""Synthetic training jobs: a recipe in, the trace that tracer and profiler would leave out.

Everything follows from the recipe: reads are timed one after another in the process that makes
them, batches are handed over in order, ranks wait for each other after every step. Times in us.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.intervals import union
from vanidl.model.run_facts import ArrayFacts, Benchmark, Block, EpochTimes, FileFacts, UserData
from vanidl.model.trace import OBJECT, SpanKind, Trace
from vanidl.readers.records import (
    CounterFile,
    CounterRecords,
    FetchTable,
    ProfileTrace,
    TracerLog,
)

US = 1_000
START_UP_US = 1_000_000
CODE, CHECKPOINT, STDIO, UNSEEN = 1_000_000, 2_000_000, 3_000_000, 4_000_000
"""First file ids of imported code, checkpoints, files read through STDIO, files not seen read."""
SCRATCH, LOG, INDEX = 5_000_000, 6_000_000, 7_000_000
"""A file that is read and written, a profiler's trace, and a small file that is read again."""


@dataclass(frozen=True)
class Recipe:
    """A healthy job unless told otherwise: large reads, hidden behind compute by workers."""

    ranks: int = 1
    workers: int = 2
    ahead: int = 2  # batches that a worker prepares before it waits
    thread: bool = False  # the only worker is a thread of the training process
    epochs: int = 2
    steps: int = 16  # of one epoch
    batch: int = 4
    compute_us: int = 40_000
    sample_nbytes: int = 4 << 20
    pieces: int = 1  # reads that make up one sample
    read_us: int = 1_000  # one read
    decode_us: int = 0  # one sample
    files: int = 8
    name: str = "part-{}.h5"
    shuffle: bool = True
    fresh: bool = True  # every epoch reads other samples
    who_reads: str = "parts"  # every rank its part; "one": rank 0 for all; "same": each all
    slow_rank: float = 1.0  # reads of the last rank take that much longer
    uneven_workers: bool = False  # the second of two workers makes one batch of eight
    first_us: int = 0  # more for the first batch of an epoch
    hiccup_us: int = 0  # more for every 20th batch
    checkpoint_us: int = 0  # written at the end of each epoch by rank 0
    checkpoint_pieces: int = 8
    checkpoint_nbytes: int = 64 << 20
    log_nbytes: int = 0  # of a profiler's trace, written at the end
    scratch_us: int = 0  # of each epoch, reading and as long again writing one file
    code_files: int = 60
    code_us: int = 100  # one read of code
    open_each: bool = False  # the file is opened for every sample
    open_us: int = 100
    to_the_end: bool = False  # a file is read until a read gets nothing, as Python does
    backwards: bool = False  # the pieces of a sample are read from its end
    nothing_us: int = 0  # more for such a read
    slow_read_us: int = 0  # more for every 60th read
    delivery_us: int = 0  # from a worker to the training process; then fetches are recorded
    batch_nbytes: int = -1  # in memory, as the recorder measured it
    index_us: int = 0  # before each sample a file of 46 bytes is opened and read
    stats: int = 0  # for each sample
    stdio_nbytes: int = 0
    unseen_files: int = 0
    traced: float = 1.0  # share of the operations that the trace holds
    profiled: bool = True
    wait_spans: bool = True
    shift_s: float = 0.0  # of the profiler's clock
    chunk_rows: int = 0  # samples that a chunk of the opened HDF5 files holds; 0: not opened
    chunk_pieces: int = 1  # chunks that one sample is spread over
    misaligned: bool = False
    objects: bool = False  # data files are objects; what opens them is a HEAD
    benchmark: bool = False  # it is a storage benchmark, with barriers and too little data


@dataclass
class _Process:
    """What one process did: operations, and how often it opened what."""

    ios: list[Io] = field(default_factory=list)
    opens: dict[int, int] = field(default_factory=dict)
    stats: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)  # when a file was opened again
    begin_us: int = 0  # when it was started
    reads: int = 0


BENCHMARK = Benchmark(
    folder="/out/run-1", name="DLIO", workload="unet3d",
    epochs=(EpochTimes(0, 1, 16, total_s=1.0, compute_s=0.6, load_s=0.05, other_s=0.01,
                       outside_s=0.34, barrier_s=0.3, utilization_percent=60.0,
                       recorded_percent=60.0),),
    summary_percent=(60.0,), threshold_percent=90.0, accelerators=1, hosts=1,
    memory_nbytes=1 << 30, dataset_nbytes=1 << 20, batch_size=4, steps_per_epoch=16,
    steps_with_another_file=17, compute_s=0.04,
)  # fmt: skip


def trace_of(recipe: Recipe) -> Trace:
    """The trace of the job."""
    made = _Training(recipe)
    made.run()
    logs, counters = made.logs()
    group = Group(tuple(logs), tuple(made.profiles()) if recipe.profiled else ())
    trace = assemble(group, counters)
    if recipe.benchmark:
        trace = replace(trace, benchmarks=(BENCHMARK,))
    return replace(trace, user_data=_user_data(recipe)) if recipe.chunk_rows else trace


@dataclass(frozen=True)
class _Fetch:
    """One batch: (rank, epoch, worker), its step, when it was fetched, when it was asked for."""

    worker: tuple[int, int, int]
    step: int
    begin: int
    end: int
    asked: int


class _Training:
    """Plays the job step by step."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.random = np.random.default_rng(11)
        self.trainers = [_Process() for _ in range(recipe.ranks)]
        self.workers: dict[tuple[int, int, int], _Process] = {}
        self.spans: list[list[Span]] = [[] for _ in range(recipe.ranks)]
        self.now = START_UP_US
        self.fetches: list[list[_Fetch]] = [[] for _ in range(recipe.ranks)]

    def run(self) -> None:
        r = self.recipe
        for trainer in self.trainers:
            for i in range(r.code_files):
                at = 10_000 + i * max(r.code_us, 1)
                trainer.opens[CODE + i] = 1
                trainer.ios.append(Io(at * US, (at + r.code_us) * US, 0, 8000, CODE + i))
            self.now = max(self.now, 20_000 + r.code_files * r.code_us)
        for epoch in range(r.epochs):
            self._epoch(epoch)
            if r.checkpoint_us:
                self._checkpoint(epoch)
            if r.scratch_us:
                self._written(SCRATCH, r.scratch_us, 32 << 20, (0, 1))
        if r.log_nbytes:
            self._written(LOG, 1_000, r.log_nbytes, (1,))
        self.end = self.now + 200_000

    def _epoch(self, epoch: int) -> None:
        r = self.recipe
        begin = self.now
        free = {(k, w): [begin] * r.ahead for k in range(r.ranks) for w in range(r.workers)}
        order = self._order(epoch)
        for step in range(r.steps):
            done = []
            for k in range(r.ranks):
                if not r.workers:
                    ready = self._load(self.trainers[k], k, epoch, step, order, self.now)
                else:
                    w = self._worker_of(step)
                    slots = free[k, w]
                    own = _Process(begin_us=begin)
                    process = (
                        self.trainers[k]
                        if r.thread
                        else self.workers.setdefault((k, epoch, w), own)
                    )
                    last = max((io.end // US for io in process.ios), default=begin)
                    at = max(slots.pop(0), last)
                    ready = self._load(process, k, epoch, step, order, at)
                    self.fetches[k].append(_Fetch((k, epoch, w), step, at, ready, self.now))
                    ready += r.delivery_us
                    slots.append(max(ready, self.now))
                ready = max(ready, self.now + 50)
                done.append(ready + r.compute_us)
                self._seen(k, epoch * r.steps + step, self.now, ready, done[-1])
            self._step_ends(epoch * r.steps + step, done)

    def _worker_of(self, step: int) -> int:
        return int(step % 8 == 1) if self.recipe.uneven_workers else step % self.recipe.workers

    def _seen(self, rank: int, step: int, start: int, ready: int, end: int) -> None:
        if self.recipe.wait_spans:
            if step and step % self.recipe.steps == 0:  # the loader ends: StopIteration
                self.spans[rank].append(Span(SpanKind.INPUT_WAIT, start * US, (start + 20) * US))
                start += 25
            self.spans[rank].append(Span(SpanKind.INPUT_WAIT, start * US, ready * US))
        self.spans[rank].append(Span(SpanKind.OP, ready * US, end * US))

    def _step_ends(self, step: int, done: list[int]) -> None:
        end = max(done) + (200 if len(done) > 1 else 0)
        for rank, own in enumerate(done):
            if len(done) > 1:
                self.spans[rank].append(Span(SpanKind.COMMUNICATION, own * US, end * US))
            self.spans[rank].append(Span(SpanKind.STEP, self.now * US, end * US, step))
        self.now = end

    def _order(self, epoch: int) -> np.ndarray:
        r = self.recipe
        share = r.steps * r.batch
        total = share * (1 if r.who_reads == "same" else r.ranks)
        ids = np.arange(total) + (epoch * total if r.fresh else 0)
        return self.random.permutation(ids) if r.shuffle else ids

    def _load(
        self, process: _Process, rank: int, epoch: int, step: int, order: np.ndarray, at: int
    ) -> int:
        """Reads one batch; when it is ready."""
        r = self.recipe
        at += r.first_us if step == 0 else 0
        at += r.hiccup_us if step % 20 == 10 else 0
        if r.who_reads == "one" and rank:
            return at
        mine = slice(step * r.batch, (step + 1) * r.batch)
        offset = 0 if r.who_reads == "same" else rank * r.steps * r.batch
        read_us = int(r.read_us * (r.slow_rank if rank == r.ranks - 1 else 1))
        for sample in order[offset:][mine].tolist():
            file = 1 + sample % r.files
            process.opens[file] = process.opens.get(file, 0) + (
                1 if r.open_each or file not in process.opens else 0
            )
            process.stats[file] = process.stats.get(file, 0) + r.stats
            if r.open_each:
                process.asked.append((at, at + r.open_us))
                at += r.open_us
            if r.index_us:
                process.opens[INDEX] = process.opens.get(INDEX, 0) + 1
                process.ios.append(Io(at * US, (at + r.index_us) * US, 0, 46, INDEX))
                at += r.index_us + r.open_us
            base, piece = sample // r.files * r.sample_nbytes, r.sample_nbytes // r.pieces
            for i in range(r.pieces)[:: -1 if r.backwards else 1]:
                process.reads += 1
                took_us = read_us + (r.slow_read_us if process.reads % 60 == 0 else 0)
                process.ios.append(Io(at * US, (at + took_us) * US, base + i * piece, piece, file))
                at += took_us + 1
            if r.to_the_end:
                end = (at + r.nothing_us) * US + 900
                process.ios.append(Io(at * US, end, base + r.sample_nbytes, 0, file))
                at += r.nothing_us + 1
            at += r.decode_us
        return at

    def _checkpoint(self, epoch: int) -> None:
        r = self.recipe
        each, nbytes = r.checkpoint_us // r.checkpoint_pieces, r.checkpoint_nbytes
        file = CHECKPOINT + epoch
        self.trainers[0].opens[file] = 1
        for i in range(r.checkpoint_pieces):
            at, piece = self.now + i * each, nbytes // r.checkpoint_pieces
            self.trainers[0].ios.append(Io(at * US, (at + each) * US, i * piece, piece, file, 1))
        self.now += r.checkpoint_us

    def _written(self, file: int, each_us: int, nbytes: int, ops: tuple[int, ...]) -> None:
        """Rank 0 reads or writes a file, one operation after another."""
        self.trainers[0].opens[file] = 1
        for op in ops:
            end = self.now + each_us
            self.trainers[0].ios.append(Io(self.now * US, end * US, 0, nbytes, file, op))
            self.now = end

    def profiles(self) -> list[ProfileTrace]:
        """Where fetches were recorded so was the loop."""
        found = self._profiles()
        if not self.recipe.delivery_us:
            return found
        return [replace(p, fetches=self._fetched(k), marks_loop=True) for k, p in enumerate(found)]

    def _fetched(self, rank: int) -> FetchTable:
        pids = {key: 1000 + i for i, key in enumerate(sorted(self.workers))}
        members = sorted({fetch.worker for fetch in self.fetches[rank]})
        n, every = len(self.fetches[rank]), self.fetches[rank]
        ready = [max(f.end + self.recipe.delivery_us, f.asked + 50) for f in every]
        times = {
            "begin": [f.begin for f in every], "collate": [f.end for f in every],
            "end": [f.end for f in every], "wait_begin": [f.asked for f in every],
            "wait_end": ready,
        }  # fmt: skip
        return FetchTable(
            host="",
            pid=100 + rank,
            by=((100 + rank, -1), *((pids[key], key[2]) for key in members)),
            loaders={0: "loader"},
            member=np.array([1 + members.index(f.worker) for f in every]),
            loader=np.zeros(n, np.int64),
            epoch=np.array([f.worker[1] for f in every]),
            batch=np.array([f.step for f in every]),
            samples=np.full(n, self.recipe.batch),
            nbytes=np.full(n, self.recipe.batch_nbytes),
            **{name: JOB_START_NS + np.array(us) * US for name, us in times.items()},
        )

    def _profiles(self) -> list[ProfileTrace]:
        shift = round(self.recipe.shift_s * 1e9)
        ranks = self.recipe.ranks
        return [
            profile(
                spans, pid=100 + k, rank=k if ranks > 1 else None,
                world_size=ranks if ranks > 1 else None, base_ns=JOB_START_NS + shift,
            )
            for k, spans in enumerate(self.spans)
        ]  # fmt: skip

    def logs(self) -> tuple[list[TracerLog], dict[str, CounterFile]]:
        logs, counters = [], {}
        people = [(100 + k, None, p) for k, p in enumerate(self.trainers)]
        people += [
            (1000 + i, 100 + key[0], p) for i, (key, p) in enumerate(sorted(self.workers.items()))
        ]
        for pid, parent, process in people:
            log = self._log(pid, parent, process)
            logs.append(log)
            counters[log.path] = CounterFile(tuple(self._tables(pid, process)))
        return logs, counters

    def _log(self, pid: int, parent: int | None, process: _Process) -> TracerLog:
        begin, ios = process.begin_us * US, sorted(process.ios)
        kept = ios[: max(int(len(ios) * self.recipe.traced), 1)]
        log = darshan_log(
            [io._replace(start=io.start - begin, end=io.end - begin) for io in kept],
            pid=pid,
            parent=parent,
            start_ns=JOB_START_NS + begin,
            length_ns=(ios[-1].end if parent else self.end * US) - begin,
            names=self._names(process),
        )
        if self.recipe.objects:
            return _of_objects(log, process)
        cut = ("DXT_POSIX",) if self.recipe.traced < 1 else ()
        return replace(log, modules=("POSIX", "DXT_POSIX", "STDIO"), partial_layers=cut)

    def _names(self, process: _Process) -> dict[int, str]:
        root = "s3://bucket" if self.recipe.objects else "/data"
        names = {f: f"{root}/{self.recipe.name.format(f)}" for f in process.opens if f < CODE}
        names |= {
            f: f"/usr/lib/python3.12/m{f}.pyc" for f in process.opens if CODE <= f < CHECKPOINT
        }
        names |= {
            f: f"/data/ckpt-{f - CHECKPOINT}.pt" for f in process.opens if CHECKPOINT <= f < STDIO
        }
        names |= {INDEX: "/data/dataset.json", STDIO: "/data/extra.dat", SCRATCH: "/data/cache.h5"}
        names |= {LOG: "/out/n1_100.1700000099000.pt.trace.json"}
        unseen = range(self.recipe.unseen_files)
        return names | {UNSEEN + i: f"/data/array-{i}.npy" for i in unseen}

    def _tables(self, pid: int, process: _Process) -> list[CounterRecords]:
        if self.recipe.objects:
            return [_as_objects(self._posix(process, trainer=False), asked=bool(process.asked))]
        tables = [self._posix(process, trainer=pid < 1000)]
        if self.recipe.stdio_nbytes and pid < 1000:
            n = np.array([self.recipe.stdio_nbytes], np.int64)
            counters = {"STDIO_READS": n // 4096, "STDIO_BYTES_READ": n, "STDIO_OPENS": n // n,
                        "STDIO_WRITES": n * 0, "STDIO_BYTES_WRITTEN": n * 0}  # fmt: skip
            seconds = {f"STDIO_F_{w}_TIME": np.array([0.01]) for w in ("READ", "WRITE", "META")}
            ids, ranks = np.array([STDIO], np.uint64), np.zeros(1, np.int64)
            tables.append(CounterRecords("STDIO", ids, ranks, counters, seconds))
        return tables

    def _posix(self, process: _Process, *, trainer: bool) -> CounterRecords:
        unseen = [UNSEEN + i for i in range(self.recipe.unseen_files)] if trainer else []
        files = [*sorted(process.opens), *unseen]
        of: dict[int, list[Io]] = {f: [] for f in files}
        for io in process.ios:
            of.setdefault(io.file, []).append(io)

        def each(value: object) -> np.ndarray:
            return np.array([value(of[f]) for f in files], np.int64)  # type: ignore[operator]

        counters = {
            "POSIX_OPENS": np.array([process.opens.get(f, 1) for f in files], np.int64),
            "POSIX_STATS": np.array([process.stats.get(f, 0) for f in files], np.int64),
            "POSIX_READS": each(lambda ios: sum(io.op == 0 for io in ios)),
            "POSIX_WRITES": each(lambda ios: sum(io.op == 1 for io in ios)),
            "POSIX_BYTES_READ": each(lambda ios: sum(io.nbytes for io in ios if io.op == 0)),
            "POSIX_BYTES_WRITTEN": each(lambda ios: sum(io.nbytes for io in ios if io.op == 1)),
            "POSIX_SIZE_READ_0_100": each(
                lambda ios: sum(i.nbytes <= 100 and not i.op for i in ios)
            ),
            "POSIX_FILE_NOT_ALIGNED": each(lambda ios: len(ios) * self.recipe.misaligned),
            "POSIX_FILE_ALIGNMENT": each(lambda _: 1 << 20),
            "POSIX_MMAPS": each(lambda _: 0),
        }
        times = np.array([[sum(io.end - io.start for io in of[f] if io.op == op) / 1e9
                           for f in files] for op in (0, 1)])  # fmt: skip
        meta = np.array([process.opens.get(f, 1) * self.recipe.open_us / 1e6 for f in files])
        seconds = {"POSIX_F_READ_TIME": times[0], "POSIX_F_WRITE_TIME": times[1],
                   "POSIX_F_META_TIME": meta}  # fmt: skip
        ids = np.array(files, np.uint64)
        return CounterRecords("POSIX", ids, np.zeros(len(files), np.int64), counters, seconds)


def _of_objects(log: TracerLog, process: _Process) -> TracerLog:
    asked = np.array(process.asked, np.int64).reshape(-1, 2) * US - process.begin_us * US
    return replace(
        log,
        tracer="vanidl-record",
        operations=tuple(replace(table, layer=OBJECT) for table in log.operations),
        metadata_calls=union(asked[:, 0], asked[:, 1]),
        start_resolution_ns=0,
        start_error_ns=0,
        counts_apart=False,
        beside=True,
    )


def _as_objects(posix: CounterRecords, *, asked: bool) -> CounterRecords:
    kept = ("READS", "WRITES", "BYTES_READ", "BYTES_WRITTEN")
    counters = {f"OBJECT_{what}": posix.counters[f"POSIX_{what}"] for what in kept}
    counters["OBJECT_STATS"] = posix.counters["POSIX_OPENS"] * asked
    counters["OBJECT_LISTS"] = posix.counters["POSIX_OPENS"] * 0
    seconds = {name.replace("POSIX", OBJECT): value for name, value in posix.seconds.items()}
    return CounterRecords(OBJECT, posix.file, posix.rank, counters, seconds)


def _user_data(recipe: Recipe) -> UserData:
    """What opening the files would have shown of their chunks."""
    rows, width, pieces = recipe.steps * recipe.batch, recipe.sample_nbytes, recipe.chunk_pieces
    chunk = (recipe.chunk_rows, width // pieces)
    facts = {}
    for file in range(1, recipe.files + 1):
        path = f"/data/{recipe.name.format(file)}"
        size = rows * width
        array = ArrayFacts("/x", (rows, width), "uint8", chunk, (), size)
        blocks = (Block(chunk[0] * chunk[1], rows * pieces, "stored chunk of /x"),)
        facts[path] = FileFacts(path, "HDF5", size, rows, float(width), (array,), blocks)
    return UserData(facts=facts)
