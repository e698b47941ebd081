"""Samples that nodes send each other, one connection from a rank to each other node.

Whether they do is decided by measured speeds (`decide_exchange`), and ranks connect
(`connect_nodes`). `Exchange` asks the other nodes. `Serving` answers them, in the first process of
a node: with samples of its buffer, and those that it is to read for them. A place of the buffer is
written once and never given to another sample, so what is marked filled is valid for the whole run
and needs neither versions nor locks. What is not filled is read from storage then, straight into
its place. A sample that no buffer holds is read and sent.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ..data.coalesce import MEASURED_SHARE, Target, open_reads
from ..data.pool import ReadThreads
from ..data.pread import ReadTotals
from ..data.samples import SampleSet
from ..errors import InputError, LoadersError, UsageError
from ..loader.loader import Counts
from ..ranks.messages import Attempt, Transport
from .buffer import Memory, NodeMemory, StageCounts, new_memory
from .node import places
from .plan import Plan, PlanSettings

EXCHANGES = ("auto", "on", "off")
"""auto: where a sample comes from another node faster than from storage."""
EXCHANGE_TIMEOUT_S = 60.0
"""Longest wait for another node, where no option says."""
MOST_PROBE_NBYTES = 4 << 20  # of a sample, to time the network by
_PROBES, _PROBE_TIMEOUT_S = 3, 60.0
REQUEST = struct.Struct("<qq")
"""The epoch, and how many ids follow it."""
HEADER = struct.Struct("<qIB")
"""The id, CRC-32C of id and arrays, where it came from; then the arrays of all fields."""
HELD, READ, FAILED = range(3)
"""From the buffer, from storage; instead of a sample: why it could not be read."""
GOODBYE = b""
"""The node has ended in order: it sends nothing any more."""
Int64Array = NDArray[np.int64]


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


def decide_exchange(
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
    # What the options and a saved plan contradict is refused before anything is measured.
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
    # Then whatever settles it without measuring; "auto" is left, which asks what takes less time.
    if choice == "off" or not transport.connected or ranks == node_ranks:
        return False, nothing
    if saved is not None:
        return saved.exchange, nothing
    if choice == "on":
        return True, nothing
    speeds = measure_speeds(transport, samples, node_ranks)
    return speeds.pays, speeds.measured


def measure_speeds(transport: Transport, samples: SampleSet, node_ranks: int) -> Speeds:
    """What a sample takes from the next node, and from storage; every rank calls it.

    Raises:
        InputError: A rank cannot read.
    """
    own, read, done = transport.world.rank, np.inf, ReadTotals()
    with Attempt() as reading:
        # One rank of each node reads: all of a node have the same storage.
        if own % node_ranks == 0:
            read, done = _time_storage(samples, len(samples) // transport.world.ranks)
    reading.agree(transport)
    # The slowest network against the fastest storage: exchanging must not lose anywhere.
    every = transport.gather((_time_network(transport, samples.sample_nbytes, node_ranks), read))
    network, storage = zip(*every, strict=True)
    return Speeds(max(network), min(storage), done)


def _time_network(transport: Transport, nbytes: int, node_ranks: int) -> float:
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


def _time_storage(samples: SampleSet, share: int) -> tuple[float, ReadTotals]:
    """Seconds of a sample from storage, and what was read for that."""
    reads = open_reads(samples, gap=None, threads=1, share=share)
    try:
        reads.covered(np.empty(0, np.int64))  # measures, where samples are rows
        if reads.speed is not None:
            speed = reads.speed
            return speed.latency_s + samples.sample_nbytes / speed.bytes_per_s, reads.measured

        # Where they are files of their own, a few are read.
        probes = max(1, min(_PROBES, int(share * MEASURED_SHARE)))
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
    finally:
        reads.close()


@dataclass(frozen=True)
class ExchangeLimits:
    """Reads for other nodes under way at once, and the longest wait for one of them."""

    threads: int
    timeout_s: float


def connect_nodes(
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
    node, token, serving = settings.node(rank), share_job_token(transport), None

    # The first rank of each node opens its door.
    with Attempt() as opening:
        if rank % settings.node_ranks == 0:
            place = memory.shared.place if memory.shared else places(plan, node)
            own = _derive_token(token, node)
            serving = Serving(samples, memory, place, own, limits.threads, limits.timeout_s)
    opening.agree(transport)

    # Every rank connects to the doors of the other nodes.
    listening = transport.gather(serving.address if serving else None)
    peers: dict[int, Connection] = {}
    with Attempt() as connecting:
        for other, address in enumerate(listening[:: settings.node_ranks]):
            if other != node:
                peers[other] = connect(address, _derive_token(token, other), limits.timeout_s)
    connecting.agree(transport)
    return Exchange(samples, peers, limits.timeout_s, serving, measured)


def _derive_token(token: bytes, node: int) -> bytes:
    """What another node's door does not open to."""
    return token + node.to_bytes(4, "little")


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
        # One request at a time on a connection; threads take their turns.
        with self._locks[node]:
            come = self._request(epoch, node, ids, target)
        # The node said goodbye: what it did not send is read here.
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

    def _request(self, epoch: int, node: int, ids: Int64Array, target: Target) -> int:
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
            heard = f"nothing for {self._timeout_s:g} s" if silent else "that it ended"
            raise InputError(
                f"expected node {node} to send sample {ids[come]}, found {heard}: see what its "
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
        # What came: the sample that was asked for, whole and unchanged.
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
        # Fields lie one behind the other, as `pack_sample` has them.
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


class Serving:
    """Answers other nodes, in the first process of a node.

    Args:
        samples: What they are.
        memory: Of the node.
        place: Of every sample its place; -1: the node does not hold it.
        token: Of this node.
        threads: Reads under way at once.
        timeout_s: Longest wait for another node that takes nothing.
    """

    def __init__(
        self,
        samples: SampleSet,
        memory: NodeMemory,
        place: NDArray[np.int32],
        token: bytes,
        threads: int,
        timeout_s: float,
    ) -> None:
        self._samples, self._memory, self._place = samples, memory, place
        self._counting = threading.Lock()
        self._counts = StageCounts(Counts(), Counts())
        self._reads = open_reads(samples, gap=0, threads=threads)
        self._reads.covered(np.empty(0, np.int64))  # opens the file, before threads need it
        self._pool = ReadThreads(threads)
        self._peers: dict[Connection, threading.Lock] = {}
        self._timeout_s, self._ended = timeout_s, False
        self._door = Door(token, self._serve, timeout_s)
        self.address = self._door.address

    @property
    def counts(self) -> tuple[Counts, Counts]:
        """What was read for others as planned, and beside the plan."""
        return self._counts.of_plan, self._counts.beside_plan

    def close(self) -> None:
        """Says goodbye to all: they read from storage what they still need.

        What hangs, in storage or because another node takes nothing, is left behind.
        """
        self._door.close()
        self._ended, end_s = True, time.monotonic() + self._timeout_s
        goodbyes = [
            self._say_goodbye(peer, lock, end_s) for peer, lock in list(self._peers.items())
        ]
        # What hangs may still use these.
        if all(goodbyes):
            self._pool.close()
            self._reads.close()

    def _say_goodbye(self, peer: Connection, lock: threading.Lock, end_s: float) -> bool:
        if not lock.acquire(timeout=max(end_s - time.monotonic(), 0)):
            return False
        with suppress(OSError):
            peer.send_bytes(GOODBYE)
        lock.release()
        return True

    def _serve(self, peer: Connection) -> None:
        lock = self._peers[peer] = threading.Lock()
        try:
            while True:
                # One thread for each rank that asks; answers go out in order.
                request = peer.recv_bytes()
                with lock:
                    if self._ended:
                        return
                    self._answer(peer, request)
        finally:
            self._peers.pop(peer)

    def _answer(self, peer: Connection, request: bytes) -> None:
        epoch, number = REQUEST.unpack_from(request)
        ids = np.frombuffer(request, np.int64, number, REQUEST.size)
        place = self._place[ids]
        # From the buffer what is filled, and read what is not, all of it at once.
        held = (place >= 0) & (self._memory.filled[np.maximum(place, 0)] != 0)
        try:
            beside = self._read(ids[~held], epoch)
        except LoadersError as error:
            peer.send_bytes(HEADER.pack(-1, 0, FAILED) + str(error).encode())
            return
        for sample, from_buffer in zip(ids.tolist(), held.tolist(), strict=True):
            rows = [self._find_row(each.name, sample, beside) for each in self._samples.fields]
            peer.send_bytes(pack_sample(sample, HELD if from_buffer else READ, rows))

    def _read(self, ids: NDArray[np.int64], epoch: int) -> tuple[Memory, dict[int, int]]:
        """Samples read from storage: into their places, else into rows of their own."""
        # Samples without a place in the buffer get rows that live as long as this answer.
        away = ids[self._place[ids] < 0].tolist()
        rows, row = new_memory(self._samples, len(away)), {s: at for at, s in enumerate(away)}
        beside = rows, row
        tasks = self._reads.tasks(
            np.unique(ids), np.empty(0, np.int64), lambda name, s: self._find_row(name, s, beside)
        )
        done = sum(self._pool.map(lambda task: task(), tasks), ReadTotals())
        # Only now may others take them from the buffer: a mark says that all bytes are there.
        kept = ids[self._place[ids] >= 0]
        self._memory.filled[self._place[kept]] = 1
        # In the first epoch all reads are planned; later a sample that has a place was read before.
        if len(ids):
            planned = len(ids) if epoch == 0 else len(away)
            with self._counting:
                self._counts.planned(loads=planned, reloads=len(ids) - planned)
                self._counts.read(done)
        return beside

    def _find_row(
        self, name: str, sample: int, beside: tuple[Memory, dict[int, int]]
    ) -> NDArray[Any]:
        place, (rows, row) = self._place[sample], beside
        source, at = (rows, row[sample]) if place < 0 else (self._memory.rows, place)
        array: NDArray[Any] = source[name][at, ...]
        return array


def pack_sample(sample: int, origin: int, arrays: list[NDArray[Any]]) -> bytes:
    """A sample as it is sent."""
    content = b"".join([each.tobytes() for each in arrays])
    return HEADER.pack(sample, checksum(sample, content), origin) + content


def checksum(sample: int, content: bytes) -> int:
    """CRC-32C of the id and the arrays: of another sample's arrays it is another one."""
    return int(google_crc32c.extend(google_crc32c.value(sample.to_bytes(8, "little")), content))


# Connections between the nodes of a job: over TCP, for those who know the job's token only.
# Messages are those of multiprocessing.connection: a length, then bytes; nothing is unpickled.
# Either side proves with an HMAC that it has the token of that node, which ranks share through the
# transport that started them.

CONNECT_TIMEOUT_S = 20.0
"""For a connection and its proofs."""


@dataclass(frozen=True)
class Address:
    """Where a node listens.

    Attributes:
        hosts: Addresses and names that others may reach it by; the first that answers is used.
        port: The same for all of them.
    """

    hosts: tuple[str, ...]
    port: int


def share_job_token(transport: Transport) -> bytes:
    """A secret of this job, the same on every rank; every rank calls it."""
    own = secrets.token_bytes(32) if transport.world.rank == 0 else None
    token: bytes = transport.gather(own)[0]
    return token


class Door:
    """Listens for other nodes; each that proves itself is served by a thread.

    Args:
        token: That others have to have.
        serve: Called with each connection; the connection is closed when it returns.
        timeout_s: Longest wait for the other side within a message.
    """

    def __init__(self, token: bytes, serve: Callable[[Connection], None], timeout_s: float) -> None:
        self._token, self._serve, self._timeout_s = token, serve, timeout_s
        self._socket = socket.create_server(("", 0), backlog=128)
        # This host's addresses: the one towards rank 0, where it is known, then those of its name.
        addresses, name = list[str](), socket.gethostname()
        towards = os.environ.get("MASTER_ADDR")
        if towards:
            with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((towards, 9))  # sends nothing
                addresses.append(probe.getsockname()[0])
        with suppress(OSError):
            addresses += [
                str(each[4][0]) for each in socket.getaddrinfo(name, None, socket.AF_INET)
            ]
        hosts = tuple(dict.fromkeys([*addresses, name]))
        self.address = Address(hosts, self._socket.getsockname()[1])
        threading.Thread(target=self._accept, name="exchange", daemon=True).start()

    def close(self) -> None:
        """Lets nobody in any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who waits in `accept`
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                peer, _ = self._socket.accept()
                work = threading.Thread(target=self._admit, args=(peer,), daemon=True)
                work.start()

    def _admit(self, peer: socket.socket) -> None:
        refused = suppress(OSError, EOFError, AuthenticationError)
        with refused, _open_connection(peer, CONNECT_TIMEOUT_S) as connection:
            deliver_challenge(connection, self._token)
            answer_challenge(connection, self._token)
            _limit(connection, self._timeout_s, socket.SO_SNDTIMEO)
            _limit(connection, 0, socket.SO_RCVTIMEO)  # it may have nothing to ask for long
            self._serve(connection)


def connect(address: Address, token: bytes, timeout_s: float) -> Connection:
    """A connection to the node that listens there.

    Args:
        address: Of the node.
        token: Of the node.
        timeout_s: Longest wait for it within a message.

    Raises:
        InputError: Nobody there has the token.
    """
    refusals = list[str]()
    for host in address.hosts:
        try:
            peer = socket.create_connection((host, address.port), CONNECT_TIMEOUT_S)
            connection = _open_connection(peer, CONNECT_TIMEOUT_S)
            try:
                # Both sides prove that they have the token: the other one asks first.
                answer_challenge(connection, token)
                deliver_challenge(connection, token)
            except BaseException:
                connection.close()
                raise
        except (OSError, EOFError, AuthenticationError) as error:
            refusals.append(f"{host}: {str(error) or type(error).__name__}")
            continue
        # From here on a message may take as long as the caller allows.
        for side in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            _limit(connection, timeout_s, side)
        return connection
    raise InputError(
        f"expected a node of this job on port {address.port} of {' or '.join(address.hosts)}, "
        f"found {'; '.join(refusals)}: open the network between nodes, or set --node-exchange off"
    )


def _open_connection(peer: socket.socket, timeout_s: float) -> Connection:
    peer.settimeout(None)
    # Small messages go at once, and a peer that is gone is noticed.
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection = Connection(peer.detach())
    for side in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        _limit(connection, timeout_s, side)
    return connection


def _limit(connection: Connection, seconds: float, side: int) -> None:
    """Reads (or writes) that last longer raise BlockingIOError; 0: never."""
    with socket.socket(fileno=os.dup(connection.fileno())) as peer:
        whole = int(seconds)
        value = struct.pack("ll", whole, int((seconds - whole) * 1e6))
        peer.setsockopt(socket.SOL_SOCKET, side, value)
