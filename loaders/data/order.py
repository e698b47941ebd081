"""In which order samples are visited: the DistributedSampler's order, as arrays.

Every loader that claims the baseline's global batches uses these two functions.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..ranks.world import World

Id = TypeVar("Id", bound=np.signedinteger[Any])
IdArray = NDArray[np.int32] | NDArray[np.int64]


def draw_epoch_order(
    samples: int, *, seed: int, epoch: int, shuffle: bool = True
) -> NDArray[np.int64]:
    """Ids 0..samples-1 in the order of one epoch, the same on every rank.

    Equal to what `torch.utils.data.DistributedSampler(shuffle=shuffle, seed=seed)` draws in
    `set_epoch(epoch)`, before padding.
    """
    if not shuffle:
        return np.arange(samples, dtype=np.int64)
    order: NDArray[np.int64] = draw_permutation(samples, seed + epoch, torch.int64)
    return order


def compact_ids(samples: int, *, seed: int, epoch: int, shuffle: bool = True) -> IdArray:
    """The ids of `draw_epoch_order`, in half the memory where 32 bits hold them."""
    if samples > np.iinfo(np.int32).max:
        return draw_epoch_order(samples, seed=seed, epoch=epoch, shuffle=shuffle)
    if not shuffle:
        return np.arange(samples, dtype=np.int32)
    return draw_permutation(samples, seed + epoch, torch.int32)


def draw_permutation(samples: int, seed: int, kind: torch.dtype) -> NDArray[Any]:
    """What a generator with this seed draws: the same ids whatever their type."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    drawn: NDArray[Any] = torch.randperm(samples, generator=generator, dtype=kind).numpy()
    return drawn


def pad_order(order: NDArray[Id], *, ranks: int, batch: int, drop_last: bool) -> NDArray[Id]:
    """The order cut (`drop_last`) or wrapped around so that it divides evenly.

    With `drop_last` its length is the largest multiple of ranks * batch, so that every batch is
    full. Without, the smallest multiple of `ranks` that holds all: the last batch is shorter,
    and equally short on every rank.
    """
    if drop_last:
        return order[: len(order) // (ranks * batch) * ranks * batch]
    padded = -(-len(order) // ranks) * ranks
    return order if padded == len(order) else np.resize(order, padded)


def rank_order(order: NDArray[np.int64], world: World) -> NDArray[np.int64]:
    """The ids of one rank: every ranks-th of a padded order, as DistributedSampler deals them.

    Batch t of the rank is `[t * batch, (t + 1) * batch)` of it; the global batch t is
    `[t * ranks * batch, (t + 1) * ranks * batch)` of the padded order.
    """
    return order[world.rank :: world.ranks]
