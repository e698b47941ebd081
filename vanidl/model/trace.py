"""The data model: one immutable `Trace`, made by `assemble`, read by every analysis.

Times are int64 nanoseconds since the Unix epoch, intervals are half-open. Nothing here
knows a file format. Arrays are read-only; a stage that changes something returns a new
record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.from_logs import clean_path, clean_text, set_clean
from vanidl.model.counter_tables import CounterTable, Heatmap, MpiTime, Stripes
from vanidl.model.file_kinds import DATASET
from vanidl.model.intervals import Intervals
from vanidl.model.run_facts import Benchmark, Ceiling, Ending, HostMemory, UserData
from vanidl.model.states import NO_STATES, States
from vanidl.model.warnings import Notice
from vanidl.schema.dataclass import dataclass, restore

if TYPE_CHECKING:
    from vanidl.model.lines import SampledPart

Int64Array = NDArray[np.int64]
Int32Array = NDArray[np.int32]
UInt8Array = NDArray[np.uint8]

READ = 0
WRITE = 1

POSIX = "POSIX"
MPIIO = "MPI-IO"
STDIO = "STDIO"
H5F = "H5F"
H5D = "H5D"
PNETCDF = "PNETCDF"
PNETCDF_VAR = "PNETCDF_VAR"
DFS = "DFS"
DAOS = "DAOS"
DAOS_OF_DFS = "DAOS of DFS"
OBJECT = "OBJECT"
STORAGE_LAYERS = (POSIX, STDIO, DFS, DAOS)
"""Disjoint layers whose bytes may be added: DAOS without the objects in which its file system DFS
keeps files, which are DAOS_OF_DFS. Every other layer lies above POSIX, but for OBJECT: requests to
object storage, which go through sockets and are a total of their own."""

FILES_NOT_RECORDED = "<files not recorded>"
"""The path that stands for all files of calls of which the tracer kept no file."""

MAX_PART_ROWS = 8_000_000

INFERENCE, UNSURE = "inference", "unsure"
"""What steps are for that are none of training, as far as the recorder could see."""

FROM_WAITS, FROM_COMPUTE = "input waits", "compute"
"""What unmarked steps were found by. Of compute they are where the program marks nothing else."""


class SpanKind(IntEnum):
    """What the training process did during a span."""

    STEP = 0
    INPUT_WAIT = 1
    OP = 2
    KERNEL = 3
    COMMUNICATION = 4
    CHECKPOINT = 5
    PREPROCESS = 6
    EPOCH = 7
    EVALUATION = 8  # a step of validation
    LOAD = 9  # of a checkpoint
    COPY = 10  # on a device: between host and device, or within its memory; memset too
    VALIDATION = 11  # a whole one, from its begin to its end
    PHASE = 12  # another window beside training, by its name
    FORWARD = 13  # from the first call of the model to the backward pass, on the host
    BACKWARD = 14
    OPTIMIZER = 15  # its step
    WORKERS = 16  # being started or stopped by the training thread


@dataclass(frozen=True, slots=True)
class Part:
    """Some or all operations of one process on one layer, sorted by start.

    A process with more than `MAX_PART_ROWS` operations has several parts that follow each
    other in time. All arrays have one entry per operation.
    """

    process: int  # index into Trace.processes
    layer: str
    start: Int64Array  # ns since the epoch
    end: Int64Array
    offset: Int64Array  # bytes from the start of the file, -1 where not recorded
    nbytes: Int64Array
    thread: Int32Array  # code of the thread within its process, -1 where not recorded
    file: Int32Array  # index into Trace.files
    op: UInt8Array  # READ or WRITE

    def __len__(self) -> int:
        return len(self.start)

    def rows(self, index: NDArray[np.bool_] | Int64Array | slice) -> Part:
        """The part with only the rows that a mask, an index array or a slice picks."""
        columns = {name: getattr(self, name)[index] for name in COLUMNS}
        return Part(self.process, self.layer, **columns)

    def shifted(self, offset_ns: int) -> Part:
        """The same operations that much later."""
        if not offset_ns:
            return self
        start, end = self.start + offset_ns, self.end + offset_ns
        for column in (start, end):
            column.flags.writeable = False
        return replace(self, start=start, end=end)


COLUMNS = ("start", "end", "offset", "nbytes", "thread", "file", "op")


@dataclass(frozen=True, slots=True)
class Job:
    """What ran, and when."""

    id: str | None
    command: str
    start_ns: int  # first start over the run's logs
    end_ns: int  # last end over the run's logs
    start_resolution_ns: int  # 1,000,000,000 where the logs give whole seconds
    tracer: str  # name of its format, "" where only profiler traces were found
    nprocs: int | None = None  # as the tracer recorded it; None where nothing did
    user_id: int | None = None
    counts_apart: bool = False  # operations are counted beside tracing them: each checks the other

    @property
    def run_time_s(self) -> float:
        """Last end minus first start over the run's logs."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class ClockReason:
    """One kind of evidence on a clock, in words."""

    method: str
    offsets: str  # that it leaves open, "" where it names none
    reason: str

    def __str__(self) -> str:
        where = f" ({self.offsets})" if self.offsets else ""
        return f"{self.method}: {self.reason}{where}"


