"""The ready loader: each rank gets its block of every sample; P ranks share a sample.

Ids are dealt to groups as DistributedSampler deals them to ranks; `batch` is of a group. A thread
reads ahead what needs no other rank. In `__next__` ranks agree that all have read, then exchange
what is to be exchanged: so a failure on one rank raises on all, in the same step, and leaving an
epoch early never leaves a rank waiting.

What a batch holds: `sample`, the divided arrays as blocks with their halos, all others whole.
A model that trains on blocks sees blocks only: exchanging what convolutions need at the borders
of blocks is the model's own part (DistConv), as is summing over a sample.

With `store`, blocks stay in the memory of the rank that read them (`SlabStore`). A sample is read
from storage once. Later it may be dealt to another group of ranks: then each part of the group that
has it sends its block to the same part of the group that needs it. All follows from the order of
ids, which every rank knows: nobody has to ask.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.order import draw_epoch_order, pad_order
from ..data.samples import Field, SampleSet
from ..errors import InputError, UsageError
from ..loader.batches import BatchMemory
from ..loader.epochs import EpochLoader
from ..loader.loader import Batch, Counts, Loader, Settings, Stats
from ..loader.prefetch import Background
from ..loader.registry import declare_spatial
from ..ranks.messages import Attempt, Message, Transport, launched_transport
from .grid import Division, Sharing
from .layouts import is_mpi_multithreaded
from .reading import JOINT_MODES, READ_MODES, Array, Begun, BlockReader

NAME = "spatial"
HELP = "each rank reads its block of a sample (spatial parallelism, MPI-IO)"
add_arguments = declare_spatial


@dataclass(frozen=True)
class SpatialSettings:
    """What this loader is told beside `Settings`.

    Attributes:
        division: Grid, halo and edges of the divided arrays.
        divide: Names of fields to divide; None: the largest, and those of its shape.
        read_mode: One of `vanidl_loaders.spatial.reading.READ_MODES`.
        store: Keep blocks and exchange them, instead of reading a sample again.
        ahead: Steps read ahead; 0 reads in `__next__`.
    """

    division: Division
    divide: tuple[str, ...] | None = None
    read_mode: str = "auto"
    store: bool = False
    ahead: int = 1

    def __post_init__(self) -> None:
        if self.read_mode not in READ_MODES or self.ahead < 0:
            raise UsageError(
                f"expected a read mode among {', '.join(READ_MODES)} and 0 or more steps ahead, "
                f"found {self.read_mode}, {self.ahead}: correct the options"
            )


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader that the options describe.

    Raises:
        UsageError: The grid does not fit the samples or the ranks.
    """
    return SpatialLoader(samples, settings, spatial_settings(samples, settings, options))


def spatial_settings(
    samples: SampleSet, settings: Settings, options: argparse.Namespace
) -> SpatialSettings:
    """What the options say of dividing and reading."""
    grid = options.grid or default_grid(samples, settings.world.ranks)
    return SpatialSettings(
        Division(grid, options.halo, options.edges),
        tuple(options.divide) if options.divide else None,
        options.io,
        options.slab_store,
        options.slabs_ahead,
    )


def default_grid(samples: SampleSet, ranks: int) -> tuple[int, ...]:
    """All ranks share each sample, along the largest field's second axis (depth behind channels).

    A field of two axes or fewer is divided along its first.
    """
    axes = len(max(samples.fields, key=lambda each: each.nbytes).shape)
    along = 1 if axes > 2 else 0
    return tuple(ranks if axis == along else 1 for axis in range(axes))


@dataclass(frozen=True)
class SpatialStats(Stats):
    """`Stats` of one rank. `loads` and `hits` are samples of which this rank had its part.

    Attributes:
        received: Blocks that came from another rank's store.
        received_nbytes: Bytes of these.
        shares_nbytes: Bytes that came from other ranks of the group, who read them for this one.
        store_nbytes: Bytes of the blocks that this rank keeps.
        chunk_overlap: Filtered chunks that the parts of a sample read, in all / chunks of it:
            1 is none twice. None: no filtered chunks were read.
    """

    received: int = 0
    received_nbytes: int = 0
    shares_nbytes: int = 0
    store_nbytes: int = 0
    chunk_overlap: float | None = None


@dataclass(frozen=True)
class _Step:
    """A step under way: the groups' ids, this rank's batch, and the rows of it by id."""

    dealt: list[list[int]]
    batch: Batch
    rows: dict[int, Block]
    read: list[int]
    begun: Begun


