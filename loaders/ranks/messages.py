"""Messages between ranks: MPI, torch.distributed (gloo, nccl), or none for a rank alone.

Last comes the process group of torch.distributed, in which ranks average gradients, too.

All peers are known, so receives name their source. Nothing is probed, no rank waits at a barrier.
Ranks agree that nobody failed before they go on (`Attempt`), so that nobody waits for a rank that
did.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray

from ..errors import Caught, InputError, LoadersError, MissingError, UsageError, require_choice
from .world import World, get_communicator

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
Bytes = NDArray[np.uint8]
Message = tuple[int, NDArray[Any]]
"""(rank, contiguous array): sent to that rank, or filled by it."""
BACKENDS = ("auto", "mpi", "gloo", "nccl")
MOST_TAG = 32_768
"""The MPI standard promises tags below that. Messages of one pair keep their order anyway."""
MOST_MESSAGE_NBYTES = 1 << 30
"""Longer messages are sent in parts: counts of 32 bits end at 2 GiB."""
SHORT_S, LONG_S = 20e-6, 1e-3
"""Pause between two tests of the same requests: the first, and the longest."""


class Pending(Protocol):
    """Messages under way."""

    def wait(self, timeout_s: float | None = None) -> None:
        """Returns when all are sent and received.

        Args:
            timeout_s: None: no limit, and no pause between tests: lowest latency.

        Raises:
            TimeoutError: They are not within that time, or a peer is gone.
        """


class Transport(Protocol):
    """Messages with other ranks. Calls come from one thread at a time."""

    world: World
    mpi: bool
    """MPI was started on these ranks, so that they can read through MPI-IO."""
    connected: bool
    """Ranks can send messages to each other."""

    def start(self, sends: Sequence[Message], receives: Sequence[Message], tag: int = 0) -> Pending:
        """Begins to send and to fill arrays, and returns at once.

        Messages of one pair of ranks and one tag keep the order in which both list them.
        """

    def gather(self, value: object) -> list[Any]:
        """The values of all ranks, by rank. Every rank has to call it."""

    def close(self) -> None:
        """Frees what was opened. Every rank has to call it, if any does."""


class Alone:
    """One process alone, or ranks that know their number and have no connection."""

    mpi = connected = False

    def __init__(self, world: World) -> None:
        self.world = world

    def start(self, sends: Sequence[Message], receives: Sequence[Message], tag: int = 0) -> Pending:
        """Nothing is under way: the only rank has everything.

        Raises:
            LoadersError: There are messages.
        """
        if sends or receives:
            raise LoadersError(
                f"expected no message without other ranks, found {len(sends)} to send and "
                f"{len(receives)} to receive as item {tag}: report this"
            )
        return _MPIPending([])

    def gather(self, value: object) -> list[Any]:
        """The own value."""
        return [value]

    def close(self) -> None:
        """Nothing was opened."""


class MPITransport:
    """Typed, non-blocking messages in a communicator of their own."""

    mpi = connected = True

    def __init__(self, world: World) -> None:
        comm = get_communicator()
        found = comm.Get_rank(), comm.Get_size()
        if found != (world.rank, world.ranks):
            raise UsageError(
                f"expected MPI's rank {world.rank} of {world.ranks}, found {found[0]} of "
                f"{found[1]}: start the ranks with mpiexec, or use --exchange-backend gloo"
            )
        self.world, self._comm = world, comm.Dup()

    def start(self, sends: Sequence[Message], receives: Sequence[Message], tag: int = 0) -> Pending:
        """Irecv and Isend of bytes."""
        from mpi4py import MPI

        tag, comm = tag % MOST_TAG, self._comm
        requests = [
            comm.Irecv([each, MPI.BYTE], source=rank, tag=tag)
            for rank, each in _split_messages(receives)
        ]
        requests += [
            comm.Isend([each, MPI.BYTE], dest=rank, tag=tag)
            for rank, each in _split_messages(sends)
        ]
        return _MPIPending(requests)

    def gather(self, value: object) -> list[Any]:
        """The values of all ranks, by rank."""
        return list(self._comm.allgather(value))

    def close(self) -> None:
        """Frees the communicator, which is collective."""
        self._comm.Free()


class _MPIPending:
    """MPI requests; testing them also advances all others of this process."""

    def __init__(self, requests: list[MPI.Request]) -> None:
        self._requests = requests

    def wait(self, timeout_s: float | None = None) -> None:
        """With a limit, tests with growing pauses that leave the processor to training."""
        if not self._requests:
            return
        from mpi4py import MPI

        if timeout_s is None:
            # Waiting without a limit is left to the library, which answers quickest.
            MPI.Request.Waitall(self._requests)
            return
        end, pause_s = time.monotonic() + timeout_s, SHORT_S
        while not MPI.Request.Testall(self._requests):
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONG_S)


class TorchTransport:
    """Point-to-point messages of torch.distributed in a process group of their own.

    Args:
        world: Ranks; the default process group is begun where there is none.
        backend: `gloo` sends from memory; `nccl` through the memory of this rank's GPU.
    """

    mpi, connected = False, True

    def __init__(self, world: World, backend: str = "gloo") -> None:
        begin_process_group(world)
        # Where messages lie. The GPU by its number: a thread has a current device of its own, the
        # first one at its start.
        self.world, self._device = world, torch.device("cpu")
        if backend == "nccl":
            self._device = torch.device("cuda", torch.cuda.current_device())
        self._group = torch.distributed.new_group(backend=backend)

    def start(self, sends: Sequence[Message], receives: Sequence[Message], tag: int = 0) -> Pending:
        """One irecv or isend for each part. With nccl, what is sent is copied to the GPU first."""
        # Receives first, so that what comes finds its place.
        arrays = [each for _, each in _split_messages(receives)]
        incoming = [self._landing(torch.from_numpy(each)) for each in arrays]
        peers = [rank for rank, _ in _split_messages(receives)]
        p2p, group, tag = torch.distributed.P2POp, self._group, tag % MOST_TAG
        operations = [
            p2p(torch.distributed.irecv, tensor, rank, group=group, tag=tag)
            for rank, tensor in zip(peers, incoming, strict=True)
        ]
        operations += [
            p2p(torch.distributed.isend, self._outgoing(each), rank, group=group, tag=tag)
            for rank, each in _split_messages(sends)
        ]
        return _TorchPending(operations, arrays)

    def gather(self, value: object) -> list[Any]:
        """The values of all ranks, by rank."""
        values: list[Any] = [None] * self.world.ranks
        torch.distributed.all_gather_object(values, value, group=self._group)
        return values

    def close(self) -> None:
        """Ends this group, unless training has ended all groups already."""
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group(self._group)

    def _landing(self, array: torch.Tensor) -> torch.Tensor:
        on_device = self._device.type != "cpu"
        return torch.empty_like(array, device=self._device) if on_device else array

    def _outgoing(self, array: Bytes) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


class _TorchPending:
    """Works of torch.distributed; the tensors live as long as it does."""

    def __init__(
        self, operations: list[torch.distributed.P2POp], incoming: Sequence[Bytes]
    ) -> None:
        self._operations, self._incoming = operations, incoming
        begin = torch.distributed.batch_isend_irecv
        self._works: Sequence[Any] = begin(operations) if operations else []

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits for all; what came to a GPU is copied to memory."""
        if timeout_s is None:
            for work in self._works:
                work.wait()
        else:
            end_s = time.monotonic() + timeout_s
            try:
                for work in self._works:
                    work.wait(timeout=timedelta(seconds=max(end_s - time.monotonic(), 1e-3)))
            except RuntimeError as error:
                raise TimeoutError from error

        # From the GPU to where it is waited for.
        for operation, array in zip(self._operations, self._incoming, strict=False):
            if operation.tensor.device.type != "cpu":
                torch.from_numpy(array).copy_(operation.tensor)


