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
_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Borders:
    """Where elements end in a text that starts at an element."""

    commas: NDArray[np.int64]  # positions of the commas between elements
    close: int  # position of the bracket that closes the container, -1 if beyond the text


def borders(data: bytes | bytearray) -> Borders:
    """Borders between elements of a text, up to the end of their container."""
    text = np.frombuffer(data, np.uint8)
    commas: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    depth, inside, escaped = 0, 0, False
    for low in range(0, text.size, _PIECE):  # by pieces, as a place takes eight bytes
        quotes, after = _unescaped_quotes(text[low : low + _PIECE], escaped=escaped)
        places = np.flatnonzero(_STRUCTURAL[text[low : low + _PIECE]])
        places = places[(np.searchsorted(quotes, places) + inside) % 2 == 0]
        step = _DEPTH[text[low + places]]
        depths = depth + np.cumsum(step, dtype=np.int64)
        closing = np.flatnonzero(depths < 0)
        last = closing[0] if closing.size else places.size
        commas.append(low + places[:last][(step[:last] == 0) & (depths[:last] == 0)])
        if closing.size:
            return Borders(np.concatenate(commas), low + int(places[last]))
        depth = int(depths[-1]) if depths.size else depth
        inside, escaped = (inside + quotes.size) % 2, after
    return Borders(np.concatenate(commas), -1)


def in_string(data: bytes, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each place of a text that starts outside strings lies inside one."""
    quotes, _ = _unescaped_quotes(np.frombuffer(data, np.uint8), escaped=False)
    inside: NDArray[np.bool_] = np.searchsorted(quotes, places) % 2 == 1
    return inside


def _unescaped_quotes(text: NDArray[np.uint8], *, escaped: bool) -> tuple[NDArray[np.int64], bool]:
    """Places of the quotes, and whether what follows the text is escaped, as its start may be."""
    if escaped:
        text = text.copy()
        text[0] = ord("x")
    quote = text == ord('"')
    slashes = np.flatnonzero(text == ord("\\"))
    follows = False
    if slashes.size:
        ends = np.flatnonzero(np.append(np.diff(slashes) > 1, True))
        lengths = np.diff(np.append(-1, ends))
        after = slashes[ends[lengths % 2 == 1]] + 1
        follows = bool(after.size and after[-1] == text.size)
        quote[after[after < quote.size]] = False
    return np.flatnonzero(quote), follows
