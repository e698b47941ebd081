"""Values of JSON text that a strict parser refuses, element by element where need be.

Traces hold NaN and infinities in the spelling of C++ or Python, bytes that are no UTF-8,
lone surrogates and control characters within strings.
"""

from __future__ import annotations

import json
import re
from itertools import islice, pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from vanidl.encoding.json_borders import in_string

_NOT_FINITE = re.compile(rb"(?<![\w.])-?(?:nan|inf|infinity)(?![\w.])", re.IGNORECASE)

_MOST_REPAIRS = 1000  # elements of one text: each takes as long as a hundred sound ones
_MOST_TOKENS = 20_000  # of one text: the rest stays, and makes it broken


def elements(text: bytes, commas: NDArray[np.int64]) -> tuple[list[Any], int]:
    """The elements of an array's inner text, and how many were no JSON and left out.

    `commas` are the places of the commas between elements. NaN and infinities become None.
    """
    try:
        values: list[Any] = orjson.loads(b"[%b]" % _finite(text))
    except orjson.JSONDecodeError:
        return _one_by_one(text, [-1, *commas.tolist(), len(text)])
    return values, 0


def _one_by_one(text: bytes, borders: list[int]) -> tuple[list[Any], int]:
    values, broken = [], 0
    for a, b in pairwise(borders):
        item = text[a + 1 : b]
        whole, value = _sound(item)  # most elements beside a broken one are
        if not whole:
            broken += 1
            whole, value = _item(item) if broken <= _MOST_REPAIRS else (False, None)
        values += [value] if whole else []
    return values, len(borders) - 1 - len(values)


def _sound(text: bytes) -> tuple[bool, Any]:
    try:
        return True, orjson.loads(text)
    except orjson.JSONDecodeError:
        return False, None


def _item(text: bytes) -> tuple[bool, Any]:
    try:
        return True, json.loads(_finite(text).decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return False, None


def _finite(text: bytes) -> bytes:
    """The text with null in place of not-a-number tokens outside strings."""
    found = list(islice(_NOT_FINITE.finditer(text), _MOST_TOKENS))
    inside = in_string(text, np.array([m.start() for m in found], np.int64))
    outside = [match for match, within in zip(found, inside, strict=True) if not within]
    ends = [0, *(match.end() for match in outside)]
    starts = [*(match.start() for match in outside), len(text)]
    return b"null".join(text[a:b] for a, b in zip(ends, starts, strict=True))
