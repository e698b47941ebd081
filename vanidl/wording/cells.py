"""Numbers of cells in sentences: each carries the key of its cell, whatever the words around it.

While a sentence is put together a number of a cell stands between marks with its key. `settle`
takes the marks out, once, when the sentence is done.
"""

from __future__ import annotations

import re
from dataclasses import replace

from vanidl.schema.dataclass import dataclass

_BEGIN, _BEHIND_KEY, _END = "\x01", "\x02", "\x03"  # texts from logs are cleaned of these
_MARKED = re.compile(
    f"{_BEGIN}([^{_BEGIN}-{_END}]*){_BEHIND_KEY}([^{_BEGIN}-{_END}]*){_END}",
)


@dataclass(frozen=True, slots=True)
class SaidCell:
    """A duration or share that a sentence says of a cell: its words, and where they begin."""

    text: str
    key: str
    at: int


class Sentence(str):
    """Words, and the cells that they say numbers of, in their order."""

    __slots__ = ("cells",)
    cells: tuple[SaidCell, ...]

    def __deepcopy__(self, _: dict[int, object]) -> Sentence:
        """Itself: it does not change."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """As its words and cells."""
        return _rebuild, (str(self), self.cells)


def _rebuild(words: str, cells: tuple[SaidCell, ...]) -> Sentence:
    sentence = Sentence(words)
    sentence.cells = cells
    return sentence


def name_gain(of: str, name: str) -> str:
    """The key of what a run gains: of an "action" or a "finding" by code, of a row of "what_if"."""
    return f"gain/{of}/{name}"


def mark_cell(key: str, text: str) -> str:
    """A number of a cell for a sentence to be; as it is where it is of none."""
    return f"{_BEGIN}{key}{_BEHIND_KEY}{text}{_END}" if key else text


def settle(marked: str) -> Sentence:
    """The sentence without its marks, and what they said."""
    words, cells, done, length = [], [], 0, 0
    for match in _MARKED.finditer(marked):
        before = marked[done : match.start()]
        words += [before, match[2]]
        cells.append(SaidCell(match[2], match[1], length + len(before)))
        length += len(before) + len(match[2])
        done = match.end()
    return _rebuild("".join([*words, marked[done:]]), tuple(cells))


def cells_of(*sentences: str) -> tuple[SaidCell, ...]:
    """The cells of some sentences, one after another."""
    return tuple(cell for each in sentences for cell in getattr(each, "cells", ()))


def join(*sentences: str) -> Sentence:
    """Sentences as one, with the cells of each."""
    cells, length = list[SaidCell](), 0
    for each in sentences:
        cells += [replace(cell, at=length + cell.at) for cell in cells_of(each)]
        length += len(each)
    return _rebuild("".join(sentences), tuple(cells))


def cut(sentence: str, width: int) -> Sentence:
    """As much of it as has so much room, with the cells that are whole in it."""
    whole = [cell for cell in cells_of(sentence) if cell.at + len(cell.text) <= width]
    return _rebuild(sentence[:width], tuple(whole))
