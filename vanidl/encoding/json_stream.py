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

import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from vanidl.encoding.budget import Budget
from vanidl.encoding.text_stream import TextStream
from vanidl.errors import InputError
from vanidl.schema.dataclass import dataclass

_DEPTH = np.zeros(256, np.int8)  # how much deeper the text behind a byte is
_DEPTH[list(b"{[")] = 1
_DEPTH[list(b"}]")] = -1
_STRUCTURAL = _DEPTH != 0
_STRUCTURAL[ord(",")] = True
_PIECE = 1 << 18


_NOT_FINITE = re.compile(rb"(?<![\w.])-?(?:nan|inf|infinity)(?![\w.])", re.IGNORECASE)

_MOST_REPAIRS = 1000  # elements of one text: each takes as long as a hundred sound ones
_MOST_TOKENS = 20_000  # of one text: the rest stays, and makes it broken


BLOCK_BYTES = 256 * 1024  # its values stay in the cache
MAX_VALUES = 600_000
VALUE_BYTES = 70
"""Most values in one text that is parsed at once, and what each takes: more where the file is so
large that half of what may be held of it holds them."""

_FIRST_WINDOW = 4096  # bytes; small, so that the first elements come early
_LENIENT_VALUES = 4  # sound values that one takes the time of which is parsed by itself
_MOST_LENIENT_BYTES = 2 * 1024 * 1024  # parsed element by element, which is slow
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
        # Behind a byte order mark there is an object or an array; anything else is not read as
        # JSON.
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
            # Objects within are read like this one, arrays block by block, all else as one value.
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
            found = find_borders(self.text[:window])
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
            # The separators seen so far tell a likely border; a search for a true one is left for
            # the rest.
            block = self._guessed_block(window) or self._exact_block(window)
            if block is None:
                window = self._longer(window)
                continue
            size, closed, values, broken = block
            yield Elements(key, first, values, broken)
            first = False
            self._parse(len(values) + broken)
            self._drop(size + 1)
            # Windows grow: the first elements come early, later ones in large pieces.
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
        found = find_borders(self.text[:window])
        closed = found.close >= 0
        if not closed and not found.commas.size:
            return self._last_block(window)
        size = found.close if closed else int(found.commas[-1])
        if found.commas.size:
            # Remember the text around a true border, with the indentation that marks its depth.
            comma = int(found.commas[0])
            start = len(bytes(self.text[:comma]).rstrip(_SPACE)) - 1
            start = len(bytes(self.text[: max(start, 0)]).rstrip(_SPACE))
            match = _SEPARATOR.match(self.text, start)
            self.separator = match[0] if match else b""
        text = bytes(self.text[:size])
        # Damaged elements cost themselves: the block is parsed one by one where it does not parse
        # whole.
        values = self._strict(text)
        if values is not None:
            return size, closed, values, 0
        self._parse(_LENIENT_VALUES * (1 + len(found.commas)))
        if len(text) > _MOST_LENIENT_BYTES:
            return size, closed, [], 1 + len(found.commas)
        return (size, closed, *parse_elements(text, found.commas))

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
            values, _ = parse_elements(text, np.empty(0, np.int64))
        return values[0] if values else None

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


# Borders in JSON text, found for a whole block at once. A text starts outside strings, at an
# element of an array or a member of an object.


@dataclass(frozen=True, slots=True)
class Borders:
    """Where elements end in a text that starts at an element."""

    commas: NDArray[np.int64]  # positions of the commas between elements
    close: int  # position of the bracket that closes the container, -1 if beyond the text


def find_borders(data: bytes | bytearray) -> Borders:
    """Borders between elements of a text, up to the end of their container."""
    text = np.frombuffer(data, np.uint8)
    commas: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    depth, inside, escaped = 0, 0, False
    for low in range(0, text.size, _PIECE):  # by pieces, as a place takes eight bytes
        quotes, after = _find_quotes(text[low : low + _PIECE], escaped=escaped)
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
    quotes, _ = _find_quotes(np.frombuffer(data, np.uint8), escaped=False)
    inside: NDArray[np.bool_] = np.searchsorted(quotes, places) % 2 == 1
    return inside


def _find_quotes(text: NDArray[np.uint8], *, escaped: bool) -> tuple[NDArray[np.int64], bool]:
    """Places of the quotes, and whether what follows the text is escaped, as its start may be."""
    if escaped:
        text = text.copy()
        text[0] = ord("x")
    quote = text == ord('"')
    # A quote is escaped behind an odd number of backslashes: runs of them, and their lengths.
    slashes = np.flatnonzero(text == ord("\\"))
    follows = False
    if slashes.size:
        ends = np.flatnonzero(np.append(np.diff(slashes) > 1, True))
        lengths = np.diff(np.append(-1, ends))
        after = slashes[ends[lengths % 2 == 1]] + 1
        follows = bool(after.size and after[-1] == text.size)
        quote[after[after < quote.size]] = False
    return np.flatnonzero(quote), follows


# Values that a strict parser refuses, element by element where need be: traces hold NaN and
# infinities in the spelling of C++ or Python, bytes that are no UTF-8, lone surrogates and control
# characters within strings.


def parse_elements(text: bytes, commas: NDArray[np.int64]) -> tuple[list[Any], int]:
    """The elements of an array's inner text, and how many were no JSON and left out.

    `commas` are the places of the commas between elements. NaN and infinities become None.
    """
    try:
        values: list[Any] = orjson.loads(b"[%b]" % _make_finite(text))
    except orjson.JSONDecodeError:
        return _parse_one_by_one(text, [-1, *commas.tolist(), len(text)])
    return values, 0


def _parse_one_by_one(text: bytes, borders: list[int]) -> tuple[list[Any], int]:
    values, broken = [], 0
    for a, b in pairwise(borders):
        item = text[a + 1 : b]
        whole, value = _try_strict(item)  # most elements beside a broken one are
        if not whole:
            broken += 1
            whole, value = _parse_item(item) if broken <= _MOST_REPAIRS else (False, None)
        values += [value] if whole else []
    return values, len(borders) - 1 - len(values)


def _try_strict(text: bytes) -> tuple[bool, Any]:
    try:
        return True, orjson.loads(text)
    except orjson.JSONDecodeError:
        return False, None


def _parse_item(text: bytes) -> tuple[bool, Any]:
    try:
        return True, json.loads(_make_finite(text).decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return False, None


def _make_finite(text: bytes) -> bytes:
    """The text with null in place of not-a-number tokens outside strings."""
    found = list(islice(_NOT_FINITE.finditer(text), _MOST_TOKENS))
    inside = in_string(text, np.array([m.start() for m in found], np.int64))
    outside = [match for match, within in zip(found, inside, strict=True) if not within]
    ends = [0, *(match.end() for match in outside)]
    starts = [*(match.start() for match in outside), len(text)]
    return b"null".join(text[a:b] for a, b in zip(ends, starts, strict=True))


@contextmanager
def catch_unreadable(
    path: str | Path, text: TextStream, expected: str, remedy: str
) -> Iterator[None]:
    """Within it JSON is read: what cannot be read, or is none, is an error of the input.

    Raises:
        InputError: as above, with what was expected and what to do.
    """
    try:
        yield
    except OSError as error:
        why = f"{path}: {expected}, found no readable file ({error.strerror})"
        raise InputError(f"{why}; check the path and its permissions") from error
    except NotJson as error:
        what = f"{error}, {text.damage}" if text.damage else str(error)
        raise InputError(f"{path}: {expected}, found {what}; {remedy}") from error
