"""Whether nodes exchange samples, by measured speeds, and their connections."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from ..data.coalesced import MEASURED_SHARE, RowReads, SampleReads, open_reads
from ..data.pread import ReadTotals
from ..data.samples import SampleSet
from ..errors import UsageError
from ..ranks.agreement import Attempt
from ..ranks.connections import Address, connect, job_token
from ..ranks.messages import Transport
from .buffer import new_memory
from .exchange import Exchange
from .node import NodeMemory
from .plan import Plan
from .plan_settings import PlanSettings
from .serving import Serving
from .shared_plan import places

EXCHANGES = ("auto", "on", "off")
"""auto: where a sample comes from another node faster than from storage."""
MOST_PROBE_NBYTES = 4 << 20
_PROBES, _PROBE_TIMEOUT_S = 3, 60.0


@dataclass(frozen=True)
class Speeds:
    """Seconds of one sample, the slowest from another node and the fastest from storage.

    Attributes:
        network_s: Over all ranks.
        storage_s: Over the nodes.
        measured: What this rank read for it.
    """

    network_s: float
    storage_s: float
    measured: ReadTotals

    @property
    def pays(self) -> bool:
        """True where every node gets samples from others faster than any from storage."""
        return self.network_s < self.storage_s


def exchanges(
    choice: str,
    transport: Transport,
    samples: SampleSet,
    node_ranks: int,
    saved: PlanSettings | None,
) -> tuple[bool, ReadTotals]:
    """Whether nodes exchange samples, the same on every rank, and what was read to find out.

    Args:
        choice: Of `EXCHANGES`.
        transport: Between all ranks; alone where nothing connects them.
        samples: What they would send.
        node_ranks: Ranks of a node.
        saved: The settings of a saved plan, which decide where they are given.

    Raises:
        UsageError: They are to, and are not connected; or the saved plan is another.
    """
    ranks, nothing = transport.world.ranks, ReadTotals()
    if saved is not None and choice not in ("auto", "on" if saved.exchange else "off"):
        raise UsageError(
            f"expected --node-exchange {'on' if saved.exchange else 'off'} for this plan, found "
            f"{choice}: leave the option out, or plan again"
        )
    if choice == "on" and ranks > 1 and not transport.connected:
        raise UsageError(
            "expected connected ranks for --node-exchange on, found none: start them with "
            "torchrun or mpiexec, without --node-buffer no"
        )
    if choice == "off" or not transport.connected or ranks == node_ranks:
        return False, nothing
    if saved is not None:
        return saved.exchange, nothing
    if choice == "on":
        return True, nothing
    speeds = sample_speeds(transport, samples, node_ranks)
    return speeds.pays, speeds.measured


def sample_speeds(transport: Transport, samples: SampleSet, node_ranks: int) -> Speeds:
    """What a sample takes from the next node, and from storage; every rank calls it.

    Raises:
        InputError: A rank cannot read.
    """
    own, read, done = transport.world.rank, np.inf, ReadTotals()
    with Attempt() as tried:
        if own % node_ranks == 0:
            read, done = _storage_s(samples, len(samples) // transport.world.ranks)
    tried.agree(transport)
    every = transport.gather((_network_s(transport, samples.sample_nbytes, node_ranks), read))
    network, storage = zip(*every, strict=True)
    return Speeds(max(network), min(storage), done)


def _network_s(transport: Transport, nbytes: int, node_ranks: int) -> float:
    """Seconds of a sample to the next node and from the one before, all at once; infinite: none."""
    rank, ranks = transport.world.rank, transport.world.ranks
    probe = max(1, min(nbytes, MOST_PROBE_NBYTES))
    outgoing, incoming = np.zeros(probe, np.uint8), np.empty(probe, np.uint8)
    to, source = (rank + node_ranks) % ranks, (rank - node_ranks) % ranks
    seconds = list[float]()
    for _ in range(_PROBES):  # the first connects
        begin = time.perf_counter()
        try:
            transport.start([(to, outgoing)], [(source, incoming)]).wait(_PROBE_TIMEOUT_S)
        except TimeoutError:
            return np.inf
        seconds.append(time.perf_counter() - begin)
    return min(seconds) * max(nbytes, 1) / probe


def _storage_s(samples: SampleSet, share: int) -> tuple[float, ReadTotals]:
    """Seconds of a sample from storage, and what was read for that."""
    reads = open_reads(samples, gap=None, threads=1, share=share)
    try:
        reads.covered(np.empty(0, np.int64))  # measures, where samples are rows
        if reads.speed is not None:
            speed = reads.speed
            return speed.latency_s + samples.sample_nbytes / speed.bytes_per_s, reads.measured
        return _timed(reads, samples, max(1, min(_PROBES, int(share * MEASURED_SHARE))))
    finally:
        reads.close()


def _timed(
    reads: RowReads | SampleReads, samples: SampleSet, probes: int
) -> tuple[float, ReadTotals]:
    ids = np.linspace(0, len(samples) - 1, probes).astype(np.int64)
    rows, seconds, done = new_memory(samples, 1), list[float](), ReadTotals()
    for sample in np.unique(ids):
        begin = time.perf_counter()
        for task in reads.tasks(
            np.array([sample]), np.empty(0, np.int64), lambda name, _: rows[name][0, ...]
        ):
            done += task()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds)), done


@dataclass(frozen=True)
class ExchangeLimits:
    """Reads for other nodes under way at once, and the longest wait for one of them."""

    threads: int
    timeout_s: float


def join(
    transport: Transport,
    samples: SampleSet,
    plan: Plan,
    memory: NodeMemory,
    limits: ExchangeLimits,
    measured: ReadTotals,
) -> Exchange:
    """The connections of this rank to all other nodes; every rank calls it.

    Args:
        transport: Between all ranks.
        samples: What they send.
        plan: Of nodes that exchange.
        memory: Of this rank's node.
        limits: Of what is read and waited for.
        measured: What this rank read to decide on exchanging.

    Raises:
        InputError: A node cannot be reached.
    """
    rank, settings = transport.world.rank, plan.settings
    node, token, serving = settings.node(rank), job_token(transport), None
    with Attempt() as served:
        if rank % settings.node_ranks == 0:
            place = memory.shared.place if memory.shared else places(plan, node)
            own = _of_node(token, node)
            serving = Serving(samples, memory, place, own, limits.threads, limits.timeout_s)
    served.agree(transport)
    listening = transport.gather(serving.address if serving else None)
    peers: Mapping[int, Connection] = {}
    with Attempt() as connected:
        peers = _connected(listening[:: settings.node_ranks], node, token, limits.timeout_s)
    connected.agree(transport)
    return Exchange(samples, peers, limits.timeout_s, serving, measured)


def _connected(
    listening: list[Address], own: int, token: bytes, timeout_s: float
) -> Mapping[int, Connection]:
    others = [node for node in range(len(listening)) if node != own]
    return {n: connect(listening[n], _of_node(token, n), timeout_s) for n in others}


def _of_node(token: bytes, node: int) -> bytes:
    """What another node's door does not open to."""
    return token + node.to_bytes(4, "little")