def gather_values(transport: Transport, value: T, timeout_s: float) -> list[T]:
    """The values of all ranks, by rank; every rank has to call it, before messages of its own.

    In each of log2(ranks) rounds a rank sends all that it knows to the one 2^round behind it.

    Raises:
        LoadersError: A rank that this one waits for said nothing within that time.
    """
    rank, ranks = transport.world.rank, transport.world.ranks
    values: dict[int, T] = {rank: value}
    away = 1
    # All-gather in log2(ranks) rounds (Bruck et al. 1997): what is known doubles in each.
    while away < ranks:
        # The length first, as nobody knows how much the others know.
        to, source = (rank + away) % ranks, (rank - away) % ranks
        content = np.frombuffer(
            bytearray(pickle.dumps(values)), np.uint8
        )  # PyTorch wants it writable
        length, coming = np.array([len(content)]), np.zeros(1, np.int64)
        try:
            transport.start([(to, length)], [(source, coming)]).wait(timeout_s)
            held = np.empty(int(coming[0]), np.uint8)
            transport.start([(to, content)], [(source, held)]).wait(timeout_s)
        except TimeoutError as error:
            asked = " and ".join(f"rank {each}" for each in sorted({source, to}))
            raise LoadersError(
                f"expected {asked} to answer within {timeout_s:.3g} s, found that one ended or is "
                "slow: see what it said, or raise --exchange-timeout-s"
            ) from error
        values |= pickle.loads(held.tobytes())
        away *= 2
    return [values[each] for each in range(ranks)]


