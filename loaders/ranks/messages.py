"""How messages travel between ranks: MPI, or torch.distributed (gloo, nccl); nothing alone.

All sources are known, so receives name them. Nothing is probed, no rank waits at a barrier.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray

from ..errors import LoadersError, MissingError, UsageError
from .process_group import process_group
from .world import World, communicator

if TYPE_CHECKING:
    from mpi4py import MPI

Bytes = NDArray[np.uint8]
BACKENDS = ("auto", "mpi", "gloo", "nccl")
MOST_TAG = 32_768
"""The MPI standard promises tags below that. Messages of one pair keep their order anyway."""
SHORT_S, LONG_S = 20e-6, 1e-3
"""Pause between two looks at requests: the first, and the longest."""


# torchrun's ranks cannot find each other a second time: a default group that was made here stays.
_LASTING = ExitStack()
atexit.register(_LASTING.close)


@dataclass(frozen=True)
class Swap:
    """One item of a rank: what it sends to whom, which sample it receives from whom, where to."""

    item: int
    target: int
    outgoing: Bytes
    source: int
    incoming: Bytes
    gets: int

    @property
    def nbytes(self) -> int:
        """Bytes under way, both directions."""
        return self.outgoing.nbytes + self.incoming.nbytes


class Flight(Protocol):
    """A swap under way."""

    def wait(self, timeout_s: float) -> None:
        """Returns when both messages are through.

        Raises:
            LoadersError: They are not within that time, or the peer is gone.
        """


class Transport(Protocol):
    """Swaps with other ranks. Calls come from one thread at a time."""

    rank: int
    ranks: int

    def start(self, swap: Swap) -> Flight:
        """Begins a swap and returns at once."""

    def gather(self, value: object) -> list[Any]:
        """The values of all ranks, by rank. Every rank has to call it."""

    def close(self) -> None:
        """Gives up what it holds; nothing is waited for."""


def late(swap: Swap, timeout_s: float) -> LoadersError:
    """The error of a swap that did not end."""
    return LoadersError(
        f"expected item {swap.item} from rank {swap.source} and to rank {swap.target} within "
        f"{timeout_s:g} s, found none: that rank ended or is slow; raise --exchange-timeout-s"
    )


class Alone:
    """One rank: it sends to nobody."""

    rank, ranks = 0, 1

    def start(self, swap: Swap) -> Flight:
        """Never called: the only rank keeps everything."""
        raise LoadersError(f"expected no item with one rank, found item {swap.item}: report this")

    def gather(self, value: object) -> list[Any]:
        """The own value."""
        return [value]

    def close(self) -> None:
        """Nothing to give up."""


class MPITransport:
    """Typed, non-blocking messages in a communicator of their own.

    Raises:
        MissingError: mpi4py is missing, or MPI allows no calls from a second thread.
    """

    def __init__(self) -> None:
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise MissingError(
                "expected an MPI with THREAD_MULTIPLE, found less: use --exchange-backend gloo"
            )
        self._bytes, self._test = MPI.BYTE, MPI.Request.Testall
        self._comm = communicator().Dup()
        self.rank, self.ranks = self._comm.Get_rank(), self._comm.Get_size()

    def start(self, swap: Swap) -> Flight:
        """Isend and Irecv of bytes."""
        tag, comm = swap.item % MOST_TAG, self._comm
        requests = [
            comm.Irecv([swap.incoming, self._bytes], source=swap.source, tag=tag),
            comm.Isend([swap.outgoing, self._bytes], dest=swap.target, tag=tag),
        ]
        return _MPIFlight(swap, requests, self._test)

    def gather(self, value: object) -> list[Any]:
        """The values of all ranks, by rank."""
        return list(self._comm.allgather(value))

    def close(self) -> None:
        """Nothing: to free a communicator is collective, and a rank may be gone."""


class _MPIFlight:
    """Two MPI requests; looking at them also moves all others of this process."""

    def __init__(
        self, swap: Swap, requests: list[MPI.Request], test: Callable[[list[MPI.Request]], bool]
    ) -> None:
        self._swap, self._requests, self._test = swap, requests, test

    def wait(self, timeout_s: float) -> None:
        """Looks again and again, with growing pauses that leave the processor to training."""
        end, pause_s = time.monotonic() + timeout_s, SHORT_S
        while not self._test(self._requests):
            if time.monotonic() > end:
                raise late(self._swap, timeout_s)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONG_S)


class TorchTransport:
    """Point-to-point messages of torch.distributed in a process group of their own.

    Args:
        world: Ranks; the default process group is made where there is none.
        backend: `gloo` sends from memory; `nccl` through the memory of this rank's GPU.
    """

    def __init__(self, world: World, backend: str = "gloo") -> None:
        _LASTING.enter_context(process_group(world))
        self._device = _device(backend)
        self._group = torch.distributed.new_group(backend=backend)
        self.rank, self.ranks = world.rank, world.ranks

    def start(self, swap: Swap) -> Flight:
        """One isend and one irecv. With nccl, the message is copied to the GPU first."""
        outgoing = torch.from_numpy(swap.outgoing).to(self._device)
        incoming = torch.from_numpy(swap.incoming)
        if self._device.type != "cpu":
            incoming = torch.empty_like(incoming, device=self._device)
        works = torch.distributed.batch_isend_irecv(
            [
                self._half(torch.distributed.irecv, incoming, swap.source, swap.item),
                self._half(torch.distributed.isend, outgoing, swap.target, swap.item),
            ]
        )
        return _TorchFlight(swap, works, incoming)

    def _half(
        self, what: Callable[..., Any], tensor: torch.Tensor, peer: int, item: int
    ) -> torch.distributed.P2POp:
        tag = item % MOST_TAG
        return torch.distributed.P2POp(what, tensor, peer, group=self._group, tag=tag)

    def gather(self, value: object) -> list[Any]:
        """The values of all ranks, by rank."""
        values: list[Any] = [None] * self.ranks
        torch.distributed.all_gather_object(values, value, group=self._group)
        return values

    def close(self) -> None:
        """Nothing: the group lasts as long as the process, see `_LASTING`."""


class _TorchFlight:
    """Two works of torch.distributed; the tensors live as long as it does."""

    def __init__(self, swap: Swap, works: Sequence[Any], incoming: torch.Tensor) -> None:
        self._swap, self._works, self._incoming = swap, works, incoming

    def wait(self, timeout_s: float) -> None:
        """Waits for both; what came to a GPU is copied to memory."""
        end = time.monotonic() + timeout_s
        try:
            for work in self._works:
                left_s = max(end - time.monotonic(), 1e-3)
                work.wait(timeout=timedelta(seconds=left_s))
        except RuntimeError as error:
            raise late(self._swap, timeout_s) from error
        if self._incoming.device.type != "cpu":
            torch.from_numpy(self._swap.incoming).copy_(self._incoming)


def _device(backend: str) -> torch.device:
    """Where messages of the backend lie.

    The GPU by its number: a thread has a current device of its own, the first one at its start.
    """
    if backend != "nccl":
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def _of_world(transport: Transport, world: World) -> Transport:
    if (transport.rank, transport.ranks) != (world.rank, world.ranks):
        raise UsageError(
            f"expected MPI's rank {world.rank} of {world.ranks}, found {transport.rank} of "
            f"{transport.ranks}: start the ranks with mpiexec, or use --exchange-backend gloo"
        )
    return transport


def open_transport(world: World, backend: str = "auto") -> Transport:
    """The transport for a world. Every rank has to call it.

    Args:
        world: Ranks.
        backend: `auto` is MPI where mpiexec started the ranks, else gloo.

    Raises:
        UsageError: No such backend, or ranks whose addresses nobody said.
        MissingError: mpi4py is missing, or for nccl a GPU.
    """
    if backend not in BACKENDS:
        known = ", ".join(BACKENDS)
        raise UsageError(f"expected a backend among {known}, found {backend}: choose one")
    if world.ranks == 1:
        return Alone()
    if backend == "nccl" and not torch.cuda.is_available():
        raise MissingError(
            "expected a CUDA device for nccl, found none: use --exchange-backend gloo"
        )
    if backend == "mpi" or (backend == "auto" and world.source == "mpi"):
        return _of_world(MPITransport(), world)
    return TorchTransport(world, "gloo" if backend == "auto" else backend)