@dataclass(frozen=True, slots=True)
class Process:
    """One operating-system process of the run."""

    host: str  # "" where not recorded
    pid: int | None
    parent_pid: int | None = None
    role: str = "trainer"  # trainer, worker, auxiliary or unassigned
    rank: int | None = None
    trainer: int | None = None  # index of the trainer of its family (itself for a trainer)
    log: str = ""  # name of the file it was recorded in
    start_ns: int | None = None
    end_ns: int | None = None
    clock_offset_ns: int = 0  # already applied to its times; the true one lies in [low, high]
    clock_uncertainty_ns: int = 0
    command: str = ""
    clock_low_ns: int = 0
    clock_high_ns: int = 0
    clock_evidence: tuple[ClockReason, ...] = ()

    def __post_init__(self) -> None:
        """Texts as they may be shown; the command and the host are, from their log."""
        set_clean(self, log=clean_path(self.log))

    def changed(self, **values: object) -> Process:
        """As `dataclasses.replace`, of texts that may be shown: there may be tens of thousands."""
        known = dict(zip(_PROCESS_FIELDS, _get_process(self), strict=True))
        return restore(Process, *(known | values).values())

    @property
    def label(self) -> str:
        """`rank 3` where the rank is known, else host:pid, or what is known of them."""
        if self.rank is not None:
            return f"rank {self.rank}"
        if not self.host and self.pid is not None:
            return f"process {self.pid}"
        return f"{self.host or '?'}:{self.pid if self.pid is not None else '?'}"


