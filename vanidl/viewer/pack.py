"""Columns of whole numbers as a page or a server sends them: few bytes, exact, quick to read.

A column is laid out byte by byte: the lowest byte of every value, then the next. So bytes that
hardly differ lie together, which deflate makes small.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
Spec = dict[str, Any]

_SMALL = 6
_FAST = 1


def packed_columns(
    columns: Mapping[str, NDArray[np.integer]], *, deltas: Sequence[str] = (), fast: bool = False
) -> Spec:
    """The columns as JSON: how to read each, and all bytes, deflated, in base64.

    Columns in `deltas` are stored as differences of neighbours. Values below zero are stored
    zigzag: 0, -1, 1, -2 as 0, 1, 2, 3.
    """
    about, blob = [], []
    for name, values in columns.items():
        whole = np.ascontiguousarray(values, np.int64)
        stored = np.diff(whole, prepend=np.int64(0)) if name in deltas else whole
        signed = bool(len(stored)) and bool((stored < 0).any())
        bits = _zigzag(stored) if signed else stored.view(np.uint64)
        width = max(1, -(-int(bits.max(initial=0)).bit_length() // 8))
        planes = bits.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T
        blob.append(np.ascontiguousarray(planes).tobytes())
        about.append([name, len(whole), width, int(signed), int(name in deltas)])
    return {"columns": about, "data": _deflated(b"".join(blob), fast=fast)}


def packed_texts(texts: Sequence[str], *, fast: bool = False) -> str:
    """A list of texts, as JSON, deflated, in base64."""
    return _deflated(json.dumps(texts, ensure_ascii=True).encode(), fast=fast)


def _zigzag(values: Int64Array) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _deflated(raw: bytes, *, fast: bool) -> str:
    return base64.b64encode(zlib.compress(raw, _FAST if fast else _SMALL)).decode("ascii")