def open_transport(world: World, backend: str = "auto") -> Transport:
    """The transport of ranks that are to exchange from a second thread. Every rank calls it.

    Args:
        world: Ranks.
        backend: `auto` is MPI where mpiexec started the ranks, else gloo.

    Raises:
        UsageError: No such backend, other ranks in MPI, or nobody gave the ranks' addresses.
        MissingError: mpi4py is missing, MPI allows no calls from a second thread, or for nccl a
            GPU is missing.
    """
    # None for a rank alone; else the one asked for, or that by which ranks were started.
    require_choice("a backend", backend, BACKENDS)
    if world.ranks == 1:
        return Alone(world)
    if backend == "nccl" and not torch.cuda.is_available():
        raise MissingError(
            "expected a CUDA device for nccl, found none: use --exchange-backend gloo"
        )
    if backend == "mpi" or (backend == "auto" and world.source == "mpi"):
        _require_threads()
        return MPITransport(world)
    return TorchTransport(world, "gloo" if backend == "auto" else backend)


def _require_threads() -> None:
    """Raises MissingError where MPI was not started for calls of a second thread, which sends."""
    get_communicator()  # says what to install where mpi4py is missing
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise MissingError(
            "expected an MPI with THREAD_MULTIPLE, found less: use --exchange-backend gloo"
        )


def launched_transport(world: World) -> Transport:
    """The transport of what started this process; alone where nothing connects the ranks.

    Every rank calls it, or waits for those who do not. One rank of mpiexec has MPI, too.

    Raises:
        MissingError: mpiexec started this process and mpi4py is not installed.
    """
    if world.source == "mpi":
        return MPITransport(world)
    connected = world.source == "torch.distributed" or is_begun(world)
    return TorchTransport(world) if world.ranks > 1 and connected else Alone(world)


def _split_messages(messages: Sequence[Message]) -> Iterator[tuple[int, Bytes]]:
    for rank, array in messages:
        content = array.reshape(-1).view(np.uint8)
        for start in range(0, len(content), MOST_MESSAGE_NBYTES):
            yield rank, content[start : start + MOST_MESSAGE_NBYTES]