_Reading = Background[_Step] | Generator[_Step, None, None]


class SpatialLoader(EpochLoader):
    """Blocks of one rank, epoch after epoch.

    Args:
        samples: What to load.
        settings: `batch` is a group's; `workers` is not used, a thread reads ahead.
        spatial: How samples are divided and read.
        transport: To the other ranks; None: connected on first use, by what started them.

    Raises:
        UsageError: The grid does not fit the samples or the ranks, or ranks are to exchange
            and cannot.
    """

    def __init__(
        self,
        samples: SampleSet,
        settings: Settings,
        spatial: SpatialSettings,
        transport: Transport | None = None,
    ) -> None:
        # Ids are dealt to groups: the ranks of one share each sample.
        self.sharing = Sharing(settings.world, spatial.division.parts)
        identity = settings.identity(samples)
        identity |= {name: str(value) for name, value in asdict(spatial.division).items()}
        of_groups = self.sharing.of_groups(settings)
        super().__init__(of_groups, Counts(), of_groups.steps(samples), identity)
        self._samples = samples
        if not len(samples):
            raise InputError("expected at least one sample, found none: make the data again")

        # What ranks cannot exchange, or memory cannot hold, is refused before anything is read.
        self._arrays = divide_arrays(samples, spatial.division, spatial.divide)
        check_reach(settings, spatial)
        if spatial.store:
            check_memory(settings, self._arrays, -(-len(samples) // self.sharing.groups))
        self._spatial, self._served, self._shares_nbytes = spatial, Served(), 0
        self._store = SlabStore(self.sharing) if spatial.store else None
        # A transport that was given stays open.
        self._transport, self._own_transport = transport, transport is None
        self._reader: BlockReader | None = None
        self._memory = dict[str, BatchMemory]()

    def _batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        # Connected on first use: under torchrun, whoever trains begins the process group.
        if self._transport is None or self._reader is None:
            self._transport = self._transport or launched_transport(self.sharing.world)
            read_mode = self._spatial.read_mode
            self._reader = BlockReader(self._arrays, self.sharing, self._transport, read_mode)
            of_group = -(-len(self._samples) // self.sharing.groups)
            done = self._reader.measure(0, of_group)
            self._counts.add(nbytes=done.nbytes, requests=done.requests)
        transport = self._transport
        steps = self._read_steps(epoch, start)
        # A thread may only read through MPI where MPI was started for several threads.
        ahead = self._spatial.ahead if not transport.mpi or is_mpi_multithreaded() else 0
        timeout_s = self._settings.read_timeout_s
        reading = Background(steps, ahead + 1, timeout_s) if ahead else steps
        return self._complete_steps(reading, len(self) - start, transport)

    def stats(self) -> SpatialStats:
        """What was read, kept, exchanged and waited for."""
        done = asdict(super().stats())
        return SpatialStats(
            **done,
            received=self._served.received,
            received_nbytes=self._served.received_nbytes,
            shares_nbytes=self._shares_nbytes,
            store_nbytes=self._store.nbytes if self._store else 0,
            chunk_overlap=self._reader.chunk_overlap if self._reader else None,
        )

    def close(self) -> None:
        """Ends the thread and the connection to other ranks."""
        super().close()
        if self._transport is not None and self._own_transport:
            self._transport.close()
            self._transport = None

    # -- local: in the thread ---------------------------------------------------------------

    def _read_steps(self, epoch: int, start: int) -> Generator[_Step, None, None]:
        # Samples of steps before this one are in somebody's store by the time it is used.
        known = self._store.known() if self._store else set[int]()
        for dealt in self._deal_epoch(epoch)[start:]:
            yield self._begin_step(dealt, known)
            if self._store:
                known |= {sample for ids in dealt for sample in ids}

    def _deal_epoch(self, epoch: int) -> list[list[list[int]]]:
        """Step -> group -> ids."""
        settings, groups = self._settings, self.sharing.groups
        drawn = draw_epoch_order(
            len(self._samples), seed=settings.seed, epoch=epoch, shuffle=settings.shuffle
        )
        # A group is what a rank is to DistributedSampler: ids go round the groups.
        order = pad_order(drawn, ranks=groups, batch=settings.batch, drop_last=settings.drop_last)
        size = groups * settings.batch
        steps = [order[a : a + size] for a in range(0, len(order), size)]
        return [[step[group::groups].tolist() for group in range(groups)] for step in steps]

    def _begin_step(self, dealt: list[list[int]], known: set[int]) -> _Step:
        """Reads of a step what no rank has; what others have and exchanges are still to come."""
        assert self._reader is not None
        ids = dealt[self.sharing.group]
        batch, rows = self._open_batch(ids)
        # What is known lies on some rank, and is not read again.
        step = _Step(dealt, batch, rows, [each for each in rows if each not in known], Begun())
        for sample in step.read:
            begun = self._reader.begin(sample, rows[sample])
            step.begun.moved += begun.moved
            step.begun.unfinished += begun.unfinished
        return step

    def _open_batch(self, ids: list[int]) -> tuple[Batch, dict[int, Block]]:
        """A batch to be filled, and its rows by id, arrays on the same memory."""
        assert self._reader is not None
        batch: Batch = {"sample": torch.tensor(ids, dtype=torch.int64)}
        views: dict[str, NDArray[Any]] = {}
        for array in self._reader.arrays:
            name, shape = array.field.name, self._reader.shape(array)
            if name not in self._memory:
                pin = self._settings.pin_memory
                self._memory[name] = BatchMemory(shape, array.dtype.str, pin_memory=pin)
            batch[name], views[name] = self._memory[name].open(len(ids))
        # An id that padding repeats is read into its first row only.
        first = {sample: ids.index(sample) for sample in ids}
        row = partial(_select_row, views)
        return batch, {sample: row(place) for sample, place in first.items()}

    # -- joint: in the training thread --------------------------------------------------------

    def _complete_steps(
        self, reading: _Reading, steps: int, transport: Transport
    ) -> Generator[Batch, None, None]:
        with closing(reading):
            for _ in range(steps):
                # Nobody exchanges before all have read the step.
                with Attempt() as tried:
                    step = next(reading)
                tried.agree(transport)

                # What was read ahead is exchanged here, in the training thread, in the same order
                # on all ranks.
                assert self._reader is not None
                moved = step.begun.moved
                self._shares_nbytes += self._reader.complete(step.begun.unfinished)
                served = Served()
                if self._store:
                    served = self._store.serve(step.dealt, step.rows, transport)
                    self._store.keep(step.dealt, step.rows)
                self._served = Served(
                    self._served.hits + served.hits,
                    self._served.received + served.received,
                    self._served.received_nbytes + served.received_nbytes,
                )
                self._counts.add(
                    loads=len(step.read),
                    hits=served.hits,
                    nbytes=moved.nbytes,
                    requests=moved.requests,
                )

                # The batch, with an id that it holds twice (padding) copied from its first row.
                ids = step.batch["sample"].tolist()
                for place, sample in enumerate(ids):
                    if ids.index(sample) != place:
                        for name, values in step.rows[sample].items():
                            step.batch[name][place] = torch.from_numpy(values)
                yield step.batch


def check_reach(settings: Settings, spatial: SpatialSettings) -> None:
    """Checks that ranks can exchange what these settings have them exchange.

    Raises:
        UsageError: They cannot.
    """
    source, ranks = settings.world.source, settings.world.ranks
    if spatial.read_mode == "independent" and source != "mpi":
        raise UsageError(
            f"expected ranks started by mpiexec for MPI-IO, found {source}: start with mpiexec, "
            "or choose --io auto or posix"
        )
    exchanging = spatial.store or spatial.read_mode in JOINT_MODES
    if exchanging and ranks > 1 and source not in ("mpi", "torch.distributed"):
        raise UsageError(
            f"expected ranks that can exchange blocks, found {ranks} ranks from {source}: start "
            "them with mpiexec or torchrun"
        )


def check_memory(settings: Settings, arrays: Sequence[Array], samples: int) -> None:
    """Checks that a rank may keep its blocks of so many samples: the same on all ranks.

    Raises:
        UsageError: It may not.
    """
    most = samples * sum(each.most_nbytes() for each in arrays)
    if settings.memory_nbytes is not None and most > settings.memory_nbytes:
        raise UsageError(
            f"expected --memory of at least {most} bytes for --slab-store, found "
            f"{settings.memory_nbytes}: raise it, or read blocks in every epoch"
        )


def _select_row(views: Mapping[str, NDArray[Any]], place: int) -> Block:
    """One sample of a batch, on the batch's memory (scalars too)."""
    return {n: view[place : place + 1].reshape(view.shape[1:]) for n, view in views.items()}


def divide_arrays(
    samples: SampleSet, division: Division, divide: tuple[str, ...] | None = None
) -> list[Array]:
    """The arrays of a set of samples, with how each is divided.

    Args:
        samples: In HDF5 files.
        division: Of the largest field.
        divide: Names of the fields to divide; None: the largest, and those of its shape. One
            with fewer axes (labels of a volume without its channels) is divided along those that
            it shares with the largest field.

    Raises:
        UsageError: Samples are images, no such field, or a field that the grid cannot divide.
    """
    if samples.layout == "images":
        raise UsageError("expected samples in HDF5 files, found images: choose another loader")
    largest = max(samples.fields, key=lambda each: each.nbytes)
    names = divide or [each.name for each in samples.fields if each.shape == largest.shape]
    unknown = set(names) - {each.name for each in samples.fields}
    if unknown:
        known = ", ".join(each.name for each in samples.fields)
        raise UsageError(f"expected fields among {known}, found {', '.join(sorted(unknown))}")
    arrays = []
    # Fields that are not divided are read whole by every rank.
    for field in samples.fields:
        own = _divide_field(field, largest, division) if field.name in names else None
        arrays.append(Array(field, own, partial(samples.place, each=field)))
        arrays[-1].window(0)  # raises where the grid does not fit
    return arrays


def _divide_field(field: Field, largest: Field, division: Division) -> Division:
    """The division of a field whose axes are some consecutive axes of the largest one."""
    if field.shape == largest.shape:
        return division
    axes, wanted = len(field.shape), len(largest.shape)
    # Consecutive axes of the same lengths, with every divided axis among them: in one place only.
    fitting = [
        first
        for first in range(wanted - axes + 1)
        if largest.shape[first : first + axes] == field.shape
        and all(n == 1 for n in (*division.grid[:first], *division.grid[first + axes :]))
    ]
    if len(fitting) != 1:
        raise UsageError(
            f"expected a field with the divided axes of {largest.name} {largest.shape} under the "
            f"grid {division.grid}, found {field.name} {field.shape}: leave it whole"
        )
    kept = slice(fitting[0], fitting[0] + axes)
    return Division(division.grid[kept], division.widths[kept], division.edges)


Block = Mapping[str, NDArray[Any]]
"""The arrays of one part of one sample, by name of the field."""


@dataclass(frozen=True)
class Served:
    """What came from stores: blocks of this rank's own, and blocks and bytes of others'."""

    hits: int = 0
    received: int = 0
    received_nbytes: int = 0


class SlabStore:
    """Blocks of one rank, and which group has which sample."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._slabs: dict[int, dict[str, NDArray[Any]]] = {}
        self._owner: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes held by this rank."""
        return sum(array.nbytes for slab in self._slabs.values() for array in slab.values())

    def known(self) -> set[int]:
        """Samples that some group has."""
        return set(self._owner)

    def serve(
        self, dealt: Sequence[Sequence[int]], out: Mapping[int, Block], transport: Transport
    ) -> Served:
        """Fills what this rank needs and some rank has. Every rank calls it.

        Args:
            dealt: The ids of the step, of each group.
            out: Where the blocks of this rank's samples go.
            transport: Carries them.
        """
        own, hits = self._sharing.group, 0
        sends, receives = list[Message](), list[Message]()
        # Every rank knows who holds and who needs what: it lists its own part of the messages.
        for group, ids in enumerate(dealt):
            store = [sample for sample in dict.fromkeys(ids) if sample in self._owner]
            for sample in store:
                owner = self._owner[sample]
                if owner == own == group:
                    hits += 1
                    for name, array in self._slabs[sample].items():
                        out[sample][name][...] = array
                elif owner == own:
                    sends += self._list_messages(group, self._slabs[sample])
                elif group == own:
                    receives += self._list_messages(owner, out[sample])
        transport.start(sends, receives).wait()
        # A block is a message for each of its fields.
        fields = len(next(iter(out.values())))
        nbytes = sum(array.nbytes for _, array in receives)
        return Served(hits, len(receives) // fields, nbytes)

    def keep(self, dealt: Sequence[Sequence[int]], read: Mapping[int, Block]) -> None:
        """Notes who has read what in a step, and keeps a copy of what falls to this rank.

        Where two groups read the same sample in one step, the first keeps it.
        """
        for group, ids in enumerate(dealt):
            for sample in ids:
                # The first group that reads a sample has it from then on.
                if sample in self._owner:
                    continue
                self._owner[sample] = group
                if group == self._sharing.group:
                    self._slabs[sample] = {n: np.array(a) for n, a in read[sample].items()}

    def _list_messages(self, group: int, block: Block) -> list[Message]:
        rank = self._sharing.rank_of(group, self._sharing.part)
        return [(rank, block[name]) for name in sorted(block)]
