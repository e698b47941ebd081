"""Where a command speaks: names in data and messages cannot drive the terminal.

Everything on standard output and standard error passes `EscapedStream`; a reader that went away
ends the command without a word.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast


class ReaderGone(Exception):
    """Whoever read the output went away: unlike a broken pipe between ranks, no error."""


class EscapedStream:
    """A text stream on which only line breaks control the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        """Writes the text with other control characters as escapes."""
        with _read():
            self.unescaped.write("".join(map(_escaped, text)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each of the texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hands on what was written."""
        with _read():
            self.unescaped.flush()

    def __getattr__(self, name: str) -> object:
        """All else is as of the stream."""
        return getattr(self.unescaped, name)


@contextmanager
def _read() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone from error


@contextmanager
def escaped() -> Iterator[None]:
    """Escaped standard output and error until the block is left."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, EscapedStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def unescaped() -> TextIO:
    """Standard error for what moves the cursor on purpose."""
    stream = sys.stderr
    return cast(TextIO, stream.unescaped if isinstance(stream, EscapedStream) else stream)


def discard(stream: TextIO) -> None:
    """What is still to be written there goes nowhere: its reader went away."""
    with suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, stream.fileno(), inheritable=False)
        os.close(sink)


def _escaped(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