_PROCESS_FIELDS = tuple(each.name for each in fields(Process))
_get_process = attrgetter(*_PROCESS_FIELDS)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of the run; index i of every tuple is file code i.

    `path` and `mount` are as they may be shown, with masks and escapes; `true_path` is as the job
    had it, to find the files on this machine, and in no output.
    """

    path: tuple[str, ...]
    kind: tuple[str, ...]  # dataset, checkpoint, code, log, system or other
    mount: tuple[str, ...]  # "" where no mount point is known
    file_system: tuple[str, ...]  # type as mounted: lustre, ext4, "" where unknown
    place: tuple[int, ...] = ()  # by name, where the paths are pseudonyms; else empty
    data_kind: str = DATASET  # the kind that is taken for the dataset
    true_path: tuple[str, ...] = ()  # empty where the paths are pseudonyms

    def __len__(self) -> int:
        return len(self.path)

    @property
    def is_data(self) -> NDArray[np.bool_]:
        """Which files are taken for the dataset."""
        return np.array([kind == self.data_kind for kind in self.kind], bool)


@dataclass(frozen=True, slots=True)
class Spans:
    """What profilers saw, sorted by start; one entry a span in every array."""

    start: Int64Array
    end: Int64Array
    process: Int32Array  # index into Trace.processes
    step: Int32Array  # number of the step (kind STEP) or epoch (EPOCH), else -1
    kind: UInt8Array  # SpanKind
    thread: Int32Array  # code of the thread or device stream, -1 where not recorded
    name: Int32Array  # index into names
    source: Int32Array  # index into Trace.profiles: which trace file it came from
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def sources(self) -> list[int]:
        """Which profiles they are from, ascending."""
        one = len(self) == 0 or bool((self.source == self.source[0]).all())
        sources = self.source[:1] if one else np.flatnonzero(np.bincount(self.source))
        return [int(source) for source in sources]

    @property
    def kinds(self) -> frozenset[int]:
        """The kinds of which there are any."""
        return frozenset(np.flatnonzero(np.bincount(self.kind)).tolist())

    def of_kind(self, *kinds: SpanKind) -> Spans:
        """The spans of some kinds, in their order."""
        mask = self.kind == kinds[0]
        for kind in kinds[1:]:
            mask |= self.kind == kind
        return self.pick(np.flatnonzero(mask) if mask.any() else slice(0, 0))

    def pick(self, rows: NDArray[np.bool_] | Int64Array | Int32Array | slice) -> Spans:
        """The spans that a mask or an index array picks, or a slice: of that, views."""
        if not isinstance(rows, slice) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)  # once: masks are slow to go by, column after column
        elif isinstance(rows, slice):
            return Spans(
                self.start[rows],
                self.end[rows],
                self.process[rows],
                self.step[rows],
                self.kind[rows],
                self.thread[rows],
                self.name[rows],
                self.source[rows],
                self.names,
            )
        rows = rows.astype(np.intp, copy=False)
        return Spans(
            _take_rows(self.start, rows),
            _take_rows(self.end, rows),
            _take_rows(self.process, rows),
            _take_rows(self.step, rows),
            _take_rows(self.kind, rows),
            _take_rows(self.thread, rows),
            _take_rows(self.name, rows),
            _take_rows(self.source, rows),
            self.names,
        )


def _take_rows(column: NDArray[_Number], rows: NDArray[np.intp]) -> NDArray[_Number]:
    """Some rows of a column; one that repeats a value without its memory is not copied for it."""
    return column.take(rows) if column.flags.c_contiguous else column[rows]


_TOGETHER = 16  # ranks whose spans are gathered at a time
_MOST_NARROW = np.iinfo(np.int32).max


def concatenate_parts(process: int, layer: str, parts: Sequence[Part]) -> Part:
    """Parts of one process and layer, in order of time, as one."""
    if len(parts) == 1:
        return parts[0]
    return Part(
        process=process,
        layer=layer,
        start=_joined([p.start for p in parts], np.int64),
        end=_joined([p.end for p in parts], np.int64),
        offset=_joined([p.offset for p in parts], np.int64),
        nbytes=_joined([p.nbytes for p in parts], np.int64),
        thread=_joined([p.thread for p in parts], np.int32),
        file=_joined([p.file for p in parts], np.int32),
        op=_joined([p.op for p in parts], np.uint8),
    )


def concatenate_spans(blocks: Sequence[Spans], names: tuple[str, ...]) -> Spans:
    """All spans of the blocks, whose name codes are indices into `names` already."""
    return Spans(
        _joined([b.start for b in blocks], np.int64),
        _joined([b.end for b in blocks], np.int64),
        _joined([b.process for b in blocks], np.int32),
        _joined([b.step for b in blocks], np.int32),
        _joined([b.kind for b in blocks], np.uint8),
        _joined([b.thread for b in blocks], np.int32),
        _joined([b.name for b in blocks], np.int32),
        _joined([b.source for b in blocks], np.int32),
        names,
    )


_Number = TypeVar("_Number", np.int64, np.int32, np.uint8)


def _joined(columns: Sequence[NDArray[_Number]], dtype: type[_Number]) -> NDArray[_Number]:
    return np.concatenate(columns) if columns else np.empty(0, dtype)


MAP, ITERABLE = "map", "iterable"
"""Kinds of PyTorch's datasets: samples by index, or a stream of them."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One profiler trace file: where it came from and how it was put on the clock."""

    path: str
    source: str  # "pytorch-profiler", "tfevents", ...
    process: int  # index into Trace.processes
    has_wait_spans: bool  # False: input wait is unknown, not zero
    devices: tuple[str, ...] = ()
    steps_from: str = ""  # FROM_WAITS, FROM_COMPUTE; "" where it marks its steps, or has none
    clock_method: str = "absolute"
    clock_offset_ns: int = 0  # already applied to its spans; the true one lies in [low, high]
    clock_uncertainty_ns: int = 0
    clock_low_ns: int = 0
    clock_high_ns: int = 0
    clock_evidence: tuple[ClockReason, ...] = ()
    marks_loop: bool = False  # steps and waits of the whole process, nothing of what computes
    device: DeviceTime | None = None
    thread_known: bool = False  # operations of its process in the thread that trains have code 0
    dataset_kind: str = ""  # of the loader that trains: MAP, ITERABLE; "": not recorded
    purpose: str = ""  # of its steps: INFERENCE, UNSURE; "": training
    frameworks: tuple[str, ...] = ()  # that were imported when its loop began
    device_in_part: bool = False  # some work of its device is in no span: steps may lack all of it
    group: int = 0  # ranks of the one group of all collectives; 0: of several, or not recorded

    def __post_init__(self) -> None:
        """The path as it may be shown."""
        set_clean(self, path=clean_path(self.path))

    @property
    def aligned(self) -> bool:
        """Whether its spans are on the clock of the logs; they are left out where not."""
        return self.clock_method != "not aligned"


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """How long a device was at so many steps, each from the first work that it was given.

    It may have waited for more in between: `device_ns` is the most that it was busy.
    """

    steps: int
    device_ns: int
    host_ns: int  # that the process took for the same, from its first batch on


