"""How to read short runs: one by one, through the gaps between them, or shared and exchanged.

What each takes follows from the latency and bandwidth of the storage, while all ranks read, and
from the speed of messages between them. Both are measured once, and ranks agree on the slowest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import partial

import numpy as np

from ..data.coalesce import measure
from ..data.pread import ReadTotals
from ..ranks.agreement import Attempt
from ..ranks.messages import Transport
from . import posix
from .boxes import Box, run_length, run_starts, volume
from .layouts import Contiguous, Fill

MEASURED_SHARE = 0.03
"""Of what a rank reads in its first epoch, at most, to measure the storage's speed."""
_ROW_NBYTES, _LEAST_ROWS = 4096, 3
LEAST_NBYTES = round(_LEAST_ROWS * _ROW_NBYTES / MEASURED_SHARE)
"""Of a rank's first epoch: of less, the measurement would be more than its share."""
_MESSAGE_NBYTES = 256 << 10
_MESSAGE_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Speeds:
    """Seconds of a request, bytes per second of storage, and of messages between ranks."""

    latency_s: float
    bytes_per_s: float
    message_bytes_per_s: float = np.inf


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


def fastest(cuts: Iterable[Cut], parts: int, speeds: Speeds, *, connected: bool) -> str:
    """`own`, `gaps` or `collective`: what takes the slowest part of a sample least time."""
    cuts = list(cuts)
    own, span = (max(getattr(cut, name) for cut in cuts) for name in ("nbytes", "span_nbytes"))
    blocks = -(-span // posix.MOST_BLOCK_NBYTES)
    taken = {
        "own": max(cut.runs for cut in cuts) * speeds.latency_s + own / speeds.bytes_per_s,
        "gaps": blocks * speeds.latency_s + span / speeds.bytes_per_s,
    }
    if connected:
        exchanged = own * (parts - 1) / parts / speeds.message_bytes_per_s
        taken["collective"] = speeds.latency_s + own / speeds.bytes_per_s + exchanged
    return min(taken, key=lambda name: taken[name])


def measured(
    layout: Contiguous, epoch_nbytes: int, transport: Transport
) -> tuple[Speeds, ReadTotals]:
    """The speeds of the slowest rank, and what this one read for it; every rank calls it.

    Args:
        layout: Of a file to read from.
        epoch_nbytes: That a rank reads in its first epoch; `MEASURED_SHARE` of it is read.
        transport: Between the ranks.

    Raises:
        InputError: The file cannot be read, by this rank or another.
    """
    found, totals = Speeds(0.0, np.inf), ReadTotals()
    with Attempt() as tried:
        found, totals = _of_storage(layout, epoch_nbytes)
    tried.agree(transport)
    of_ranks = transport.gather((*astuple(found)[:2], _of_messages(transport)))
    latency, storage, messages = zip(*of_ranks, strict=True)
    return Speeds(max(latency), min(storage), min(messages)), totals


def _of_storage(layout: Contiguous, epoch_nbytes: int) -> tuple[Speeds, ReadTotals]:
    rows = max(1, layout.nbytes // _ROW_NBYTES)
    nbytes = min(_ROW_NBYTES, layout.nbytes)
    whole = Contiguous(layout.path, layout.offset, (rows, nbytes), np.dtype(np.uint8))
    taken = list[ReadTotals]()
    with posix.opened(layout.path) as fill:
        read = partial(_read_rows, whole, fill, taken)
        speed = measure(read, rows, nbytes, int(epoch_nbytes * MEASURED_SHARE) // nbytes)
    return Speeds(speed.latency_s, speed.bytes_per_s), sum(taken, ReadTotals())


def _read_rows(
    whole: Contiguous, fill: Fill, taken: list[ReadTotals], start: int, stop: int
) -> None:
    out = np.empty((stop - start) * whole.shape[1], np.uint8)
    taken.append(fill(whole, ((start, stop), (0, whole.shape[1])), out))


def _of_messages(transport: Transport) -> float:
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
