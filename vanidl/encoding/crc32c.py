"""Masked CRC-32C (Castagnoli), the checksum of TFRecord files and TensorBoard event files.

Masked: rotated right by 15 bits, plus a constant (tensorflow/core/lib/hash/crc32c.h).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

_MASK_DELTA = 0xA282EAD8


@cache
def _load_value() -> Callable[[bytes], int]:
    """The library's function: it takes as long to import as a third of numpy, few runs need it."""
    import google_crc32c

    value: Callable[[bytes], int] = google_crc32c.value
    return value


def masked_crcs(data: bytes, ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """The masked checksum of each range [low, high) of the data."""
    value = _load_value()
    crcs = np.fromiter((value(data[low:high]) for low, high in ranges), np.int64, len(ranges))
    return ((crcs >> 15 | crcs << 17) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """The masked checksum of the data."""
    crc = _load_value()(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
