"""How to read short runs: one by one, through the gaps between them, or shared and exchanged.

What each takes follows from the latency and bandwidth of the storage, while all ranks read, from
the speed of messages between them and of copying runs in memory, which counts where storage is
fast. All are measured once, and ranks agree on the slowest.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.coalesce import REPEATS, StorageSpeed, measure_storage
from ..data.pread import ReadTotals
from ..ranks.messages import Attempt, Transport
from . import posix
from .grid import Box, run_length, run_starts, volume
from .layouts import Contiguous, Fill

MEASURED_SHARE = 0.03
"""Of what a rank reads in its first epoch, at most, to measure the storage's speed."""
_ROW_NBYTES, _LEAST_ROWS = 4096, 5
LEAST_NBYTES = round(_LEAST_ROWS * _ROW_NBYTES / MEASURED_SHARE)
"""Of a rank's first epoch: of less, the measurement would be more than its share."""
MOST_BLOCK_NBYTES, _LATENCIES = 4 << 20, 4
_MESSAGE_NBYTES = 256 << 10
_COPIED_NBYTES = 4 << 20
_MESSAGE_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Speeds:
    """What reading and exchanging cost a rank while all do it.

    Attributes:
        latency_s: Of a request.
        bytes_per_s: Of storage.
        message_bytes_per_s: From one rank to another.
        copy_bytes_per_s: Of copying short runs in memory.
        shared_bytes_per_s: Of what another rank has just read: ranks of a node have one page cache.
    """

    latency_s: float
    bytes_per_s: float
    message_bytes_per_s: float = np.inf
    copy_bytes_per_s: float = np.inf
    shared_bytes_per_s: float = 0.0

    @property
    def block_nbytes(self) -> int:
        """To read at once through gaps: a request's latency is a fifth of its time, at most.

        Within what suits a processor's cache and `MOST_BLOCK_NBYTES`.
        """
        wanted = _LATENCIES * self.latency_s * self.bytes_per_s
        return int(min(max(wanted, posix.BLOCK_NBYTES), MOST_BLOCK_NBYTES))


@dataclass(frozen=True)
class Cut:
    """What a part is of a contiguous array: runs, their bytes, and those with the gaps between."""

    runs: int
    nbytes: int
    span_nbytes: int

    @classmethod
    def of(cls, shape: tuple[int, ...], itemsize: int, box: Box) -> Cut:
        """The cut of one box."""
        length, starts = run_length(shape, box), run_starts(shape, box)
        span = int(starts[-1] - starts[0]) + length
        return cls(len(starts), volume(box) * itemsize, span * itemsize)


