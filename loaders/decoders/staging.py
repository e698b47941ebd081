"""The samples of a batch in one host buffer, so that one copy takes them to the device.

Containers are read straight into the buffer and stay where they lie: what a kernel needs to know
is an index per array, (samples, columns) int64, each column the offset of a section in bytes, or
a number. What is not in the buffer yet (indices, what the host derives) is put behind the rest.
Everything begins at a multiple of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .container import ALIGNMENT, damaged

Column = NDArray[Any] | int
"""A section, of which the index holds the offset, or a number that the index holds."""
SPARE = 16
"""A buffer that has to grow gets 1/16 more than asked for: containers differ little in size."""


class HostBuffer:
    """Bytes on the host, page-locked where asked for, used again for batch after batch."""

    def __init__(self, *, pin_memory: bool = False) -> None:
        self._pin_memory = pin_memory
        self._memory = self._allocated(0)
        self._former = list[torch.Tensor]()
        self.end = 0
        """Bytes in use."""

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """All of the memory; valid until `make_room` or `reserve` is called."""
        held: NDArray[np.uint8] = self._memory.numpy()
        return held

    @property
    def used(self) -> torch.Tensor:
        """(end,) uint8, the bytes in use."""
        return self._memory[: self.end]

    def clear(self) -> None:
        """Nothing is in use; the memory is kept."""
        self.end = 0
        self._former.clear()

    def make_room(self, sizes: Sequence[int]) -> None:
        """Memory for so many bytes each. What was in use stays, maybe elsewhere."""
        needed = self.end + sum(map(_rounded, sizes))
        if needed > len(self._memory):
            grown = self._allocated(needed + needed // SPARE)
            grown[: self.end] = self._memory[: self.end]
            self._former.append(self._memory)
            self._memory = grown

    def reserve(self, nbytes: int) -> int:
        """Bytes that are now in use; where they begin."""
        self.make_room([nbytes])
        begin, self.end = self.end, self.end + _rounded(nbytes)
        return begin

    def offset_of(self, section: NDArray[Any]) -> int | None:
        """Where an array lies in the bytes in use, or lay before they moved; None: elsewhere."""
        address = section.__array_interface__["data"][0]
        for memory in (self._memory, *self._former):
            at = address - memory.data_ptr()
            inside = at >= 0 and at + section.nbytes <= min(self.end, len(memory))
            if inside and section.flags.c_contiguous:
                return at
        return None

    def _allocated(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=self._pin_memory)


@dataclass(frozen=True)
class Staged:
    """One array of a batch, on the host or the device.

    Attributes:
        buffer: (nbytes,) uint8, nbytes a multiple of 64: the whole batch.
        index_at: Offset of the array's index in the buffer.
        samples: How many.
        columns: Of the index.
        most: Largest number of each column over the samples (0 for sections): sizes of grids.
    """

    buffer: torch.Tensor
    index_at: int
    samples: int
    columns: int
    most: tuple[int, ...]

    @property
    def index(self) -> torch.Tensor:
        """(samples, columns) int64."""
        end = self.index_at + 8 * self.samples * self.columns
        return self.buffer[self.index_at : end].view(torch.int64).view(-1, self.columns)

    def within(self, buffer: torch.Tensor) -> Staged:
        """The same in another buffer of the same bytes."""
        return replace(self, buffer=buffer)

    def to(self, device: torch.device) -> Staged:
        """The same on a device. From page-locked memory the copy is only begun."""
        return self.within(self.buffer.to(device, non_blocking=True))


def stage(buffer: HostBuffer, rows: Sequence[Sequence[Column]]) -> Staged:
    """The rows of columns of one array in the buffer; sections that lie there are not moved."""
    index = np.zeros((len(rows), len(rows[0])), np.int64)
    outside = []
    for place in np.ndindex(index.shape):
        column = rows[place[0]][place[1]]
        at = column if isinstance(column, int) else buffer.offset_of(column)
        if at is not None:
            index[place] = at
        elif not isinstance(column, int):
            outside.append((place, column))
    buffer.make_room([*(section.nbytes for _, section in outside), index.nbytes])
    for place, section in outside:
        index[place] = _append(buffer, section)
    index_at = _append(buffer, index)
    numbers = [isinstance(column, int) for column in rows[0]]
    most = np.where(numbers, index.max(0), 0)
    return Staged(buffer.used, index_at, *index.shape, tuple(most.tolist()))


def require_good(status: torch.Tensor) -> None:
    """Waits for the device; raises InputError where a kernel met what no encoder writes."""
    bad = torch.nonzero(status).flatten().tolist()
    if bad:
        raise damaged("keys and segments within their tables", f"others in samples {bad} of batch")


def _append(buffer: HostBuffer, array: NDArray[Any]) -> int:
    at = buffer.reserve(array.nbytes)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    buffer.bytes[at : at + array.nbytes] = flat
    return at


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
