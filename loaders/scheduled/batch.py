"""Batches in the making: memory for a step's samples, gathered from their places or read into it.

A sample that finds no place in buffer or staging is read straight into the batch that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.samples import SampleSet
from ..loader.batches import BatchMemory
from .buffer import Memory

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class OpenBatch:
    """Memory for the samples of one step.

    Attributes:
        tensors: Of each field, what is handed out.
        rows: The same memory as arrays.
        direct: The samples that are read straight into it, and the row of each.
    """

    tensors: dict[str, torch.Tensor]
    rows: Memory
    direct: Mapping[int, int]


class Batches:
    """Makes batches of samples that lie in `places`.

    Args:
        samples: What they are.
        places: Where samples wait; a slot is a row of it.
        pin_memory: Batches in page-locked memory, where there is a CUDA device.
    """

    def __init__(self, samples: SampleSet, places: Memory, *, pin_memory: bool) -> None:
        self._places = places
        self._memory = {
            each.name: BatchMemory(each.shape, each.dtype, pin_memory=pin_memory)
            for each in samples.fields
        }

    def open(self, ids: list[int], direct: list[int]) -> OpenBatch:
        """Memory for `ids`, of which those in `direct` will be read into it."""
        tensors, rows = {}, {}
        for name, memory in self._memory.items():
            tensors[name], rows[name] = memory.open(len(ids))
        return OpenBatch(tensors, rows, {sample: ids.index(sample) for sample in direct})

    def gather(self, batch: OpenBatch, ids: list[int], slots: Int64Array) -> None:
        """Copies to each row what lies in its slot; -1: the row was read, or repeats one that was.

        One call for neighbouring rows, which lets go of the interpreter lock.
        """
        for first, last in _stretches(slots, bool(batch.direct)):
            for name, rows in batch.rows.items():
                # "clip" (no slot is outside) writes straight to `out`.
                self._places[name].take(slots[first:last], 0, rows[first:last], "clip")
        if not batch.direct:
            return
        for row, sample in enumerate(ids):
            source = batch.direct.get(sample, row)
            if source != row:
                for rows in batch.rows.values():
                    rows[row] = rows[source]


def _stretches(slots: Int64Array, gaps: bool) -> list[tuple[int, int]]:
    """[first, last) of neighbouring rows that have a slot; without `gaps` all have one."""
    if not gaps:
        return [(0, len(slots))]
    has = np.concatenate([[False], slots >= 0, [False]])
    border = np.flatnonzero(has[1:] != has[:-1]).tolist()
    return list(zip(border[::2], border[1::2], strict=True))
