"""The process group in which ranks average gradients, whoever started them."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed

from ..errors import LoadersError, UsageError
from .world import World, get_communicator

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
    device = _choose_device(world)
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
        said = str(error).splitlines()[0].split(". This is")[0] if str(error) else ""
        known = isinstance(error, torch.distributed.DistError)
        if world.ranks == 1 or not (known or "gloo" in said.lower()):
            raise
        raise LoadersError(
            f"expected {world.ranks} ranks to train together, found on rank {world.rank} that one "
            f"ended or hangs ({said}): see what that one said, then start again"
        ) from error


def is_same_on_all_ranks(value: int) -> bool:
    """True where every rank of the process group gave the same value; alone: true."""
    if not torch.distributed.is_initialized():
        return True
    values: list[int] = [0] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return len(set(values)) == 1


def _choose_device(world: World) -> torch.device:
    if torch.cuda.is_available() and torch.cuda.device_count() >= world.local_ranks:
        torch.cuda.set_device(world.local_rank)
        return torch.device("cuda", world.local_rank)
    return torch.device("cpu")


def _find_address(world: World) -> str:
    if world.source == "mpi":
        own = _free_address() if world.rank == 0 else None
        return f"tcp://{get_communicator().bcast(own, root=0)}"
    if "MASTER_ADDR" not in os.environ:
        raise UsageError(
            f"expected the address of rank 0 for {world.ranks} ranks, found none: start them with "
            "torchrun or mpiexec, or set MASTER_ADDR and MASTER_PORT"
        )
    return "env://"


def _free_address() -> str:
    """This host's name and a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{socket.gethostname()}:{probe.getsockname()[1]}"
