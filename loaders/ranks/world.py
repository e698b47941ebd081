"""Who am I: which of how many ranks, on which place of its host.

Asked in this order: arguments, torch.distributed (initialised, or started by torchrun), MPI
(started by mpiexec, or mpi4py already in use), else one process alone. mpi4py is imported only
when MPI started the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import MissingError, UsageError

if TYPE_CHECKING:
    from mpi4py import MPI

MPI_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_MPI_LOCAL = (
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)


@dataclass(frozen=True)
class World:
    """Place of this process among the ranks of a job.

    Attributes:
        rank: 0 <= rank < ranks.
        ranks: Processes that train together.
        local_rank: Place on this host, 0 <= local_rank < local_ranks.
        local_ranks: Ranks on this host; equal to `ranks` where nobody said.
        source: `arguments`, `torch.distributed`, `mpi` or `single`.
    """

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1
    source: str = "single"

    def __post_init__(self) -> None:
        if not (0 <= self.rank < self.ranks and 0 <= self.local_rank < self.local_ranks):
            raise UsageError(
                f"expected 0 <= rank < ranks, found rank {self.rank} of {self.ranks} "
                f"(on this host {self.local_rank} of {self.local_ranks}): correct the arguments"
            )

    @classmethod
    def detect(cls, *, rank: int | None = None, ranks: int | None = None) -> World:
        """The world of this process.

        Args:
            rank: With `ranks`, overrides what the launcher said.
            ranks: See `rank`.

        Raises:
            UsageError: Only one of the two was given, or rank is not below ranks.
            MissingError: mpiexec started this process and mpi4py is not installed.
        """
        if (rank is None) != (ranks is None):
            raise UsageError("expected rank and ranks together, found one of them: give both")
        if rank is not None and ranks is not None:
            return cls(rank, ranks, rank, ranks, "arguments")
        return _read_torch_world(os.environ) or _read_mpi_world(os.environ) or cls()


def get_communicator() -> MPI.Intracomm:
    """MPI's COMM_WORLD, imported on first use.

    Raises:
        MissingError: mpi4py is not installed.
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingError(
            f"expected mpi4py and an MPI library, found: {error}; "
            "pip install 'vanidl-io[mpi]' brings both (or use the system's MPI with mpi4py)"
        ) from error
    return MPI.COMM_WORLD


def abort_on_error() -> None:
    """Has an error that nobody catches end all ranks of an MPI job, which would wait for this one.

    What `python -m mpi4py` does, for programs that only turn out to be ranks of MPI.
    """
    shown = sys.excepthook

    def abort(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        shown(kind, error, trace)
        if "mpi4py.MPI" in sys.modules:
            from mpi4py.run import set_abort_status

            set_abort_status(1)

    sys.excepthook = abort


def _read_torch_world(environment: Mapping[str, str]) -> World | None:
    if "torch" in sys.modules:
        import torch.distributed

        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
            return World(
                rank, ranks, *_find_local_place(environment, rank, ranks), "torch.distributed"
            )
    if "TORCHELASTIC_RUN_ID" in environment:  # torchrun, before init_process_group
        rank, ranks = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        return World(rank, ranks, *_find_local_place(environment, rank, ranks), "torch.distributed")
    return None


def _read_mpi_world(environment: Mapping[str, str]) -> World | None:
    if not any(name in environment for name in MPI_RANK) and "mpi4py.MPI" not in sys.modules:
        return None
    world = get_communicator()
    rank, ranks = world.Get_rank(), world.Get_size()
    return World(rank, ranks, *_find_local_place(environment, rank, ranks), "mpi")


def _find_local_place(environment: Mapping[str, str], rank: int, ranks: int) -> tuple[int, int]:
    """Place on this host as the launcher said it; else all ranks are taken to be on one host."""
    for own, of in (("LOCAL_RANK", "LOCAL_WORLD_SIZE"), *_MPI_LOCAL):
        if own in environment and of in environment:
            return int(environment[own]), int(environment[of])
    return rank, ranks
