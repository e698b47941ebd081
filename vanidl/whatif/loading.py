"""How long each rank's batches take to load under a change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vanidl.whatif.batches import Array, Batches
from vanidl.whatif.change import Change

_AT_ONCE = 8
"""Reads under way at once while the pls loader reads a rank's part (its THREADS)."""
_SERVED = 0.5
"""Of the largest reader's bytes."""


def loads(ranks: Sequence[Batches], change: Change) -> list[Array]:
    """For each rank the seconds that its batches take, shape (steps,)."""
    least = _least_s(ranks, change)
    if change.exchanged is not None:
        return [_exchanged(b, change, least) for b in ranks]
    most = max(float(b.nbytes.sum()) for b in ranks)
    return [
        np.zeros_like(least)
        if change.divided > 1 and _is_served(b, most)
        else _load(b, change, least)
        for b in ranks
    ]


def _is_served(batch: Batches, most_nbytes: float) -> bool:
    """Whether the rank waits for what another reads: as divided, it takes no longer than that."""
    return float(batch.nbytes.sum()) < _SERVED * most_nbytes


def workers(batch: Batches, change: Change) -> int:
    """Of the batch's rank. Partial local shuffling reads in the training process."""
    if change.workers is not None:
        return change.workers
    return batch.workers if change.exchanged is None else 0


def _load(batch: Batches, change: Change, least: Array) -> Array:
    """Loading where it is done; bytes come no faster than the storage delivers them to all."""
    latency, transfer = _slower(batch, change)
    transfer_s = np.maximum(batch.io_s * transfer, least * max(workers(batch, change), 1))
    own_s = batch.decode_s / (change.decode * change.divided)
    read: Array = batch.io_s * latency + transfer_s + own_s
    return read * (1 - change.kept * batch.again)


def _slower(batch: Batches, change: Change) -> tuple[float, float]:
    """(latency, transfer) then, as shares of the I/O time now.

    Where they cannot be told apart, the change that helps more takes it all.
    """
    per_byte = 1 / (change.bandwidth * change.divided)
    share = batch.latency_share
    if share is None:
        return 0.0, min(change.latency, per_byte)
    return share * change.latency, (1 - share) * per_byte


def _least_s(ranks: Sequence[Batches], change: Change) -> Array:
    """Seconds in which the storage delivers one step to all ranks.

    Where samples are divided, each group of ranks needs what its largest reader reads now:
    either every rank reads all of it, or one does and gives it away.
    """
    nbytes = np.array([b.nbytes for b in ranks])
    if change.total_bytes_per_s is None:
        return np.zeros(nbytes.shape[1])
    whole = nbytes.sum(0)
    if change.divided > 1:
        whole = nbytes.max(0) * max(len(ranks) / change.divided, 1.0)
    seconds: Array = whole / change.total_bytes_per_s
    return seconds


def _exchanged(batch: Batches, change: Change, least: Array) -> Array:
    """Partial local shuffling: all that is read comes first, then what its link cannot hide.

    A portion travels while the step after it loads and computes, so that a batch is handed over
    no sooner than the exchange, which began with the step before, has ended.
    """
    new = 1 - batch.again
    alone_s = float((_load(batch, change, np.zeros_like(new)) * new).sum())
    found = np.zeros_like(new)
    found[0] = max(alone_s / _AT_ONCE, float((least * new).sum()))
    if change.exchanged and change.link_bytes_per_s is not None:
        busy = change.exchanged * batch.nbytes / change.link_bytes_per_s
        found[1:] = np.maximum(busy[1:] - batch.compute_s[:-1], 0.0)
    return found
