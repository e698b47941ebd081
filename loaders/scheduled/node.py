"""What the ranks of one node share: memory, and the plan, each part of it made by one of them.

The memory is an anonymous file (memfd) of the node's first rank, which the others open through
/proc: it has no name that a killed job leaves behind, and the size of /dev/shm does not bound it.

Who holds what is one array per node. The steps of an epoch are made for all ranks of the node by
whoever needs them first, and kept in such a file. The kernel gives the file's lock back when its
holder dies, so a rank that ends leaves nobody waiting.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import LoadersError
from ..ranks.messages import Attempt, Transport
from .plan import Int64Array, Plan
from .steps import RankStep

SLOTS = 2
"""Epochs whose steps a node keeps: the one that is used, and the next."""


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
    # The first rank of the node makes it.
    with Attempt() as made:
        if rank == leader:
            file = os.memfd_create("vanidl_loaders", os.MFD_CLOEXEC)
            os.ftruncate(file, nbytes)
    made.agree(transport)
    # The others open it by that rank's number and descriptor: no name, so nothing is left behind.
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


@dataclass(frozen=True)
class NodePlan:
    """What the ranks of one node know of a plan.

    Attributes:
        plan: Its `owner` lies in memory of the node.
        place: Of every sample its place in the node's buffer; -1: the node does not hold it.
        steps: Of the node's ranks.
    """

    plan: Plan
    place: NDArray[np.int32]
    steps: NodeSteps


def places(plan: Plan, node: int) -> NDArray[np.int32]:
    """Of every sample its place in a node's buffer, by id; -1: the node does not hold it."""
    held = plan.owner == node
    place = np.cumsum(held, dtype=np.int32)
    place[~held] = 0
    place -= 1
    return place


def share_plan(transport: Transport, node_ranks: int, make: Callable[[], Plan]) -> NodePlan:
    """The plan that `make` gives, called by the first of each `node_ranks` ranks.

    Every rank calls it. They have to be those of the plan's nodes, or its places are none.

    Raises:
        LoadersError: `make` raised it on some node: the same on every rank.
        OSError: This one, too.
    """
    rank = transport.world.rank
    leader = rank // node_ranks * node_ranks
    own_plan: Plan | Exception | None = None
    if rank == leader:
        try:
            own_plan = make()
        except (LoadersError, OSError) as error:  # raised below, on every rank
            own_plan = error
    own = own_plan.owner if isinstance(own_plan, Plan) else None
    plans = transport.gather(
        (own_plan.settings, own_plan.order) if isinstance(own_plan, Plan) else own_plan
    )
    for each in plans:
        if isinstance(each, Exception):
            raise each
    settings, order = plans[leader]
    # Two arrays of 32-bit numbers, by sample: its owner, and its place in the node's buffer.
    memory = share_memory(transport, node_ranks, 8 * settings.samples)
    owner, place = np.frombuffer(memory, np.int32).reshape(2, settings.samples)
    if own is not None:
        owner[:] = own
        place[:] = places(Plan(settings, order, own), settings.node(rank))
    transport.gather(None)  # nobody reads it sooner
    owner.flags.writeable = place.flags.writeable = False
    plan = Plan(settings, order, owner)
    files = [share_file(transport, node_ranks, 0) for _ in range(SLOTS)]
    return NodePlan(plan, place, NodeSteps(plan, settings.node(rank), files))


class NodeSteps:
    """The steps of a node's ranks, epoch by epoch: made once, by the rank that comes first.

    A file holds 64-bit words: the epoch + 1, steps, samples of each step over all nodes, bounds of
    the ranks in each step, ids (those that are read are inverted), then where ids come from.

    Args:
        plan: Of all nodes.
        node: This one.
        files: Of this node, one for each of `SLOTS`.
    """

    def __init__(self, plan: Plan, node: int, files: list[int]) -> None:
        self._plan, self._node, self._files = plan, node, files
        self._locks = [threading.Lock() for _ in files]
        weakref.finalize(self, _close, files)

    def of(self, rank: int, epoch: int) -> list[RankStep]:
        """The steps of a rank of this node.

        Raises:
            UsageError: The plan has no such epoch.
        """
        file, lock = self._files[epoch % SLOTS], self._locks[epoch % SLOTS]
        with lock:  # a file's lock does not keep threads of one process apart
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                if _read_words(file)[0] != epoch + 1:
                    self._write_steps(file, epoch)
                return self._read_steps(_read_words(file), rank)
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _write_steps(self, file: int, epoch: int) -> None:
        """Writes the epoch's steps: its number last, so that half of them are none."""
        steps = list(self._plan.steps(epoch, range(self._node, self._node + 1)))
        samples = [step.samples for step in steps]
        bounds = [step.bounds for step in steps]
        # An id that is to be read is complemented: it fits beside the others.
        ids = [np.where(step.load, ~step.ids, step.ids) for step in steps]
        sources = [step.source for step in steps if step.source is not None]
        parts = [np.array(samples, np.int64), *bounds, *ids, *sources]
        os.ftruncate(file, 0)
        os.ftruncate(file, 8 * (2 + sum(map(len, parts))))
        words = _read_words(file)
        np.concatenate(parts, out=words[2:])
        words[:2] = 0, len(steps)
        # Last: a rank that dies before leaves no epoch that looks whole.
        words[0] = epoch + 1

    def _read_steps(self, words: Int64Array, rank: int) -> list[RankStep]:
        settings, steps = self._plan.settings, int(words[1])
        # The words behind the first two: samples of each step, bounds of its ranks, then ids.
        samples, own = words[2 : 2 + steps].tolist(), rank % settings.node_ranks
        bounds, ids = np.split(words[2 + steps :], [steps * (settings.node_ranks + 1)])
        source = None
        if settings.exchange:
            ids, source = ids.reshape(2, -1)
        own_steps = list[RankStep]()
        begin = 0
        for whole, of_step in zip(
            samples, bounds.reshape(-1, settings.node_ranks + 1).tolist(), strict=True
        ):
            # Of each step this rank's uses; an id is complemented where it is to be read.
            at = slice(begin + of_step[own], begin + of_step[own + 1])
            mine, weight = ids[at], (of_step[own + 1] - of_step[own]) * settings.ranks / whole
            of_node = None if source is None else source[at].astype(np.int32)
            load = mine < 0 if of_node is None else (mine < 0) & (of_node == self._node)
            own_steps.append(RankStep(np.where(mine < 0, ~mine, mine), load, weight, of_node))
            begin += of_step[-1]
        return own_steps


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _read_words(file: int) -> Int64Array:
    """What a file holds; 0 where it is empty."""
    if not os.fstat(file).st_size:
        return np.zeros(1, np.int64)
    return np.frombuffer(mmap.mmap(file, 0), np.int64)
