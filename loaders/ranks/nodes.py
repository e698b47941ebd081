"""Ranks of one node: who they are, and memory that they share.

The memory is an anonymous file (memfd) of the node's first rank, which the others open through
/proc: it has no name that a killed job leaves behind, and the size of /dev/shm does not bound it.
"""

from __future__ import annotations

import mmap
import os
from itertools import groupby
from pathlib import Path

from .messages import Attempt, Transport


def count_node_ranks(transport: Transport) -> int:
    """How many consecutive ranks share each node; 1 where nodes have unequal numbers of them.

    Every rank calls it, and all get the same answer.
    """
    nodes = transport.gather(_identify_node())
    runs = [len(list(of_node)) for _, of_node in groupby(nodes)]
    return runs[0] if len(set(runs)) == 1 and len(set(nodes)) == len(runs) else 1


def share_memory(transport: Transport, node_ranks: int, nbytes: int) -> mmap.mmap:
    """Zeroed memory of so many bytes for each `node_ranks` consecutive ranks. Every rank calls it.

    Its pages are taken when they are first written.

    Raises:
        InputError: Another rank failed.
        OSError: This rank did.
    """
    file = share_file(transport, node_ranks, nbytes)
    memory = mmap.mmap(file, nbytes)
    os.close(file)
    return memory


def share_file(transport: Transport, node_ranks: int, nbytes: int) -> int:
    """The descriptor of a file that has no name, for each `node_ranks` consecutive ranks.

    Each rank opens it for itself, so a lock on it keeps them apart. Every rank calls it.

    Raises:
        InputError: Another rank failed.
        OSError: This rank did.
    """
    rank = transport.world.rank
    leader, file = rank // node_ranks * node_ranks, -1
    with Attempt() as made:
        if rank == leader:
            file = os.memfd_create("vanidl_loaders", os.MFD_CLOEXEC)
            os.ftruncate(file, nbytes)
    made.agree(transport)
    offered = transport.gather((os.getpid(), file))
    with Attempt() as opened:
        if rank != leader:
            pid, of_leader = offered[leader]
            file = os.open(f"/proc/{pid}/fd/{of_leader}", os.O_RDWR | os.O_CLOEXEC)
    opened.agree(transport)
    return file


def _identify_node() -> tuple[str, ...]:
    """Equal for processes that can open each other's files through /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return boot, str(Path("/proc/self/ns/pid").readlink()), str(os.geteuid())
    except OSError:
        return (f"{os.uname().nodename} {os.getpid()}",)
