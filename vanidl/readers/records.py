"""What one file says, before anybody knows how it fits with the others.

Readers make records, `vanidl.merge.pipeline` turns records into a `Trace`. Arrays are read-only.
Texts pass `vanidl.formatting.from_logs` as a record is made; paths and mount points stay true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.from_logs import (
    clean_command,
    clean_settings,
    clean_text,
    clean_texts,
    set_clean,
)
from vanidl.formatting.units import plural
from vanidl.model.intervals import Intervals
from vanidl.model.trace import CheckpointCall, DeviceTime
from vanidl.schema.dataclass import dataclass, restore

if TYPE_CHECKING:
    from vanidl.model.lines import SampledPart

# What one operation can be: the same bound for every reader.
#
# A file may say anything. Within these bounds sums over millions of operations stay integers;
# what lies outside is left out and counted as a loss.

Int64Array = NDArray[np.int64]

LARGEST_NBYTES = 1 << 40
"""Bytes of one operation: Linux moves at most 2 GiB in a call, MPI-IO's calls can move more."""

FARTHEST_OFFSET = 1 << 62
LATEST_NS = 1 << 62  # 146 years
LONGEST_NS = 1 << 51  # 26 days


def find_impossible_operations(
    offset: Int64Array, nbytes: Int64Array, start_ns: Int64Array, end_ns: Int64Array
) -> NDArray[np.bool_]:
    """For each operation whether its time, place or length is nonsense.

    Times count from the start of the log. NaN and infinity have become the smallest integer,
    on some machines the largest.
    """
    wrong = (end_ns < start_ns) | (start_ns < 0) | (end_ns > LATEST_NS)
    wrong |= end_ns - start_ns > LONGEST_NS
    wrong |= (nbytes < 0) | (nbytes > LARGEST_NBYTES) | (offset > FARTHEST_OFFSET)
    return wrong


def describe_left_out(wrong: int, of: int) -> str:
    """The sentence about operations that are impossible."""
    return (
        f"{wrong:,} of {plural(of, 'operation')} left out for an impossible time, place or length"
    )


_Number = TypeVar("_Number", bound=np.generic)


def freeze(array: NDArray[_Number]) -> NDArray[_Number]:
    """The array itself, from now on read-only."""
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True)
class OperationTable:
    """All traced operations of one layer of one log.

    A record is one file as one rank used it: `record_*` arrays have one entry per record,
    all others one entry per operation, in the order of the log (records in turn, within a
    record writes before reads, each in the order of their start). Times are nanoseconds
    since the start of the log. An offset of -1: not recorded.
    """

    layer: str  # "POSIX", "MPI-IO", "STDIO" or "OBJECT"
    record_file: NDArray[np.uint64]  # the tracer's file id, a key of TracerLog.names
    record_rank: NDArray[np.int64]
    record_host: tuple[str, ...]
    record: NDArray[np.int32] | NDArray[np.uint16]  # row -> index into the record_* arrays
    op: NDArray[np.uint8]  # trace.READ or trace.WRITE
    offset: NDArray[np.int64] | NDArray[np.uint32]  # in 32 bits where all fit
    nbytes: NDArray[np.int64] | NDArray[np.uint32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.uint64] | None  # pthread id; None in version 1, which has none

    def __post_init__(self) -> None:
        """Hosts as they may be shown."""
        if any(host != clean_text(host) for host in set(self.record_host)):
            set_clean(self, record_host=tuple(map(clean_text, self.record_host)))


@dataclass(frozen=True, slots=True)
class Columns(Mapping[str, NDArray[Any]]):
    """Columns by name: rows, one a name, of some of the records in them."""

    names: tuple[str, ...]
    rows: NDArray[Any] | tuple[NDArray[Any], ...]
    first: int = 0
    behind: int | None = None  # the last of them

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.names:
            raise KeyError(name)
        column: NDArray[Any] = self.rows[self.names.index(name)][self.first : self.behind]
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class CounterRecords:
    """Darshan's counters of one layer of one log: one row a record.

    `rank` is -1 for a record shared by all ranks. A negative counter: not monitored.
    """

    layer: str  # "POSIX", "MPI-IO", "STDIO", "H5D", ...
    file: NDArray[np.uint64]
    rank: NDArray[np.int64]
    counters: Mapping[str, NDArray[np.int64]]  # `Columns` where they were read from a log
    seconds: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class StripeRecord:
    """How Lustre spreads one file, or one component of its layout, over its targets."""

    file: int  # a key of TracerLog.names
    stripe_nbytes: int
    stripe_count: int
    osts: tuple[int, ...]  # object storage targets in order of the stripes
    extent_start: int = 0  # first byte of the file that this component holds
    extent_end: int | None = None  # first byte behind them; None: to the end of the file


