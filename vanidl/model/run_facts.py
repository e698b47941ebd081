"""What is known of a run beside what was traced, each from a file or a word of its own.

How its command ended, what it takes with batches from memory (`vanidl ceiling`), its memory as a
recorder looked at it from outside, results of a benchmark of storage, what opened data files say of
themselves, what the user states of its data.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.from_logs import clean_text, clean_texts, set_clean
from vanidl.formatting.names import elided
from vanidl.formatting.units import plural
from vanidl.schema.dataclass import dataclass
from vanidl.schema.meanings import means

Int64Array = NDArray[np.int64]


_SIGNALLED = 128  # an exit status above it: that of a signal, as shells have it


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended, and what is known of why.

    Attributes:
        exit_status: 128 + N where signal N ended it.
        memory_kills: processes that the kernel killed as memory had run out; None: not known.
        last_error: the last line of a Python process that failed, without secrets; "" for none.
    """

    exit_status: int
    memory_kills: int | None = None
    last_error: str = ""

    @property
    def failed(self) -> bool:
        """Whether the command says so."""
        return self.exit_status != 0

    @property
    def signal(self) -> str:
        """The name of the signal that ended it, "" where none did."""
        if self.exit_status > _SIGNALLED:
            with suppress(ValueError):  # a number that is no signal
                return signal.Signals(self.exit_status - _SIGNALLED).name
        return ""


# How a command ended, in words: said before any number of a run that failed.

_MOST_ERROR = 300


def describe_ending(ending: Ending | None) -> str:
    """A sentence, "" where the command ended well, or nothing is known of its end."""
    if ending is None or not (ending.failed or ending.memory_kills):
        return ""
    sentences = [f"The program {_describe_exit(ending)}"]
    if ending.memory_kills:
        killed = plural(ending.memory_kills, "process", "processes")
        sentences.append(f"the kernel killed {killed} as memory had run out")
    if ending.last_error and ending.failed:
        sentences.append(elided(ending.last_error, limit=_MOST_ERROR))
    return f"{'; '.join(sentences)}."


