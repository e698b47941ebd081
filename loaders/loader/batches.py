"""Batches: samples stacked field by field, in page-locked memory where asked for."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from ..data.readers import Arrays
from .loader import Batch


def collate(samples: list[Arrays]) -> Batch:
    """Samples stacked field by field."""
    return cast(Batch, default_collate(samples))


def pin_batch(batch: Batch) -> Batch:
    """The batch in page-locked memory, where there is a GPU to copy it to."""
    if not torch.cuda.is_available():
        return batch
    return {name: tensor.pin_memory() for name, tensor in batch.items()}


KEPT_MOST = 8
"""Batches whose memory is kept, where they are made one by one: those that wait, that train, and
that a user may hold."""


def _free(arrays: list[NDArray[Any]], references: int) -> int:
    """The first array that only the list has: so many references. -1: none."""
    for at in range(len(arrays)):
        if sys.getrefcount(arrays[at]) == references:
            return at
    return -1


_ONLY_LISTED = next(n for n in range(1, 9) if _free([np.empty(0)], n) == 0)


class BatchMemory:
    """Memory of one field's batches, used again when nobody has a tensor of it any more.

    A new batch costs a page fault per page: the system takes the pages back when it is dropped.
    NumPy asks for large pages where an array has 4 MiB or more, `torch.empty` does not.

    Args:
        shape: Of a sample's array.
        dtype: Of its numbers.
        pin_memory: Page-locked, where there is a CUDA device: PyTorch uses that again itself.
        kept: Batches whose memory is kept, at most.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        *,
        pin_memory: bool = False,
        kept: int = KEPT_MOST,
    ) -> None:
        self._shape, self._dtype, self._rows, self._most = shape, dtype, 0, kept
        self._pinned = pin_memory and torch.cuda.is_available()
        self._kept: list[NDArray[Any]] = []

    def open(self, count: int) -> tuple[torch.Tensor, NDArray[Any]]:
        """A batch to be filled, and the same memory as an array."""
        if self._pinned:
            kind = torch.from_numpy(np.empty(0, self._dtype)).dtype
            tensor = torch.empty((count, *self._shape), dtype=kind, pin_memory=True)
            return tensor, tensor.numpy()
        rows = self.rows(count)
        return torch.from_numpy(rows), rows

    def rows(self, count: int) -> NDArray[Any]:
        """(count, *shape) that nobody else has, until what is made of it is dropped."""
        # A batch that is larger than all before sets the size of later ones.
        if count > self._rows:
            self._rows = count
        kept, free = self._kept, _free(self._kept, _ONLY_LISTED)
        if free >= 0 and len(kept[free]) >= count:
            return kept[free][:count]

        # None that is free is large enough: one more, kept if there is room for it.
        fresh = np.empty((self._rows, *self._shape), self._dtype)
        if free >= 0:
            kept[free] = fresh
        elif len(kept) < self._most:
            kept.append(fresh)
        return fresh[:count]