@dataclass(frozen=True, slots=True)
class HeatmapRecord:
    """Bytes that one rank moved through one layer, in equal bins."""

    layer: str
    rank: int
    bin_ns: int
    bytes_read: NDArray[np.int64]
    bytes_written: NDArray[np.int64]
    since_start_ns: int = 0  # of the log to that of the first bin


@dataclass(frozen=True, slots=True)
class MpiRecord:
    """How long one rank was inside MPI calls, by Darshan's AutoPerf module."""

    rank: int
    host: str
    total_s: float
    sync_s: float | None  # waiting for others before collectives; None: not measured

    def __post_init__(self) -> None:
        """The host as it may be shown."""
        set_clean(self, host=clean_text(self.host))


@dataclass(frozen=True, slots=True)
class CounterFile:
    """What Darshan summed up in one log: a table a layer, and a sentence for each loss."""

    layers: tuple[CounterRecords, ...]
    losses: tuple[str, ...] = ()
    stripes: tuple[StripeRecord, ...] = ()
    heatmaps: tuple[HeatmapRecord, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    """Modules with records of a version that nothing here knows, and that version."""

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        unread = {clean_text(module): version for module, version in self.unread.items()}
        set_clean(self, losses=clean_texts(self.losses), unread=unread)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent in thousands, as logs are."""
        values = self.layers, self.losses, self.stripes, self.heatmaps, self.unread
        return restore, (CounterFile, *values)

    @property
    def unread_modules(self) -> tuple[str, ...]:
        """Modules whose records are in none of these."""
        return tuple(self.unread)


@dataclass(frozen=True, slots=True)
class TracerLog:
    """What one file of a system tracer says of one process, or of all ranks of an MPI job.

    `counters` are Darshan's, None of a log of another tracer.
    `losses` holds one sentence for each thing that could not be read; `whole` is False where
    there is one. `partial_layers` are those that the tracer itself flagged incomplete.
    """

    path: str
    tracer: str  # the name of its format
    version: str  # of the log format, "3.41"
    job_id: str
    host: str  # of its first traced record, "" where nothing says
    pid: int | None  # None for a shared log, or where nothing says
    parent_pid: int | None  # the process that forked it, where that is recorded
    user_id: int
    nprocs: int
    start_ns: int
    end_ns: int
    start_resolution_ns: int  # of the stated start: 1 s where it is given in whole seconds
    start_error_ns: int  # how far the start may be off before it is rounded
    command: str
    metadata: Mapping[str, str]  # what else the tracer says: lib_ver, h (hints), ...
    mounts: tuple[tuple[str, str], ...]  # (mount point, file system type), longest first
    names: Mapping[int, str]
    modules: tuple[str, ...]  # names of the modules that the log holds
    operations: tuple[OperationTable, ...]
    partial_layers: tuple[str, ...]
    whole: bool
    losses: tuple[str, ...]
    mpi: tuple[MpiRecord, ...] = ()
    rank: int | None = None  # of its process, where the tracer or its recorder says
    counters: CounterFile | None = None
    metadata_calls: Intervals | None = None  # ns since start_ns; None: not timed one by one
    calls: Mapping[str, Intervals] = field(default_factory=dict)  # the same by kind, and sync
    names_program: bool = False  # `command` is the program without its arguments
    counts_apart: bool = False  # the tracer counts operations beside tracing them
    unread_modules: tuple[str, ...] = ()  # those of `modules` that vanidl does not read
    beside: bool = False  # of a process that another log may tell of; on the system's clock
    start_late_ns: int = 0  # how much later than the zero of its times the start may be
    ended: bool = True  # else its process was killed, or still ran: `end_ns` is its last call's
    end_lost: bool = False  # what such a process did last may be missing

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        set_clean(
            self,
            version=clean_text(self.version),
            job_id=clean_text(self.job_id),
            host=clean_text(self.host),
            modules=clean_texts(self.modules),
            partial_layers=clean_texts(self.partial_layers),
            losses=clean_texts(self.losses),
            unread_modules=clean_texts(self.unread_modules),
            command=clean_command(self.command),
            metadata=clean_settings(self.metadata),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent in thousands: the usual way sets field after field in Python, and takes thrice."""
        return restore, (TracerLog, *_get_fields(self))

    @property
    def start_uncertainty_ns(self) -> int:
        """How far its start may be off."""
        return max(self.start_resolution_ns, self.start_error_ns)


_FIELDS = tuple(each.name for each in fields(TracerLog))
_get_fields = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class ProfileTrace:
    """One profiler trace of one process. Times are nanoseconds since the epoch.

    Span arrays have one entry a span, sorted by start; kinds are `trace.SpanKind`, `step` is
    the number of the profiled step on STEP spans, of the epoch on EPOCH spans and -1
    elsewhere, `thread` a code for the thread or device stream, `name` an index into `names`.
    """

    path: str
    source: str  # "pytorch-profiler", "dftracer"
    host: str
    pid: int | None
    rank: int | None
    world_size: int | None
    devices: tuple[str, ...]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    step: NDArray[np.int32]
    kind: NDArray[np.uint8]
    thread: NDArray[np.int32]
    name: NDArray[np.int32]
    names: tuple[str, ...]
    losses: tuple[str, ...]
    slight: tuple[str, ...] = ()  # losses of so few events that no number changes
    written_as: str = ""  # file that the profiler wrote, before it was moved to `path`
    every: int = 1  # a span of kind STEP stands for that many training steps
    steps_from: str = ""  # what steps were found by, where it does not mark them
    clock_method: str = "absolute"  # how its times were put on the epoch
    clock_uncertainty_ns: int = 0  # half-width of what the file and its name say of the epoch
    marks_loop: bool = False  # steps and waits of the whole process, nothing of what computes
    fetches: FetchTable | None = None  # of its loaders, where they were recorded
    lines: tuple[SampledPart, ...] = ()  # of it and its workers, where they were sampled
    device: DeviceTime | None = None  # at its steps, where events were recorded on it
    device_in_part: bool = False  # work of its device was left out, as it had no times
    group: int = 0  # ranks of the one group of all collectives; 0: of several, or not recorded
    threads: tuple[int, ...] = ()  # numbers by which tracers may know the thread that trains
    checkpoint_calls: tuple[CheckpointCall, ...] = ()
    marks_saves: bool = False  # saves that libraries make are all in `checkpoint_calls`
    dataset_kind: str = ""  # of the loader that trains: trace.MAP, trace.ITERABLE; "": not said
    purpose: str = ""  # of its steps: trace.INFERENCE, trace.UNSURE; "": training
    frameworks: tuple[str, ...] = ()  # that were imported when its loop began
    queued: Intervals | None = None
    """When its devices did nothing though work had been handed to them; None: not recorded."""
    recording: str = ""  # where profiles say it: those of one are of one run, and of no other

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        for name in ("devices", "names", "losses"):
            set_clean(self, **{name: clean_texts(getattr(self, name))})
        set_clean(self, host=clean_text(self.host))


@dataclass(frozen=True, slots=True)
class FetchTable:
    """The fetches of the loaders of one training process. Times are nanoseconds since the epoch.

    `by` are the processes that fetched: (process id, number of the worker), the worker -1 where
    that is the training process itself. All arrays have one entry a fetch, in no order. -1: not
    known, or of a batch that was never taken.
    """

    host: str
    pid: int | None  # of the training process
    by: tuple[tuple[int, int], ...]
    loaders: Mapping[int, str]  # number -> name, as that of its input waits
    member: NDArray[np.int64]  # index into `by`
    loader: NDArray[np.int64]
    epoch: NDArray[np.int64]
    batch: NDArray[np.int64]  # its place in the epoch
    samples: NDArray[np.int64]
    begin: NDArray[np.int64]
    collate: NDArray[np.int64]  # when its samples were there
    end: NDArray[np.int64]
    wait_begin: NDArray[np.int64]  # of the `__next__` that took it
    wait_end: NDArray[np.int64]
    nbytes: NDArray[np.int64]  # of the batch; -1: not measured, as of most
    ahead: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Loader -> batches asked for ahead of the first, and whether they come in order."""

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        loaders = {number: clean_text(name) for number, name in self.loaders.items()}
        set_clean(self, host=clean_text(self.host), loaders=loaders)


@dataclass(frozen=True, slots=True)
class EventRecords:
    """Every record of one event file, in order: when it was made and how long it is."""

    path: str
    host: str
    pid: int | None
    wall_ns: NDArray[np.int64]  # 0 where its time is not known
    nbytes: NDArray[np.int64]  # in the file, with its frame

    def __post_init__(self) -> None:
        """The host as it may be shown."""
        set_clean(self, host=clean_text(self.host))


@dataclass(frozen=True, slots=True)
class StepLog:
    """One file in which a program marked its steps: the segments of rising step numbers."""

    path: Path
    tag: str | None  # the tag that was asked for
    segments: tuple[ProfileTrace, ...]
    tags: tuple[str, ...] = ()  # all that mark something, in order of their first mark
    records: EventRecords | None = None

    def __post_init__(self) -> None:
        """Tags as they may be shown."""
        set_clean(self, tags=clean_texts(self.tags))


@dataclass(frozen=True, slots=True)
class StepDurations:
    """How long each step of one host's process took; when it was is not recorded."""

    path: str
    source: str
    host: str
    step: NDArray[np.int32]
    duration_ns: NDArray[np.int64]

    def __post_init__(self) -> None:
        """The host as it may be shown."""
        set_clean(self, host=clean_text(self.host))


def find_owner(path: str) -> int:
    """User id of the file's owner, -1 where the file is gone."""
    try:
        return Path(path).stat().st_uid
    except OSError:
        return -1


def same_host(a: str, b: str) -> bool:
    """Whether two host names can be the same machine; an unknown name fits every host."""
    return not a or not b or a.split(".")[0] == b.split(".")[0]
