"""Borders in JSON text, found for a whole block at once.

A text starts outside strings, at an element of an array or a member of an object.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_DEPTH = np.zeros(256, np.int8)
_DEPTH[list(b"{[")] = 1
_DEPTH[list(b"}]")] = -1
_STRUCTURAL = _DEPTH != 0
_STRUCTURAL[ord(",")] = True


@dataclass(frozen=True, slots=True)
class Borders:
    """Where elements end in a text that starts at an element."""

    commas: NDArray[np.int64]  # positions of the commas between elements
    close: int  # position of the bracket that closes the container, -1 if beyond the text


def _unescaped_quotes(text: NDArray[np.uint8]) -> NDArray[np.int64]:
    quote = text == ord('"')
    slashes = np.flatnonzero(text == ord("\\"))
    if slashes.size:
        ends = np.flatnonzero(np.append(np.diff(slashes) > 1, True))
        lengths = np.diff(np.append(-1, ends))
        after = slashes[ends[lengths % 2 == 1]] + 1
        quote[after[after < quote.size]] = False
    return np.flatnonzero(quote)


def borders(data: bytes | bytearray) -> Borders:
    """Borders between elements of a text, up to the end of their container."""
    text = np.frombuffer(data, np.uint8)
    quotes = _unescaped_quotes(text)
    places = np.flatnonzero(_STRUCTURAL[text])
    places = places[np.searchsorted(quotes, places) % 2 == 0]
    step = _DEPTH[text[places]]
    depth = np.cumsum(step, dtype=np.int64)
    closing = np.flatnonzero(depth < 0)
    last = closing[0] if closing.size else places.size
    commas = places[:last][(step[:last] == 0) & (depth[:last] == 0)]
    return Borders(commas, int(places[last]) if closing.size else -1)


def in_string(data: bytes, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each place of a text that starts outside strings lies inside one."""
    quotes = _unescaped_quotes(np.frombuffer(data, np.uint8))
    inside: NDArray[np.bool_] = np.searchsorted(quotes, places) % 2 == 1
    return inside
