"""The ranks that work together, and what they tell each other: through MPI, gloo or not at all.

Called by the training thread only, in the same order on every rank.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .world import World, communicator

if TYPE_CHECKING:
    from mpi4py import MPI

MOST_MESSAGE_NBYTES = 1 << 30
"""Longer messages go in parts: counts of 32 bits end at 2 GiB."""

Message = tuple[int, NDArray[Any]]
"""(rank, contiguous array): sent to it or filled by it."""


class Team(Protocol):
    """All ranks of a job."""

    world: World
    mpi: bool
    """MPI was started on these ranks, so that they can read through MPI-IO."""
    connected: bool
    """Ranks can tell each other anything."""

    def gather(self, value: str) -> list[str]:
        """What every rank gave, by rank."""

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Sends and fills arrays. Between two ranks, in the order in which both name them."""

    def close(self) -> None:
        """Gives back what was opened for it."""


class Unconnected:
    """One process alone, or ranks that know their number and no way to each other."""

    mpi = connected = False

    def __init__(self, world: World) -> None:
        self.world = world

    def gather(self, value: str) -> list[str]:
        """Its own."""
        return [value]

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Nothing: there is nobody."""
        assert not sends
        assert not receives

    def close(self) -> None:
        """Nothing was opened."""


class MPITeam:
    """Ranks that mpiexec started."""

    mpi = connected = True

    def __init__(self, world: World, comm: MPI.Intracomm) -> None:
        self.world, self._comm = world, comm.Dup()

    def gather(self, value: str) -> list[str]:
        """What every rank gave."""
        return list(self._comm.allgather(value))

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Non-blocking messages, then waits for all of them."""
        from mpi4py import MPI

        under_way = [
            self._comm.Irecv([each, MPI.BYTE], source=rank) for rank, each in _parts(receives)
        ]
        under_way += [self._comm.Isend([each, MPI.BYTE], dest=rank) for rank, each in _parts(sends)]
        MPI.Request.Waitall(under_way)

    def close(self) -> None:
        """Frees the communicator."""
        self._comm.Free()


class TorchTeam:
    """Ranks that torchrun started, in a gloo group of their own."""

    mpi, connected = False, True

    def __init__(self, world: World) -> None:
        from torch import distributed

        _begin_process_group(world)
        self.world = world
        self._group = distributed.new_group(backend="gloo")

    def gather(self, value: str) -> list[str]:
        """What every rank gave."""
        from torch import distributed

        values = [""] * self.world.ranks
        distributed.all_gather_object(values, value, group=self._group)
        return values

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Non-blocking messages, then waits for all of them."""
        import torch
        from torch import distributed

        group = self._group
        under_way = [
            distributed.irecv(torch.from_numpy(each), rank, group=group)
            for rank, each in _parts(receives)
        ]
        under_way += [
            distributed.isend(torch.from_numpy(each), rank, group=group)
            for rank, each in _parts(sends)
        ]
        for each in under_way:
            assert each is not None  # this rank is in the group
            each.wait()

    def close(self) -> None:
        """Ends the group of its own, where training has not ended all groups already."""
        from torch import distributed

        if distributed.is_initialized():
            distributed.destroy_process_group(self._group)


def open_team(world: World) -> Team:
    """The team of this process. Every rank calls it, or waits for those who do not.

    Raises:
        MissingError: mpiexec started this process and mpi4py is not installed.
    """
    if world.ranks == 1 and world.source != "mpi":
        return Unconnected(world)
    if world.source == "mpi":
        return MPITeam(world, communicator())
    if world.source == "torch.distributed" or _begun(world):
        return TorchTeam(world)
    return Unconnected(world)


class Attempt:
    """What was tried inside, and whether it failed: ranks agree on it before they go on.

    with Attempt() as tried:
        read()
    tried.agree(team)
    """

    error: Exception | None = None

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None

    def agree(self, team: Team) -> None:
        """Returns where all ranks succeeded; a message to all, so that nobody waits for one.

        Raises:
            InputError: Another rank failed; its number and what it said.
            Exception: What this rank itself failed with.
        """
        own = f"{type(self.error).__name__}: {self.error}" if self.error else ""
        said = team.gather(own)
        if self.error is not None:
            raise self.error
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(said) if text]
        if failed:
            raise InputError(
                f"expected every rank to read its block, found {len(failed)} that failed; "
                + "; ".join(failed[:3])
            )


def _begun(world: World) -> bool:
    """True where torch.distributed was begun with these ranks, whoever numbered them."""
    from torch import distributed

    return distributed.is_initialized() and distributed.get_world_size() == world.ranks


def _begin_process_group(world: World) -> None:
    """Begins torch.distributed, where nobody has: until this process ends.

    A second one with torchrun's store would meet the first one's addresses in it.
    """
    from torch import distributed

    from .process_group import process_group

    if not distributed.is_initialized():
        opened = ExitStack()
        opened.enter_context(process_group(world))
        atexit.register(opened.close)


def _parts(messages: Sequence[Message]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    for rank, array in messages:
        content = array.reshape(-1).view(np.uint8)
        for start in range(0, len(content), MOST_MESSAGE_NBYTES):
            yield rank, content[start : start + MOST_MESSAGE_NBYTES]
