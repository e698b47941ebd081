"""Members of a huge JSON object, its arrays delivered in blocks of whole elements.

A trace file is one object whose array of events holds nearly all of the text. It is cut at
borders between elements and each block is parsed alone, so the memory needed is that of a
block, not of the file.

Where a block ends is guessed first: at the last place that looks like the separator found
between earlier elements. The text from one border to a true border, set in brackets, is a
valid array. The reverse holds as well, as JSON is read from left to right without
backtracking: if it is valid, the guess was a border. So one parse both proves and uses the
guess. Where it fails, the structure of the block is worked out exactly.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from vanidl.encoding import json_lenient
from vanidl.encoding.budget import Budget
from vanidl.encoding.json_borders import Borders, borders

BLOCK_BYTES = 256 * 1024  # its values stay in the cache
MAX_VALUES = 600_000
VALUE_BYTES = 70
"""Most values in one text that is parsed at once, and what each takes: more where the file is so
large that half of what may be held of it holds them."""

_FIRST_WINDOW = 4096
_LENIENT_VALUES = 4  # sound values that one takes the time of which is parsed by itself
_MOST_LENIENT_BYTES = 2 * 1024 * 1024
_KEY = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*(?=\S)', re.DOTALL)
_SEPARATOR = re.compile(rb"\s*\}\s*,\s*\{\s*")
_SPACE = b" \t\r\n"
_DEEPEST = 4  # of objects that are gone into: more is no format that is read
_BEFORE_VALUES = (b",", b":", b"[", b"{")


class NotJson(ValueError):
    """The text is neither a JSON object nor an array."""


class CutJson(ValueError):
    """The text ends or stops being JSON before its end; all before was delivered."""

    @property
    def loss(self) -> str:
        """A sentence about what is lost."""
        return f"the JSON text is cut ({self})"


class BeyondLimit(CutJson):
    """The text holds more than a file of its size may; what came before was given."""

    @property
    def loss(self) -> str:
        """A sentence about the limit."""
        return str(self)


class TextBehind(CutJson):
    """The JSON ends and other text follows; all of the JSON was delivered."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the top-level object that is no array."""

    key: str
    value: object


@dataclass(frozen=True, slots=True)
class Elements:
    """Some elements of a member that is an array, in order.

    `first` marks the array's first block; an empty array has one block without elements.
    `broken` counts elements whose text is no JSON; they are left out.
    """

    key: str
    first: bool
    values: list[Any]
    broken: int = 0


def members(
    chunks: Iterable[bytes],
    *,
    array_key: str = "",
    block_bytes: int = BLOCK_BYTES,
    budget: Budget | None = None,
    enter: Collection[str] = (),
) -> Iterator[Member | Elements]:
    """Yield the members of a JSON object in the order of the text, repeated keys included.

    Text that is one bare array gives its elements under `array_key`. Values are what
    `json.loads` gives, except that NaN and infinities are None. Objects under a key of `enter`,
    alone or in an array, are gone into: their members come in their place.

    Raises:
        NotJson: The text is empty or starts with neither `{` nor `[`.
        CutJson: After the last whole element or member, where the text does not close.
        TextBehind: After everything, where more than white space follows.
    """
    return _Scanner(chunks, block_bytes, budget or Budget.of_file(0), enter).run(array_key)


_Block = tuple[int, bool, list[Any], int]
"""Length of its text, whether its array ends there, values, number of broken elements."""


