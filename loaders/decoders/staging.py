"""The samples of a batch in one buffer, so that one copy takes them to the device.

index     (samples, columns) int64: of each column an offset in bytes, or a number
sections  those of each sample in turn, each at a multiple of 64 bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .container import ALIGNMENT, damaged

Column = NDArray[Any] | int
"""A section, of which the index holds the offset, or a number that the index holds."""


@dataclass(frozen=True)
class Staged:
    """A batch in one buffer.

    Attributes:
        buffer: (nbytes,) uint8, nbytes a multiple of 64, on the host or the device.
        samples: How many.
        columns: Of the index.
        most: Largest number of each column over the samples (0 for sections): sizes of grids.
    """

    buffer: torch.Tensor
    samples: int
    columns: int
    most: tuple[int, ...]

    def to(self, device: torch.device) -> Staged:
        """The batch on a device. From page-locked memory the copy is only begun."""
        buffer = self.buffer.to(device, non_blocking=True)
        return Staged(buffer, self.samples, self.columns, self.most)


def stage(rows: Sequence[Sequence[Column]], *, pin_memory: bool = False) -> Staged:
    """The rows of columns in one buffer on the host, page-locked where asked for."""
    index = np.zeros((len(rows), len(rows[0])), np.int64)
    end = _rounded(index.nbytes)
    for number, row in enumerate(rows):
        for place, column in enumerate(row):
            index[number, place] = column if isinstance(column, int) else end
            end += 0 if isinstance(column, int) else _rounded(column.nbytes)
    buffer = torch.empty(end, dtype=torch.uint8, pin_memory=pin_memory)
    held = buffer.numpy()
    held[: index.nbytes] = index.reshape(-1).view(np.uint8)
    for number, row in enumerate(rows):
        for place, column in enumerate(row):
            if not isinstance(column, int):
                begin = int(index[number, place])
                flat = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
                held[begin : begin + column.nbytes] = flat
    most = tuple(
        max(value for row in rows if isinstance(value := row[place], int))
        if isinstance(rows[0][place], int)
        else 0
        for place in range(index.shape[1])
    )
    return Staged(buffer, len(rows), index.shape[1], most)


def require_good(status: torch.Tensor) -> None:
    """Waits for the device; raises InputError where a kernel met what no encoder writes."""
    bad = torch.nonzero(status).flatten().tolist()
    if bad:
        raise damaged("keys and segments within their tables", f"others in samples {bad} of batch")


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