def choose_fastest(cuts: Iterable[Cut], parts: int, speeds: Speeds, *, connected: bool) -> str:
    """`own`, `gaps` or `collective`: what takes the slowest part of a sample least time."""
    cuts = list(cuts)
    own, span = (max(getattr(cut, name) for cut in cuts) for name in ("nbytes", "span_nbytes"))
    # Shorter pieces of a range are read one behind the other: storage reads ahead meanwhile.
    blocks = -(-span // MOST_BLOCK_NBYTES)
    time_s = {
        "own": max(cut.runs for cut in cuts) * speeds.latency_s + own / speeds.bytes_per_s,
        # What is cut from a block in the processor's cache to its place costs little more.
        "gaps": blocks * speeds.latency_s + _estimate_read_by_all(span, parts, speeds),
    }
    if connected:
        exchanged = own * (parts - 1) / parts
        copied = own + exchanged  # what is sent is made contiguous, and all goes to its place
        time_s["collective"] = speeds.latency_s + own / speeds.bytes_per_s
        time_s["collective"] += exchanged / speeds.message_bytes_per_s
        time_s["collective"] += copied / speeds.copy_bytes_per_s
    return min(time_s, key=lambda name: time_s[name])


def _estimate_read_by_all(nbytes: int, parts: int, speeds: Speeds) -> float:
    """Seconds until every part has the same bytes; with one page cache each fetches a share."""
    alone = nbytes / speeds.bytes_per_s
    if not speeds.shared_bytes_per_s:
        return alone
    return min(alone, alone / parts + nbytes / speeds.shared_bytes_per_s)


def measure_speeds(
    layout: Contiguous, epoch_nbytes: int, run_nbytes: int, parts: int, transport: Transport
) -> tuple[Speeds, ReadTotals]:
    """The speeds of the slowest rank, and what this one read for it; every rank calls it.

    Args:
        layout: Of a file to read from.
        epoch_nbytes: That a rank reads in its first epoch; `MEASURED_SHARE` of it is read.
        run_nbytes: Of the runs that are copied.
        parts: Neighbouring ranks that share a sample.
        transport: Between the ranks.

    Raises:
        InputError: The file cannot be read, by this rank or another.
    """
    rank, ranks = transport.world.rank, transport.world.ranks
    probe = _Probe(layout, int(epoch_nbytes * MEASURED_SHARE) // _ROW_NBYTES)
    with Attempt() as probing:
        storage = probe.storage(rank / ranks)
        probe.piece((rank + 0.25) / ranks)
    probing.agree(transport)

    # What the rank beside has just read, which comes from memory where they share a node.
    beside = rank - rank % parts + (rank + 1) % parts
    with Attempt() as probing:
        shared = probe.piece((beside + 0.25) / ranks)
    probing.agree(transport)

    # Every rank goes by the slowest.
    memory = _time_messages(transport), _time_copies(run_nbytes), shared
    of_ranks = transport.gather((storage.latency_s, storage.bytes_per_s, *memory))
    latency, *others = zip(*of_ranks, strict=True)
    return Speeds(max(latency), *map(min, others)), probe.totals


class _Probe:
    """Reads at most so many rows of a file, in places that depend on the rank."""

    def __init__(self, layout: Contiguous, most_rows: int) -> None:
        rows = max(1, layout.nbytes // _ROW_NBYTES)
        nbytes = min(_ROW_NBYTES, layout.nbytes)
        self._shape, self._most = (rows, nbytes), most_rows
        self._whole = Contiguous(layout.path, layout.offset, self._shape, np.dtype(np.uint8))
        self._piece = max(1, min(most_rows // 8, rows // 8))
        self.totals = ReadTotals()

    def storage(self, place: float) -> StorageSpeed:
        """Latency and bandwidth; `place`, 0 to 1, keeps ranks apart."""
        rows, nbytes = self._shape
        away = int(rows * place / (2 * REPEATS))
        with posix.opened(self._whole.path) as fill:

            def read(start: int, stop: int) -> None:
                first = min(start + away, rows - (stop - start))
                out = np.empty((stop - start) * nbytes, np.uint8)
                self._read(fill, first, first + stop - start, out)

            return measure_storage(read, rows, nbytes, max(3, self._most - 2 * self._piece))

    def piece(self, place: float) -> float:
        """Bytes per second of a piece at `place`, 0 to 1."""
        first = int((self._shape[0] - self._piece) * place)
        out = np.ones(self._piece * self._shape[1], np.uint8)  # memory that was written before
        with posix.opened(self._whole.path) as fill:
            begin = time.perf_counter()
            self._read(fill, first, first + self._piece, out)
            return out.nbytes / (time.perf_counter() - begin)

    def _read(self, fill: Fill, start: int, stop: int, out: NDArray[np.uint8]) -> None:
        self.totals += fill(self._whole, ((start, stop), (0, self._shape[1])), out)


def _time_messages(transport: Transport) -> float:
    """Bytes per second from one rank to the next, all at once; without others: no limit."""
    rank, ranks = transport.world.rank, transport.world.ranks
    if not transport.connected or ranks == 1:
        return np.inf
    outgoing, incoming = np.zeros(_MESSAGE_NBYTES, np.uint8), np.empty(_MESSAGE_NBYTES, np.uint8)
    seconds = list[float]()
    for _ in range(3):  # the first connects
        begin = time.perf_counter()
        to, source = (rank + 1) % ranks, (rank - 1) % ranks
        transport.start([(to, outgoing)], [(source, incoming)]).wait(_MESSAGE_TIMEOUT_S)
        seconds.append(time.perf_counter() - begin)
    return _MESSAGE_NBYTES / min(seconds)


def _time_copies(run_nbytes: int) -> float:
    """Bytes per second of copying runs with gaps as long between them to memory that is new.

    As arrays of an exchange are: too large for the allocator to use their memory again.
    """
    rows = max(1, _COPIED_NBYTES // run_nbytes)
    held, seconds = np.ones((rows, 2 * run_nbytes), np.uint8), list[float]()
    for _ in range(3):
        out = np.frombuffer(mmap.mmap(-1, rows * run_nbytes), np.uint8).reshape(rows, run_nbytes)
        begin = time.perf_counter()
        out[:] = held[:, :run_nbytes]
        seconds.append(time.perf_counter() - begin)
    return rows * run_nbytes / float(np.median(seconds))