class _Scanner:
    def __init__(
        self, chunks: Iterable[bytes], block_bytes: int, budget: Budget, enter: Collection[str]
    ) -> None:
        self.budget = budget
        self.enter = enter
        self.depth = 0
        self.chunks = iter(chunks)
        self.block_bytes = max(1, block_bytes)
        self.text = bytearray()
        self.ended = False
        self.separator = b""

    def run(self, array_key: str) -> Iterator[Member | Elements]:
        self._fill(3)
        self._drop(3 if self.text.startswith(b"\xef\xbb\xbf") else 0)
        self._fill_to_text()
        opening = bytes(self.text[:1])
        if opening not in (b"{", b"["):
            what = "text that is neither a JSON object nor an array"
            raise NotJson(what if opening else "an empty file")
        self._drop(1)
        yield from self._array(array_key) if opening == b"[" else self._object()
        self._fill_to_text()
        if self.text:
            behind = len(self.text) + sum(len(chunk) for chunk in self.chunks)
            raise TextBehind(f"{behind:,} bytes of other text stand behind the end of the JSON")

    def _object(self) -> Iterator[Member | Elements]:
        self._fill_to_text()
        closed = self.text.startswith(b"}")
        self._drop(int(closed))
        while not closed:
            key = self._key()
            if key in self.enter and self.depth < _DEEPEST and self._begins_objects():
                yield from self._objects()
                closed = self._after_array()
            elif self.text.startswith(b"["):
                self._drop(1)
                yield from self._array(key)
                closed = self._after_array()
            else:
                end, closed = self._item_end()
                yield Member(key, self._value(bytes(self.text[:end])))
                self._drop(end + 1)

    def _begins_objects(self) -> bool:
        """Whether the text begins with an object, or with an array of objects."""
        self._fill(_FIRST_WINDOW)
        in_array = self.text[1:_FIRST_WINDOW].lstrip(_SPACE) if self.text.startswith(b"[") else b""
        return self.text.startswith(b"{") or in_array.startswith(b"{")

    def _objects(self) -> Iterator[Member | Elements]:
        """The members of an object, or of all objects of an array, which end with it."""
        self.depth += 1
        in_array = self.text.startswith(b"[")
        closed = False
        while not closed:
            self._drop(int(in_array))  # the bracket, or the comma behind the object before
            self._fill_to_text()
            if not self.text.startswith(b"{"):
                raise CutJson("no object where one is expected")
            self._drop(1)
            yield from self._object()
            self._fill_to_text()
            closed = not in_array or self.text.startswith(b"]")
            if in_array and not self.text.startswith((b"]", b",")):
                raise CutJson("no comma or bracket after an object")
        self._drop(int(in_array))
        self.depth -= 1

    def _key(self) -> str:
        window = _FIRST_WINDOW
        self._fill_to_text()
        while self.text.startswith(b'"'):
            self._fill(window)
            match = _KEY.match(self.text, 0, window)
            if match:
                key = str(self._value(match[1]))
                self._drop(match.end())
                return key
            window = self._longer(window)
        raise CutJson("no further member")

    def _item_end(self) -> tuple[int, bool]:
        """End of the item at the start of the text, and whether it is the last one."""
        window = min(_FIRST_WINDOW, self.block_bytes)
        while True:
            self._fill(window)
            found = borders(self.text[:window])
            if found.commas.size:
                return int(found.commas[0]), False
            if found.close >= 0:
                return found.close, True
            window = self._longer(window)

    def _after_array(self) -> bool:
        self._fill_to_text()
        mark = bytes(self.text[:1])
        if mark not in (b",", b"}"):
            raise CutJson("no comma or brace after an array")
        self._drop(1)
        return mark == b"}"

    def _array(self, key: str) -> Iterator[Elements]:
        """Yield the blocks of the array whose `[` was just dropped; drop its `]`."""
        first, closed = True, False
        window = min(_FIRST_WINDOW, self.block_bytes)
        while not closed:
            self._fill(window)
            block = self._guessed_block(window) or self._exact_block(window)
            if block is None:
                window = self._longer(window)
                continue
            size, closed, values, broken = block
            yield Elements(key, first, values, broken)
            first = False
            self._parse(len(values) + broken)
            self._drop(size + 1)
            window = min(window * 4, self.block_bytes)

    def _guessed_block(self, window: int) -> _Block | None:
        """The block up to the last likely separator; None where that is no border."""
        if not self.separator:
            return None
        place = self.text.rfind(self.separator, 0, window)
        if place < 0:
            return None
        size = place + self.separator.index(b",")
        values = self._strict(self.text[:size])
        return None if values is None else (size, False, values, 0)

    def _exact_block(self, window: int) -> _Block | None:
        """The block up to the last true border; None where the text holds none."""
        found = borders(self.text[:window])
        closed = found.close >= 0
        if not closed and not found.commas.size:
            return self._last_block(window)
        size = found.close if closed else int(found.commas[-1])
        if found.commas.size:
            self._learn_separator(int(found.commas[0]))
        text = bytes(self.text[:size])
        values = self._strict(text)
        if values is not None:
            return size, closed, values, 0
        self._parse(_LENIENT_VALUES * (1 + len(found.commas)))
        return (size, closed, *_lenient(text, found))

    def _parse(self, values: int) -> None:
        if not self.budget.parse(values):
            raise BeyondLimit(f"it holds more than {self.budget.values_limit}")

    def _last_block(self, window: int) -> _Block | None:
        """The element that a cut text ends with, where it is whole."""
        if not (self.ended and window >= len(self.text) and self.text.rstrip().endswith(b"}")):
            return None
        values = self._strict(self.text)
        return None if values is None else (len(self.text), False, values, 0)

    def _longer(self, window: int) -> int:
        """How far to look next; refuses where the text ended, or what begins it is too long."""
        if self.ended and window >= len(self.text):
            raise CutJson("an array or a member does not end")
        if window >= self.budget.item_bytes:
            raise BeyondLimit(
                f"an element or a member of it is longer than {self.budget.item_limit}"
            )
        return min(4 * window, self.budget.item_bytes)

    def _strict(self, text: bytes | bytearray) -> list[Any] | None:
        most = max(MAX_VALUES, self.budget.held_bytes // (2 * VALUE_BYTES))
        if len(text) > most and sum(map(text.count, _BEFORE_VALUES)) > most:
            return None
        try:
            values: list[Any] = orjson.loads(b"[" + text + b"]")
        except orjson.JSONDecodeError:
            return None
        return values

    def _value(self, text: bytes) -> object:
        values = self._strict(text)
        if values is None and len(text) <= 2 * BLOCK_BYTES:
            values, _ = json_lenient.elements(text, np.empty(0, np.int64))
        return values[0] if values else None

    def _learn_separator(self, comma: int) -> None:
        """Remember the text around a true border, with the indentation that marks its depth."""
        start = len(bytes(self.text[:comma]).rstrip(_SPACE)) - 1
        start = len(bytes(self.text[: max(start, 0)]).rstrip(_SPACE))
        match = _SEPARATOR.match(self.text, start)
        self.separator = match[0] if match else b""

    def _fill(self, size: int) -> None:
        while len(self.text) < size and not self.ended:
            chunk = next(self.chunks, None)
            if chunk is None:
                self.ended = True
            else:
                self.text += chunk

    def _fill_to_text(self) -> None:
        """Drop white space until something else starts the text."""
        while True:
            self._drop(len(self.text) - len(self.text.lstrip(_SPACE)))
            if self.text or self.ended:
                return
            self._fill(1)

    def _drop(self, size: int) -> None:
        del self.text[:size]


def _lenient(text: bytes, found: Borders) -> tuple[list[Any], int]:
    if len(text) > _MOST_LENIENT_BYTES:
        return [], 1 + len(found.commas)
    return json_lenient.elements(text, found.commas)
