"""Blocks for those who keep their DataLoader: a map-style data set of this rank's blocks.

    transport = launched_transport(World.detect())
    dataset = SlabDataset(files, "counts", Division((1, 4, 1, 1), halo=1), transport)
    loader = DataLoader(dataset, batch_size=1, sampler=sampler)     # num_workers=0

With a transport, every rank asks for the samples of its group in the same order as the others of
the group, and as often as all other ranks: a failure on one rank then raises on all. That needs
the process that holds the connection, so `num_workers` is 0. Without a transport (`part` says
which block) nothing is exchanged, and any number of workers may read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from ..data.samples import Field, Place
from ..errors import InputError, UsageError, require_choice
from ..loader.loader import Counts, Stats
from ..ranks.messages import Alone, Attempt, Transport
from ..ranks.world import World
from .grid import Division, Sharing
from .layouts import RawFile, describe
from .reading import JOINT_MODES, READ_MODES, Array, Begun, BlockReader

MOST_WORKERS = 1024
"""Worker processes whose reads can be counted."""


class SlabDataset(Dataset[torch.Tensor]):
    """This rank's block of one array in each of many files.

    Args:
        files: One a sample: paths (`.npy`, else HDF5), or `RawFile`s. All arrays have the shape
            and type of the first.
        key: Name of the HDF5 dataset; of no meaning for other files.
        division: Grid, halo and edges.
        transport: To the ranks that share samples, P = product of the grid in each group; None:
            alone.
        part: Which block, where there is no transport.
        read_mode: One of `vanidl_loaders.spatial.reading.READ_MODES`.

    Raises:
        UsageError: The grid does not fit the array or the ranks, or neither or both of transport
            and part are given.
        InputError: The first file is missing or damaged.
    """

    def __init__(
        self,
        files: Sequence[str | Path | RawFile],
        key: str,
        division: Division,
        transport: Transport | None = None,
        *,
        part: int | None = None,
        read_mode: str = "auto",
    ) -> None:
        if not files:
            raise InputError("expected at least one file, found none: name some")
        self._files, self._key, self._connected = list(files), key, transport is not None
        self._transport = transport or Alone(World(part or 0, division.parts, 0, 1, "arguments"))
        if (transport is None) == (part is None):
            raise UsageError("expected a transport or a part, found both or neither: give one")
        require_choice("a read mode", read_mode, READ_MODES)
        if read_mode == "independent" and not self._transport.mpi:
            raise UsageError(
                "expected ranks started by mpiexec for MPI-IO, found others: use posix"
            )
        if read_mode in JOINT_MODES and not self._transport.connected:
            raise UsageError(f"expected a transport for {read_mode}, found none: give one")
        # The first file describes all of them; every rank has to be able to read it.
        with Attempt() as tried:
            first = describe(self._source(0))
        tried.agree(self._transport)
        array = Array(Field(key, first.shape, first.dtype.str), division, self._source)
        array.window(0)  # raises where the grid does not fit
        self._array, self._counts = array, Counts(MOST_WORKERS)
        sharing = Sharing(self._transport.world, division.parts)
        self._reader = BlockReader([array], sharing, self._transport, read_mode)

    def __len__(self) -> int:
        """Number of files."""
        return len(self._files)

    def __getitem__(self, sample: int) -> torch.Tensor:
        """The block with its halo, in the stored type and native byte order.

        Raises:
            IndexError: No such file.
            UsageError: Ranks are to exchange, and this is a worker process.
            InputError: The file is missing or damaged, or another rank failed.
        """
        if not 0 <= sample < len(self):
            raise IndexError(f"expected a sample in 0..{len(self) - 1}, found {sample}")
        if self._connected and get_worker_info() is not None:
            raise UsageError(
                "expected num_workers=0, as ranks exchange in the training process, found a "
                "worker: give a part instead of a transport, or no workers"
            )
        # Read alone, agree that all could, then exchange: a failure raises on all ranks.
        out, begun = np.empty(self._reader.shape(self._array), self._array.dtype), Begun()
        with Attempt() as tried:
            begun = self._reader.begin(sample, {self._key: out})
        tried.agree(self._transport)
        self._reader.complete(begun.unfinished)
        self._counts.add(loads=1, nbytes=begun.moved.nbytes, requests=begun.moved.requests)
        return torch.from_numpy(out)

    @property
    def chunk_overlap(self) -> float | None:
        """Filtered chunks that all parts read / chunks; None: no such chunks were seen."""
        return self._reader.chunk_overlap

    def stats(self) -> Stats:
        """What this rank read. Waits are the DataLoader's to tell."""
        return self._counts.stats([])

    def _source(self, sample: int) -> Place | RawFile:
        file = self._files[sample]
        return file if isinstance(file, RawFile) else Place(Path(file), self._key, None)

    def __getstate__(self) -> dict[str, Any]:
        if self._connected:
            raise UsageError(
                "expected num_workers=0 with a transport, found another process: see above"
            )
        return self.__dict__
