"""Masked CRC-32C (Castagnoli), the checksum of TFRecord files and TensorBoard event files.

Masked: rotated right by 15 bits, plus a constant (tensorflow/core/lib/hash/crc32c.h).
"""

from __future__ import annotations

from collections.abc import Sequence

import google_crc32c
import numpy as np
from numpy.typing import NDArray

_MASK_DELTA = 0xA282EAD8


def masked_crcs(data: bytes, ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """The masked checksum of each range [low, high) of the data."""
    value = google_crc32c.value
    crcs = np.fromiter((value(data[low:high]) for low, high in ranges), np.int64, len(ranges))
    return ((crcs >> 15 | crcs << 17) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """The masked checksum of the data."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