class Attempt(Caught):
    """What was tried inside, and whether it failed.

    with Attempt() as reading:
        read()
    reading.agree(transport)
    """

    KINDS = Exception

    def agree(self, transport: Transport) -> None:
        """Checks that all ranks succeeded; one message to all. Every rank has to call it.

        Raises:
            InputError: Another rank failed; its number and its message.
            Exception: What this rank itself failed with.
        """
        self._require_all(transport.gather(self._describe()))

    def agree_within(self, transport: Transport, value: T, timeout_s: float) -> list[T]:
        """The values of all ranks, by rank, where all succeeded; otherwise as `agree`.

        Raises:
            LoadersError: A rank said nothing within that time.
        """
        reports = gather_values(transport, (self._describe(), value), timeout_s)
        self._require_all([outcome for outcome, _ in reports])
        return [value for _, value in reports]

    def _describe(self) -> str:
        return f"{type(self.error).__name__}: {self.error}" if self.error else ""

    def _require_all(self, outcomes: Sequence[str]) -> None:
        if self.error is not None:
            raise self.error
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(outcomes) if text]
        if failed:
            raise InputError(
                f"expected every rank to read its samples, found {len(failed)} that failed; "
                + "; ".join(failed[:3])
            )


# The process group in which ranks average gradients, whoever started them.

_until_exit = ExitStack()
atexit.register(_until_exit.close)


@contextmanager
def process_group(world: World) -> Iterator[torch.device]:
    """The device of this rank; inside, torch.distributed is initialised if there are several.

    NCCL where every rank has a CUDA device, gloo otherwise. Ranks that mpiexec started agree on
    an address through MPI; torchrun's ranks have theirs in the environment.

    Raises:
        UsageError: Several ranks from arguments, and nobody said where rank 0 listens.
    """
    # NCCL needs a device for each rank of the node.
    device = torch.device("cpu")
    if torch.cuda.is_available() and torch.cuda.device_count() >= world.local_ranks:
        torch.cuda.set_device(world.local_rank)
        device = torch.device("cuda", world.local_rank)
    # Whoever made the group ends it.
    if world.ranks == 1 or torch.distributed.is_initialized():
        yield device
        return
    torch.distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=_find_address(world),
        rank=world.rank,
        world_size=world.ranks,
    )
    try:
        yield device
    finally:
        torch.distributed.destroy_process_group()


def begin_process_group(world: World) -> None:
    """Begins torch.distributed, where nobody has: until this process ends.

    A second group with torchrun's store would find the addresses of the first in it.
    """
    _until_exit.enter_context(process_group(world))


def is_begun(world: World) -> bool:
    """True where torch.distributed was begun with these ranks, whoever numbered them."""
    distributed = torch.distributed
    return distributed.is_initialized() and distributed.get_world_size() == world.ranks


@contextmanager
def name_lost_ranks(world: World) -> Iterator[None]:
    """Raises LoadersError instead of what gloo, nccl or a store says when another rank is gone."""
    try:
        yield
    except RuntimeError as error:
        # gloo goes on with advice and a picture.
        sentence = str(error).splitlines()[0].split(". This is")[0] if str(error) else ""
        known = isinstance(error, torch.distributed.DistError)
        if world.ranks == 1 or not (known or "gloo" in sentence.lower()):
            raise
        raise LoadersError(
            f"expected {world.ranks} ranks to train together, found on rank {world.rank} that one "
            f"ended or hangs ({sentence}): see what that one said, then start again"
        ) from error


def is_same_on_all_ranks(value: int) -> bool:
    """True where every rank of the process group gave the same value; alone: true."""
    if not torch.distributed.is_initialized():
        return True
    values: list[int] = [0] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return len(set(values)) == 1


def _find_address(world: World) -> str:
    if world.source == "mpi":
        # Nobody gave an address to ranks of mpiexec: rank 0 offers one through MPI.
        own = None
        if world.rank == 0:
            with socket.socket() as probe:
                probe.bind(("", 0))  # a port that is free now
                own = f"{socket.gethostname()}:{probe.getsockname()[1]}"
        return f"tcp://{get_communicator().bcast(own, root=0)}"
    if "MASTER_ADDR" not in os.environ:
        raise UsageError(
            f"expected the address of rank 0 for {world.ranks} ranks, found none: start them with "
            "torchrun or mpiexec, or set MASTER_ADDR and MASTER_PORT"
        )
    return "env://"
