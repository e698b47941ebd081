"""Batches in the making: memory for a step's samples, gathered from their places or read into it.

A sample that finds no place in buffer or staging is read straight into the batch that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.samples import SampleSet
from ..loader.batches import KEPT_MOST, BatchMemory
from .buffer import Memory

Int64Array = NDArray[np.int64]
Addresses = list[int]
"""Of a sample's fields in memory, in order."""
NOTHING: Mapping[int, int] = MappingProxyType({})


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
        together: As many are made, wait and are used at once.
    """

    def __init__(
        self, samples: SampleSet, places: Memory, *, pin_memory: bool, together: int
    ) -> None:
        self._places = places
        self._nbytes = {each.name: each.nbytes for each in samples.fields}
        kept = KEPT_MOST + 3 * (together - 1)
        self._memory = {
            each.name: BatchMemory(each.shape, each.dtype, pin_memory=pin_memory, kept=kept)
            for each in samples.fields
        }

    def open(self, count: int, direct: Mapping[int, int] = NOTHING) -> OpenBatch:
        """Memory for so many samples, of which `direct` will be read into their rows of it."""
        tensors, rows = {}, {}
        for name, memory in self._memory.items():
            tensors[name], rows[name] = memory.open(count)
        return OpenBatch(tensors, rows, direct)

    def gather(self, batch: OpenBatch, ids: Int64Array, slots: list[int]) -> None:
        """Copies to each row what lies in its slot; -1: the row was read, or repeats one that was.

        One call for neighbouring rows, which lets go of the interpreter lock.
        """
        for first, last in _stretches(slots):
            held = np.array(slots[first:last])
            for name, rows in batch.rows.items():
                # "clip" (no slot is outside) writes straight to `out`.
                self._places[name].take(held, 0, rows[first:last], "clip")
        if not batch.direct:
            return
        for row, sample in enumerate(ids.tolist()):
            source = batch.direct.get(sample, row)
            if source != row:
                for rows in batch.rows.values():
                    rows[row] = rows[source]

    def addresses(self, batch: OpenBatch, row: int) -> Addresses:
        """Where a row of a batch lies."""
        nbytes = self._nbytes
        return [each.data_ptr() + row * nbytes[name] for name, each in batch.tensors.items()]

    def place_addresses(self, slot: int) -> Addresses:
        """Where a place lies."""
        nbytes = self._nbytes
        return [each.ctypes.data + slot * nbytes[name] for name, each in self._places.items()]


def _stretches(slots: list[int]) -> list[tuple[int, int]]:
    """[first, last) of neighbouring rows that have a slot."""
    held = slots.index(-1) if -1 in slots else len(slots)
    if held == len(slots) or max(slots[held:]) < 0:  # a plan has what is read behind what is held
        return [(0, held)] if held else []
    has = np.concatenate([[False], np.array(slots) >= 0, [False]])
    border = np.flatnonzero(has[1:] != has[:-1]).tolist()
    return list(zip(border[::2], border[1::2], strict=True))
