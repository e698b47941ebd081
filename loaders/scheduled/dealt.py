"""DistributedSampler's own batches, where nodes send each other samples: which node has what.

A rank trains on what DistributedSampler gives it. A sample that a buffer holds comes from there,
whichever node it is on; one that no buffer holds is read by one node. With balance "load" nodes
read equally many in each step, within one: those with more to read leave some to others, which
read them and send them on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.order import IdArray
from .plan_settings import Int64Array, PlanSettings


@dataclass(frozen=True)
class Dealt:
    """A global batch: column r of each array is the batch of rank r, in DistributedSampler's order.

    Attributes:
        ids: Samples.
        load: Which of them are read from storage.
        source: The node that reads each, or whose buffer holds it.
    """

    ids: Int64Array
    load: NDArray[np.bool_]
    source: NDArray[np.int32]


def dealt(
    settings: PlanSettings, owner: NDArray[np.int32], batch: IdArray, low: int, *, first: bool
) -> Dealt:
    """The global batch of the ids at place `low` of an epoch's sequence.

    Args:
        settings: Of the plan.
        owner: The node that holds each sample; negative: none.
        batch: Ids, as many for each rank.
        low: Place of the first of them in the epoch, beyond `settings.samples` for padding.
        first: In the first epoch everything is read, by the node that is to hold it.
    """
    ids = batch.astype(np.int64)
    place = np.arange(low, low + len(ids))
    rank = place % settings.ranks
    source = (rank // settings.node_ranks).astype(np.int32)  # of whoever uses it
    held = owner[ids]
    load = held < 0
    if first:
        # As `make_plan` has it: what makes no whole turn of the ranks goes round the nodes.
        turns = settings.samples // settings.ranks * settings.ranks
        source = np.where(place >= turns, rank % settings.nodes, source).astype(np.int32)
        load |= place < settings.samples  # but what padding repeats is held by then
    elif settings.balance == "load":
        source[load] = _level(source[load], settings.nodes, low // settings.global_batch)
    source = np.where(load, source, held)
    across = (-1, settings.ranks)
    return Dealt(ids.reshape(across), load.reshape(across), source.reshape(across))


def _level(user: NDArray[np.int32], nodes: int, turn: int) -> NDArray[np.int32]:
    """Who reads each of some samples, so that nodes read equally many and few change hands.

    Args:
        user: The node that uses each.
        nodes: How many there are.
        turn: Where nodes use equally many, another one reads one more each time.
    """
    count = np.bincount(user, minlength=nodes)
    share = np.full(nodes, len(user) // nodes)
    most = np.lexsort(((np.arange(nodes) + turn) % nodes, -count))
    share[most[: len(user) % nodes]] += 1
    order = np.argsort(user, kind="stable")
    begin = np.cumsum(count) - count
    beyond = np.arange(len(user)) - begin[user[order]] >= share[user[order]]
    reader = user.copy()
    reader[order[beyond]] = np.repeat(np.arange(nodes), share - np.minimum(count, share))
    return reader
