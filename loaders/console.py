"""Where a command speaks: names in data and messages cannot drive the terminal.

Everything on standard output and standard error passes `EscapedStream`, which hides credentials,
too: a path or an option that holds one is repeated without it. A reader that went away ends the
command without a word, a signal lets it clear up first. `show_progress` says how far long work is.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TextIO, cast

SAME_S = 2.0
"""Interrupts that come closer are one."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class ReaderGone(Exception):
    """Whoever read the output went away: unlike a broken pipe between ranks, no error."""


class Ended(BaseException):
    """A signal asked the command to end; it unwinds, so that nothing half written stays."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_status = 128 + number


class EscapedStream:
    """A text stream on which only line breaks control the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        """Writes the text with other control characters as escapes, without credentials."""
        with _notice_gone_reader():
            self.unescaped.write("".join(map(_escape, hide_credentials(text))))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each of the texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hands on what was written."""
        with _notice_gone_reader():
            self.unescaped.flush()

    def __getattr__(self, name: str) -> object:
        """All else is as of the stream."""
        return getattr(self.unescaped, name)


@contextmanager
def _notice_gone_reader() -> Iterator[None]:
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


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raises Ended where a signal would end the process, until the block is left.

    Signals that are ignored or handled stay so. Other threads than the main one may set none.
    """
    own = []
    if threading.current_thread() is threading.main_thread():
        own = [n for n in _ENDING if signal.getsignal(n) == signal.SIG_DFL]
    for number in own:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in own:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise Ended(number)


def end_quietly() -> None:
    """Has a signal that comes while a generator is cleared up leave no traceback.

    Python cannot raise it there: it is printed, and what is unwound goes on.
    """
    shown = sys.unraisablehook

    def hook(raised: sys.UnraisableHookArgs) -> None:
        if not isinstance(raised.exc_value, Ended | KeyboardInterrupt):
            shown(raised)

    sys.unraisablehook = hook


def interrupted_once() -> None:
    """Has an interrupt in `SAME_S` after the first be none, a later one end the process at once.

    A launcher passes on what the terminal has sent to its ranks already: the second would
    interrupt the clearing up.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Interrupts())


class _Interrupts:
    def __init__(self) -> None:
        self._first_s = math.inf

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._first_s == math.inf:
            self._first_s = now_s
            raise KeyboardInterrupt
        if now_s > self._first_s + SAME_S:
            os._exit(128 + number)


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


def _escape(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


HIDDEN = "***"

_NAME = r"(?:token|secret|password|passwd|signature|sig|credential|(?:api|access|secret)[_-]?key)"
_VALUE = r"[^\s&\"'\\,;]+"
_PATTERNS = (
    # https://user:secret@host, also where a path has made one slash of two
    re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]{0,20}:/{1,2})[^/\s\"'@]+@"),
    # --token X, --api-key=X, ?X-Amz-Signature=X, HF_TOKEN=X
    re.compile(rf"(\b[\w.-]{{0,40}}{_NAME}\s*=\s*){_VALUE}", re.IGNORECASE),
    re.compile(rf"(--[\w-]{{0,40}}{_NAME}\s+){_VALUE}", re.IGNORECASE),
    re.compile(rf"(\bbearer\s+){_VALUE}", re.IGNORECASE),
    # Tokens that say by their beginning what they are
    re.compile(r"()\b(?:sk-|hf_|ghp_|github_pat_|glpat-|xox[abp]-|AKIA)[\w-]{12,}"),
)


def hide_credentials(text: str) -> str:
    """The text with HIDDEN in place of each credential."""
    for number, pattern in enumerate(_PATTERNS):
        text = pattern.sub(rf"\g<1>{HIDDEN}{'@' * (not number)}", text)
    return text


WIDTH = 24  # of the bar, characters


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function (done, total) that draws the bar, or None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(done: int, total: int) -> None:
        # The bar goes past the stream that escapes control characters: these are its own.
        filled = WIDTH * done // max(total, 1)
        drawn = "#" * filled + "." * (WIDTH - filled)
        unescaped().write(f"\r{what} [{drawn}] {done}/{total}\033[K")
        sys.stderr.flush()

    try:
        yield show
    finally:
        unescaped().write("\r\033[K")