@dataclass(frozen=True, slots=True)
class CheckpointCall:
    """A call of a library that saved or loaded a checkpoint, [start, end) in ns since the epoch.

    `path` is its last name, after renames, "" where it had none. What another thread than the
    training one did (`in_loop` is False) held up no step.
    """

    start: int
    end: int
    is_load: bool
    call: str  # "torch.save"
    path: str
    nbytes: int | None
    in_loop: bool
    process: int = -1  # index into Trace.processes
    former: tuple[str, ...] = ()  # names before it was renamed

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        former = tuple(clean_path(path) for path in self.former)
        set_clean(self, call=clean_text(self.call), path=clean_path(self.path), former=former)


@dataclass(frozen=True, slots=True)
class UndatedSteps:
    """How long each step of one process took; when it was is not recorded."""

    process: int  # index into Trace.processes
    source: str
    step: Int32Array
    duration_ns: Int64Array


@dataclass(frozen=True, slots=True)
class LogState:
    """How whole one log file is."""

    path: str
    version: str
    whole: bool
    partial_layers: tuple[str, ...] = ()  # layers that the tracer itself flagged incomplete
    losses: tuple[str, ...] = ()  # sentences: what could not be read
    unread_modules: tuple[str, ...] = ()  # modules of the log that vanidl does not read

    def __post_init__(self) -> None:
        """The path as it may be shown."""
        set_clean(self, path=clean_path(self.path))


# Fetches of loaders: who made each batch, when, and which input wait took it.


@dataclass(frozen=True, slots=True)
class Fetches:
    """Recorded fetches by start; one entry a fetch in every array, -1 where not known.

    A fetch is [begin, collate), in which the samples were got (`__getitem__`), and
    [collate, end). The wait [wait_begin, wait_end) of the training process took its batch; -1:
    none did. Times are ns since the epoch. `ahead` is how many batches its loader asks for before
    it takes the first (workers x prefetch_factor): a batch is asked of its worker when the one
    that lies so far before it is taken. `in_order`: 1 where batches are handed over in the order
    in which they were asked for, 0 where as they come.
    """

    trainer: Int64Array  # index into Trace.processes: who trains on it
    process: Int64Array  # index into Trace.processes: who fetched; -1 where nothing else is known
    worker: Int64Array  # its number in the loader; -1: the training process itself
    pid: Int64Array  # the process id of who fetched, on the trainer's host
    name: Int64Array  # index into names: of the loader
    epoch: Int64Array
    batch: Int64Array  # its place in the epoch
    samples: Int64Array
    begin: Int64Array
    collate: Int64Array
    end: Int64Array
    wait_begin: Int64Array
    wait_end: Int64Array
    ahead: Int64Array
    in_order: Int64Array
    nbytes: Int64Array  # of the batch in memory; -1: not measured, as of most
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def mean_nbytes(self) -> float | None:
        """What a batch takes in memory, of those that were measured; None where none was."""
        measured = self.nbytes[self.nbytes >= 0]
        return float(measured.mean()) if len(measured) else None

    def pick(self, rows: NDArray[np.bool_] | Int64Array) -> Fetches:
        """Those that a mask or an index array picks."""
        return Fetches(
            **{name: getattr(self, name)[rows] for name in FETCH_COLUMNS}, names=self.names
        )


