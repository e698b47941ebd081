"""CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of many short ranges at once.

The checksum of TFRecord files. All ranges go through the table together, byte by byte, so
a file of a million scalars takes a fraction of a second without a C extension, and no mix of
lengths takes more steps than the longest range has bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_ONES = np.uint32(0xFFFFFFFF)


def masked_crcs(data: bytes, ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """The masked checksum of each range [low, high) of the data, as TFRecord stores it.

    Masked: rotated right by 15 bits, plus a constant (tensorflow/core/lib/hash/crc32c.h).
    """
    content = np.frombuffer(data, np.uint8)
    bounds = np.array(ranges, np.int64).reshape(-1, 2)
    order = np.argsort(bounds[:, 0] - bounds[:, 1], kind="stable")  # the longest first
    crcs = np.empty(len(ranges), np.uint32)
    crcs[order] = _crcs(content, bounds[order, 0], bounds[order, 1] - bounds[order, 0])
    rotated = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    return (rotated.astype(np.int64) + _MASK_DELTA) & 0xFFFFFFFF


def _crcs(
    content: NDArray[np.uint8], low: NDArray[np.int64], length: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """The plain checksum of ranges whose lengths fall."""
    crc = np.full(len(low), _ONES, np.uint32)
    longest = int(length[0]) if len(length) else 0
    longer = np.searchsorted(-length, -np.arange(longest), "left")  # ranges that have a byte i
    for i, count in enumerate(longer.tolist()):
        some = crc[:count]
        some[:] = _TABLE[(some ^ content[low[:count] + i]) & np.uint32(0xFF)] ^ (
            some >> np.uint32(8)
        )
    return crc ^ _ONES


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        odd = (table & np.uint32(1)).astype(bool)
        table = (table >> np.uint32(1)) ^ np.where(odd, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


_TABLE = _table()
