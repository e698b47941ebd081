"""Samples that other nodes send: asked for by a rank, one connection to each other node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from ..data.coalesced import Target
from ..data.pread import ReadTotals
from ..data.samples import SampleSet
from ..errors import InputError, UsageError
from .node import NodeMemory
from .plan_settings import PlanSettings
from .serving import FAILED, GOODBYE, HEADER, HELD, REQUEST, Serving, checksum

Int64Array = NDArray[np.int64]
EXCHANGE_TIMEOUT_S = 60.0
"""Longest wait for another node, where no option says."""


@dataclass
class Sent:
    """What other nodes sent, and what was read instead.

    Attributes:
        hits: Samples from their buffers: no read.
        reads: Samples that they read from storage for this rank, and count.
        nbytes: Of both.
        alone: Samples that this rank read, as the node with them had ended.
    """

    hits: int = 0
    reads: int = 0
    nbytes: int = 0
    alone: int = 0


@dataclass(frozen=True)
class Served:
    """What this process read from storage for other nodes, or to decide on exchanging."""

    loads: int = 0
    reloads: int = 0
    nbytes: int = 0
    requests: int = 0


class Exchange:
    """The other nodes, as one rank sees them.

    Args:
        samples: What they send.
        peers: A connection to each other node.
        timeout_s: Of the connections: a longer silence is an error.
        serving: What answers the others, where this process does.
        measured: What was read from storage to decide on exchanging.
    """

    def __init__(
        self,
        samples: SampleSet,
        peers: Mapping[int, Connection],
        timeout_s: float,
        serving: Serving | None = None,
        measured: ReadTotals | None = None,
    ) -> None:
        self._samples, self._peers, self._timeout_s = samples, dict(peers), timeout_s
        self._locks = {node: threading.Lock() for node in peers}
        self.serving, self.measured = serving, measured or ReadTotals()
        self.sent, self._counting = Sent(), threading.Lock()

    def fetch(
        self,
        epoch: int,
        node: int,
        ids: Int64Array,
        *,
        target: Target,
        read: Callable[[Int64Array, Target], ReadTotals],
    ) -> ReadTotals:
        """Fills the targets of some samples from a node; from storage where that ended in order.

        Returns:
            What this rank read from storage.

        Raises:
            InputError: The node is gone or silent, cannot read a sample, or sent another.
        """
        with self._locks[node]:
            come = self._asked(epoch, node, ids, target)
        left = ids[come:]
        if not len(left):
            return ReadTotals()
        with self._counting:
            self.sent.alone += len(left)
        return read(left, target)

    def served(self) -> Served:
        """What this process read beside its own stage."""
        own = self.measured
        if self.serving is None:
            return Served(nbytes=own.nbytes, requests=own.requests)
        done, again = (each.stats([]) for each in self.serving.counts)
        nbytes, requests = done.nbytes + own.nbytes, done.requests + own.requests
        return Served(done.loads, again.loads, nbytes, requests)

    def close(self) -> None:
        """Ends the connections, and the answers to other nodes."""
        if self.serving is not None:
            self.serving.close()
        for node, lock in self._locks.items():
            with lock:
                self._forget(node)

    def _asked(self, epoch: int, node: int, ids: Int64Array, target: Target) -> int:
        """How many of the ids came."""
        peer, come = self._peers.get(node), 0
        if peer is None:
            return 0
        try:
            if not peer.poll(0):  # before it is asked, it says nothing but goodbye
                with suppress(ConnectionError):  # maybe after that; what it said can be read
                    peer.send_bytes(REQUEST.pack(epoch, len(ids)) + ids.tobytes())
            while come < len(ids) and (content := peer.recv_bytes()) != GOODBYE:
                self._take(node, int(ids[come]), content, target)
                come += 1
        except (OSError, EOFError) as error:
            self._forget(node)
            silent = isinstance(error, BlockingIOError)
            found = f"nothing for {self._timeout_s:g} s" if silent else "that it ended"
            raise InputError(
                f"expected node {node} to send sample {ids[come]}, found {found}: see what its "
                "ranks said, and start again"
            ) from error
        if come < len(ids):
            self._forget(node)
        return come

    def _take(self, node: int, wanted: int, content: bytes, target: Target) -> None:
        """Copies a sample to its target.

        Raises:
            InputError: It is another one, or damaged, or the node could not read it.
        """
        sample, crc, origin = HEADER.unpack_from(content)
        arrays = content[HEADER.size :]
        if origin == FAILED:
            raise InputError(f"node {node}: {arrays.decode()}")
        nbytes = self._samples.sample_nbytes
        if sample != wanted or len(arrays) != nbytes or checksum(wanted, arrays) != crc:
            raise InputError(
                f"expected sample {wanted} of {nbytes} bytes from node {node}, found {sample} of "
                f"{len(arrays)} or a wrong CRC-32C: check the network and memory of that node"
            )
        at = 0
        for each in self._samples.fields:
            row = target(each.name, sample)
            row[...] = np.frombuffer(arrays, each.dtype, row.size, at).reshape(row.shape)
            at += each.nbytes
        with self._counting:
            self.sent.hits += origin == HELD
            self.sent.reads += origin != HELD
            self.sent.nbytes += nbytes

    def _forget(self, node: int) -> None:
        peer = self._peers.pop(node, None)
        if peer is not None:
            peer.close()


@dataclass(frozen=True)
class NodeAccess:
    """What a rank has of its node: memory, and connections to others where nodes exchange."""

    memory: NodeMemory
    exchange: Exchange | None = None


def require_exchange(settings: PlanSettings, exchange: Exchange | None) -> None:
    """Raises UsageError where a plan has nodes exchange and nothing connects them, or reversed."""
    if settings.exchange != (exchange is not None):
        expected = "connected nodes" if settings.exchange else "a plan of nodes that exchange"
        raise UsageError(
            f"expected {expected}, found none: make the plan and the loader with the same "
            "--node-exchange, by `open_loader` where ranks are connected"
        )