def _describe_exit(ending: Ending) -> str:
    if not ending.failed:
        return "ended with exit status 0, but not all of it"
    if ending.signal:
        return f"was ended by {ending.signal} (exit status {ending.exit_status})"
    return f"failed with exit status {ending.exit_status}"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Steps of a run and the same steps of a run whose batches came from memory, in seconds.

    `steps` of each of `ranks` are compared: those whose batches came from memory, which are the
    ones after the warm-up, with those of equal number. Means are over steps and ranks, medians
    too. `copying_s` is what each of these steps took to copy its batches, a part of `free_s`.

    `cost` is the share of the steps' wall time that input costs, 1 - free_s / step_s. With
    98 % confidence, for this pair of runs, it is in [`low`, `high`]; `high` counts the copying
    as input, as far as it was not hidden it is. `pairs` is 1, or how many pairs of runs the
    interval is of.
    """

    ranks: Annotated[int, means("Ranks that were compared", "count")]
    steps: Annotated[int, means("Steps of each, after the warm-up", "count")]
    step_s: Annotated[float, means("Mean step as it trained", "s")]
    free_s: Annotated[float, means("Mean step with batches from memory", "s")]
    median_step_s: Annotated[float, means("Median step as it trained", "s")]
    median_free_s: Annotated[float, means("Median step with batches from memory", "s")]
    copying_s: Annotated[
        float, means("Mean time to copy the batches of a step, a part of free_s", "s")
    ]
    cost: Annotated[float, means("1 - free_s / step_s", "1")]
    low: Annotated[float, means("Lower end of the 98 % interval of cost", "1")]
    high: Annotated[float, means("Its upper end, with copying counted as input", "1")]
    replayed: Annotated[
        int, means("Loaders whose batches came from memory, over all ranks", "count")
    ]
    kept: Annotated[int, means("Batches that were kept for that, over all ranks", "count")]
    kept_nbytes: Annotated[int, means("Their memory", "bytes")]
    pairs: Annotated[int, means("Pairs of runs that the interval is of", "count")] = 1
    remarks: Annotated[tuple[str, ...], means("Loaders that stayed real, and why")] = ()

    @property
    def shortest_s(self) -> float:
        """The mean step that no faster input goes below, as far as was measured."""
        return self.step_s * (1 - self.high)


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """One process. Times are ns since the epoch, sizes bytes; one entry a look in every array.

    Resident pages that are shared count in every process, proportional ones by their share.
    """

    pid: int
    parent_pid: int
    at_ns: Int64Array
    resident: Int64Array
    shared: Int64Array  # of it, pages of files and of shared memory
    walked_ns: Int64Array  # when the kernel walked its pages, which is more seldom
    proportional: Int64Array
    private: Int64Array
    shared_memory: Int64Array  # proportional
    swapped: Int64Array


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The processes of one recorder, and what lies around them; -1 where it was not to be seen."""

    host: str
    limit: int  # bytes that the processes may take, with whatever else is in their group
    limit_of: str  # "control group" or "machine"
    processes: tuple[ProcessMemory, ...]
    at_ns: Int64Array
    dev_shm: Int64Array  # bytes in /dev/shm, of whomever
    available: Int64Array  # that the machine could give
    group: Int64Array  # of the control group, page cache included
    group_files: Int64Array  # its page cache


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """One epoch of training of one rank, without the steps that the benchmark leaves out.

    Seconds. `total_s` is the sum of compute, load, other and outside; utilization is compute over
    total. Of another rank's slower step is `barrier_s`, a part of outside: None where not all
    ranks are known.
    """

    rank: int
    epoch: int  # as the benchmark numbers them
    steps: int  # with those that are left out
    total_s: float
    compute_s: float  # as recorded: what was set, in releases that do not measure it
    load_s: float  # waiting for the next batch
    other_s: float  # the rest of a step
    outside_s: float  # between steps: barriers, making the loader, its end
    barrier_s: float | None
    utilization_percent: float  # by the benchmark's formula
    recorded_percent: float | None  # what the benchmark wrote
    counted: tuple[tuple[int, int], ...] = ()  # numbers of its steps that are not left out: [a, b)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One result of a benchmark. None: not recorded."""

    folder: str
    name: str  # of the tool
    workload: str
    epochs: tuple[EpochTimes, ...]
    summary_percent: tuple[float, ...]  # utilization of each epoch, as the benchmark summed it up
    threshold_percent: float | None
    accelerators: int | None
    hosts: int | None
    memory_nbytes: int | None  # of all hosts
    dataset_nbytes: int | None
    batch_size: int | None
    steps_per_epoch: int | None
    steps_with_another_file: int | None  # the benchmark rounds the number of files down
    compute_s: float | None  # a step was set to compute that long
    trains: bool = True  # False: it saves and loads checkpoints alone
    saves_s: tuple[float, ...] = ()  # each checkpoint of its first rank
    loads_s: tuple[float, ...] = ()
    cached_nbytes: tuple[tuple[int, int], ...] = ()  # (epoch, page cache of a host as it began)
    framework: str = ""  # whose data loader it ran, in lower case
    samples_per_s: tuple[float, ...] = ()  # of each epoch, as the benchmark summed it up
    io_bytes_per_s: float | None = None  # mean over epochs, by the same
    meets_threshold: bool | None = None  # of utilization, by the same
    save_bytes_per_s: float | None = None  # of checkpoints, mean by the same
    load_bytes_per_s: float | None = None
    checkpoint_nbytes: int | None = None  # of one, by all ranks

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        for name in ("name", "workload", "framework"):
            set_clean(self, **{name: clean_text(getattr(self, name))})


# What an opened data file says about itself.


@dataclass(frozen=True, slots=True)
class Block:
    """Pieces of one exact size that the file is made of, and what they are."""

    nbytes: int
    count: int
    what: str  # "stored chunk of dataset /x"

    def __post_init__(self) -> None:
        """Its name as it may be shown."""
        set_clean(self, what=clean_text(self.what))


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """One array, column or HDF5 dataset of a file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...] | None = None  # None: stored in one piece
    filters: tuple[str, ...] = ()
    stored_bytes: int | None = None

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        name, dtype = clean_text(self.name), clean_text(self.dtype)
        set_clean(self, name=name, dtype=dtype, filters=clean_texts(self.filters))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What an opened data file says about itself. None: the format does not say."""

    path: str
    format: str  # HDF5, TFRecord, NPY, NPZ, Parquet
    size: int  # bytes on disk
    samples: int | None  # None also where reading stopped at a bound
    sample_bytes: float | None  # mean stored bytes of one sample
    arrays: tuple[ArrayFacts, ...] = ()
    blocks: tuple[Block, ...] = ()
    complete: bool = True  # False: only the first part was looked at


@dataclass(frozen=True, slots=True)
class DataOptions:
    """What the user says of the data of a run."""

    folders: tuple[str, ...] = ()  # local paths of the dataset
    inspect: bool = False  # open the files
    record_bytes: int | None = None
    samples_per_step: int | None = None


@dataclass(frozen=True, slots=True)
class UserData:
    """What no log holds. Keys are paths as the job saw them."""

    record_bytes: int | None = None  # bytes of one sample
    samples_per_step: int | None = None  # of one rank
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes on disk, of files found here
    facts: Mapping[str, FileFacts] = field(default_factory=dict)  # of files opened here
    on_disk: tuple[str, ...] | None = None  # data files here that the job never opened
