"""Text of a JSON file in bounded chunks, inflated where the file is a gzip file.

Damage never raises: everything that can be inflated before it is delivered, then the
stream ends and `damage` says why.
"""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from vanidl.encoding.budget import Budget

gzip_codec: Any
try:
    gzip_codec = importlib.import_module("isal.isal_zlib")
except ImportError:  # platforms without a wheel
    gzip_codec = zlib

GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # of zlib: 15 bits of window, and 16 for the header of gzip
_READ_BYTES = 128 * 1024
_FIRST_PIECE = 2048  # of a member
_ZEROS = re.compile(rb"\0*")
# Text of a call that fails is lost, so small outputs keep the loss at damage small.
_INFLATE_BYTES = 256 * 1024


class TextStream:
    """The text of one file; iterate once.

    Attributes:
        budget: of the file.
        damage: "" while all is well, else what ended the stream early.
        packed: whether it is a gzip file, once the first text has come.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self.packed = False
        try:
            nbytes = path.stat().st_size
        except OSError:  # opening it will say why
            nbytes = 0
        self.budget = Budget.of_file(nbytes)

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb", buffering=0) as file:
            first = file.read(_READ_BYTES)
            chunks = _chunks(first, file)
            self.packed = first.startswith(GZIP_MAGIC)
            if self.packed:
                yield from self._inflated(chunks)
            else:
                yield from chunks

    def _inflated(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        inflater = _Inflater(self.budget)
        try:
            for chunk in chunks:
                yield from inflater.feed(chunk)
            yield from inflater.rest()
        # What came before the damage is of use: it was handed on, and the damage is said.
        except (zlib.error, gzip_codec.error) as error:
            self.damage = f"the gzip data is damaged ({error})"
            return
        if inflater.spent:
            self.damage = f"its decompressed size exceeds {self.budget.text_limit}"
            return
        if not inflater.whole:
            self.damage = "the gzip data is cut"


class _Inflater:
    """Text of concatenated gzip members, zeros between them ignored."""

    def __init__(self, budget: Budget) -> None:
        self.pending = b""
        self.member: Any = None
        self.piece = _FIRST_PIECE
        self.spent = False
        self._budget = budget

    @property
    def whole(self) -> bool:
        return self.member is None and not self.pending

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        data, at = self.pending + chunk, 0
        while at < len(data) and not self.spent:
            if self.member is None:
                at = _ZEROS.match(data, at).end()  # type: ignore[union-attr]
                if len(data) - at < len(GZIP_MAGIC):
                    break
                self.member = gzip_codec.decompressobj(wbits=_GZIP_WINDOW)
                self.piece = _FIRST_PIECE
            part = data[at : at + self.piece]
            yield self._text(part)
            at += len(part) - self._left()
        self.pending = data[at:]

    def _left(self) -> int:
        """How much of what was fed last is still to be fed; the next member begins there."""
        if self.member.eof:
            left = len(self.member.unused_data)
            self.member = None
            return left
        # Each member's end copies what follows it, so short ones are fed little.
        self.piece = min(2 * self.piece, _READ_BYTES)
        return len(self.member.unconsumed_tail)

    def rest(self) -> Iterator[bytes]:
        """What the codec still holds back after the last input."""
        while self.member is not None and not self.spent and (text := self._text(b"")):
            yield text

    def _text(self, packed: bytes) -> bytes:
        text: bytes = self.member.decompress(packed, _INFLATE_BYTES)
        self.spent = not self._budget.inflate(len(text))
        return text


def _chunks(chunk: bytes, file: FileIO) -> Iterator[bytes]:
    while chunk:
        yield chunk
        chunk = file.read(_READ_BYTES)