_MAY_LACK = ("ahead", "in_order", "pid", "nbytes")
FETCH_COLUMNS = tuple(one.name for one in fields(Fetches) if one.name != "names")


def make_fetches(columns: dict[str, NDArray[Any]], names: tuple[str, ...]) -> Fetches:
    """Fetches of these columns, sorted by start; not known are those of _MAY_LACK left out."""
    unknown = np.full(len(columns["begin"]), -1, np.int64)
    columns = dict.fromkeys(_MAY_LACK, unknown) | columns
    order = np.lexsort((columns["end"], columns["process"], columns["begin"]))
    picked = {name: columns[name][order] for name in FETCH_COLUMNS}
    for column in picked.values():
        column.flags.writeable = False
    return Fetches(**picked, names=names)


NO_FETCHES = make_fetches({name: np.empty(0, np.int64) for name in FETCH_COLUMNS}, ())


# The run.


@dataclass(frozen=True)
class Trace:
    """Everything known about one run."""

    job: Job
    processes: tuple[Process, ...]
    files: Files
    io: Sequence[Part]
    spans: Spans
    profiles: tuple[Profile, ...] = ()
    counters: Mapping[str, CounterTable] = field(default_factory=dict)
    logs: tuple[LogState, ...] = ()
    warnings: tuple[Notice, ...] = ()
    layers_traced: tuple[str, ...] = ()  # layers with per-operation records
    stripes: tuple[Stripes, ...] = ()  # sorted by file
    heatmaps: tuple[Heatmap, ...] = ()
    mpi: tuple[MpiTime, ...] = ()
    step_durations: tuple[UndatedSteps, ...] = ()  # each with one step or more
    metadata_calls: Mapping[int, Intervals] = field(default_factory=dict)
    """Process -> when it was in open, stat, close and the like, where a tracer times each call."""
    calls: Mapping[int, Mapping[str, Intervals]] = field(default_factory=dict)
    """Process -> kind of `call_kinds` -> when it was in such calls, where a tracer tells kinds
    apart. Without sync they are `metadata_calls`."""
    object_calls: Mapping[int, Intervals] = field(default_factory=dict)
    """The same of requests to object storage that move no data: HEAD, listings."""
    queued: Mapping[int, Intervals] = field(default_factory=dict)
    """Process -> when its devices did nothing though work had been handed to them, where that was
    recorded."""
    user_data: UserData = field(default_factory=UserData)
    fetches: Fetches = NO_FETCHES
    checkpoint_calls: tuple[CheckpointCall, ...] = ()  # by start
    memory: tuple[HostMemory, ...] = ()  # of each host with a recorder
    lines: tuple[SampledPart, ...] = ()
    """Which lines of the program took the time of fetches and steps, where they were sampled: of
    all ranks together, whatever is selected."""
    states: States = NO_STATES
    steps_counted: int | None = None
    """Training steps of a process with a profile, by its event file, profiled or not."""
    benchmarks: tuple[Benchmark, ...] = ()
    ending: Ending | None = None  # of the recorded command
    cores: float | None = None  # that the recorded command could use on a host; None: not known
    tracer_call_ns: float | None = None
    """What a traced call cost more than without tracer, as recording began; None: not known."""
    ceiling: Ceiling | None = None
    """What the steps take with batches from memory, where that was measured."""

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Indices of the processes that stand for a rank, in order of rank.

        These are the trainers. A rank's operations are those of its family: the trainer and
        the workers whose `trainer` it is.
        """
        trainers = [i for i, p in enumerate(self.processes) if p.role == "trainer"]
        return tuple(sorted(trainers, key=lambda i: _rank_key(self.processes[i])))

    @cached_property
    def rank_numbers(self) -> tuple[int | None, ...]:
        """Of each of `ranks` its number; its place among them where none has a number."""
        numbers = tuple(self.processes[i].rank for i in self.ranks)
        return tuple(range(len(numbers))) if set(numbers) <= {None} else numbers

    @property
    def streams(self) -> bool:
        """Whether training took its samples from an IterableDataset, as far as that is known.

        Each worker of a DataLoader iterates over all of it, unless it splits itself.
        """
        return any(profile.dataset_kind == ITERABLE for profile in self.profiles)

    @property
    def indexes(self) -> bool:
        """Whether it is known that training took its samples by index, in every process."""
        loops = [profile for profile in self.profiles if profile.marks_loop]
        return bool(loops) and all(profile.dataset_kind == MAP for profile in loops)

    @property
    def purpose(self) -> str:
        """What all its steps are for: INFERENCE, UNSURE; "" for training, or where they differ."""
        loops = [profile for profile in self.profiles if profile.marks_loop] or self.profiles
        purposes = {profile.purpose for profile in loops}
        return purposes.pop() if len(purposes) == 1 else ""

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that ranks ran on, each once, as far as they are known."""
        return tuple(sorted({self.processes[i].host for i in self.ranks if self.processes[i].host}))

    @cached_property
    def family(self) -> Int32Array:
        """For each process the position in `ranks` that it counts for, -1 for none."""
        position = {process: i for i, process in enumerate(self.ranks)}
        codes = [-1 if p.trainer is None else position[p.trainer] for p in self.processes]
        return np.array(codes, np.int32)

    @cached_property
    def stepping(self) -> tuple[int, ...]:
        """Positions in `ranks` of those with a step that was profiled."""
        stepping = np.zeros(len(self.processes), bool)
        stepping[self.spans.process[self.spans.kind == SpanKind.STEP]] = True
        return tuple(p for p in np.unique(self.family[stepping]).tolist() if p >= 0)

    @cached_property
    def profiles_of(self) -> Mapping[int, tuple[Profile, ...]]:
        """Process -> its profiles; of those that have some."""
        of_process: dict[int, list[Profile]] = {}
        for profile in self.profiles:
            of_process.setdefault(profile.process, []).append(profile)
        return {process: tuple(its) for process, its in of_process.items()}

    @cached_property
    def workers_of(self) -> Mapping[int, tuple[int, ...]]:
        """Trainer -> the processes that are known as workers of it; of those that have some."""
        of_trainer: dict[int, list[int]] = {}
        for i, process in enumerate(self.processes):
            if process.role == "worker" and process.trainer is not None:
                of_trainer.setdefault(process.trainer, []).append(i)
        return {trainer: tuple(its) for trainer, its in of_trainer.items()}

    def spans_of(self, position: int) -> Spans:
        """What profilers saw of one rank and its family, by start; looked up once for all."""
        return next(self._spans_between(position, position + 1))

    def spans_by_rank(self) -> Iterator[Spans]:
        """The same of every rank in turn, some ranks at a time: their spans lie side by side."""
        for position in range(0, len(self.ranks), _TOGETHER):
            yield from self._spans_between(position, min(position + _TOGETHER, len(self.ranks)))

    def _spans_between(self, low: int, high: int) -> Iterator[Spans]:
        rows, first = self._span_rows
        edges = first[low : high + 1].tolist()
        mine = slice(edges[0], edges[-1])
        spans = self.spans.pick(mine if rows is None else rows[mine])
        for begin, end in pairwise(edges):
            yield spans.pick(slice(begin - edges[0], end - edges[0]))

    @cached_property
    def _span_rows(self) -> tuple[Int32Array | Int64Array | None, Int64Array]:
        """Rows of spans by family, None where they lie so; and where those of each rank begin."""
        family = self.family[self.spans.process]
        if bool((family[1:] >= family[:-1]).all()):
            return None, np.searchsorted(family, np.arange(len(self.ranks) + 1, dtype=np.int32))
        counts = np.bincount(family[family >= 0], minlength=len(self.ranks))
        first = np.append(0, np.cumsum(counts)) + int((family < 0).sum())
        if len(self.ranks) <= np.iinfo(np.int16).max:  # two bytes are sorted by counting
            rows = np.argsort(family.astype(np.int16), kind="stable")
        else:
            rows = np.argsort(family, kind="stable")
        return (rows.astype(np.int32) if len(rows) <= _MOST_NARROW else rows), first


def _rank_key(process: Process) -> tuple[bool, int, str, int]:
    known = process.rank is not None
    return (not known, process.rank or 0, process.host, process.pid or 0)
