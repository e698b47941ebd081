r"""Requests on standard input as JSON that every reader takes.

JSON may write half a character (a lone surrogate, `"\ud800"`). The protocol's package drops such a
request without an answer, and who asked waits for good.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

_ESCAPE = re.compile(
    rb"\\(?:u(?P<pair>d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|u(?P<half>d[89a-f][0-9a-f]{2})|.)",
    re.IGNORECASE | re.DOTALL,
)
_UNKNOWN = rb"\ufffd"  # U+FFFD: what stands for a character that is none


def without_halves(line: bytes) -> bytes:
    """A line of JSON with U+FFFD for each half of a character."""
    return _ESCAPE.sub(lambda found: _UNKNOWN if found["half"] else found[0], line)


class _Lines(io.RawIOBase):
    """Lines of a stream, each as it comes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, b""

    def readable(self) -> bool:
        """It is read only."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # a buffer of any kind
        """The rest of a line, or the beginning of the next; 0 at the end."""
        self._left = self._left or without_halves(self._stream.readline())
        piece = self._left[: len(buffer)]
        buffer[: len(piece)] = piece
        self._left = self._left[len(piece) :]
        return len(piece)


@contextmanager
def whole_text_on_stdin() -> Iterator[None]:
    """Standard input without halves of characters; children find none, as theirs would be ours."""
    before, own = sys.stdin, os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    lines = io.BufferedReader(_Lines(os.fdopen(own, "rb", closefd=False)))
    sys.stdin = io.TextIOWrapper(lines, encoding="utf-8", errors="replace")
    try:
        yield
    finally:
        sys.stdin = before
        os.dup2(own, 0)
