"""What a node has for the others: samples of its buffer, and those that it is to read for them.

A place of the buffer is written once and never given to another sample, so what is marked filled
is valid for the whole run and needs neither versions nor locks. What is not filled is read from
storage then, straight into its place. A sample that no buffer holds is read and sent.
"""

from __future__ import annotations

import struct
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ..data.coalesced import open_reads
from ..data.pool import ReadThreads
from ..data.pread import ReadTotals
from ..data.samples import SampleSet
from ..errors import LoadersError
from ..loader.stats import Counts
from ..ranks.connections import Door
from .buffer import Memory, new_memory
from .counts import StageCounts
from .node import NodeMemory

REQUEST = struct.Struct("<qq")
"""The epoch, and how many ids follow it."""
HEADER = struct.Struct("<qIB")
"""The id, CRC-32C of id and arrays, where it came from; then the arrays of all fields."""
HELD, READ, FAILED = range(3)
"""From the buffer, from storage; instead of a sample: why it could not be read."""
GOODBYE = b""
"""The node has ended in order: it sends nothing any more."""


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
        said = [self._goodbye(peer, lock, end_s) for peer, lock in list(self._peers.items())]
        if all(said):
            self._pool.close()
            self._reads.close()

    def _goodbye(self, peer: Connection, lock: threading.Lock, end_s: float) -> bool:
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
        held = (place >= 0) & (self._memory.filled[np.maximum(place, 0)] != 0)
        try:
            beside = self._read(ids[~held], epoch)
        except LoadersError as error:
            peer.send_bytes(HEADER.pack(-1, 0, FAILED) + str(error).encode())
            return
        for sample, from_buffer in zip(ids.tolist(), held.tolist(), strict=True):
            rows = self._rows_of(sample, beside)
            peer.send_bytes(message(sample, HELD if from_buffer else READ, rows))

    def _read(self, ids: NDArray[np.int64], epoch: int) -> tuple[Memory, dict[int, int]]:
        """Samples read from storage: into their places, else into rows of their own."""
        away = ids[self._place[ids] < 0].tolist()
        rows, row = new_memory(self._samples, len(away)), {s: at for at, s in enumerate(away)}
        beside = rows, row
        tasks = self._reads.tasks(
            np.unique(ids), np.empty(0, np.int64), lambda name, s: self._row(name, s, beside)
        )
        done = sum(self._pool.map(lambda task: task(), tasks), ReadTotals())
        kept = ids[self._place[ids] >= 0]
        self._memory.filled[self._place[kept]] = 1
        if len(ids):
            planned = len(ids) if epoch == 0 else len(away)
            with self._counting:
                self._counts.planned(loads=planned, reloads=len(ids) - planned)
                self._counts.read(done)
        return beside

    def _rows_of(self, sample: int, beside: tuple[Memory, dict[int, int]]) -> list[NDArray[Any]]:
        return [self._row(each.name, sample, beside) for each in self._samples.fields]

    def _row(self, name: str, sample: int, beside: tuple[Memory, dict[int, int]]) -> NDArray[Any]:
        place, (rows, row) = self._place[sample], beside
        found: NDArray[Any] = (
            rows[name][row[sample], ...] if place < 0 else self._memory.rows[name][place, ...]
        )
        return found


def message(sample: int, origin: int, arrays: list[NDArray[Any]]) -> bytes:
    """A sample as it is sent."""
    content = b"".join([each.tobytes() for each in arrays])
    return HEADER.pack(sample, checksum(sample, content), origin) + content


def checksum(sample: int, content: bytes) -> int:
    """CRC-32C of the id and the arrays: of another sample's arrays it is another one."""
    return int(google_crc32c.extend(google_crc32c.value(sample.to_bytes(8, "little")), content))
