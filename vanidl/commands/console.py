"""Where a command speaks: two streams that may be closed, and a user who may end it.

Everything on standard output and standard error passes `EscapedStream`, so that nothing in a log
can drive the terminal.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TextIO, cast

from vanidl.formatting.terminal import EscapedStream

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def prepared() -> Iterator[None]:
    """Escaped streams, and signals that leave nothing half written, until the block is left."""
    # Opens standard streams that are closed, else files that we open take their numbers. Programs
    # that we start find them closed as before.
    for descriptor in range(3):
        if not _is_open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_escaped(stream) for stream in before)
    # Signals that end us unwind first, so that nothing half written stays. Those that are ignored
    # stay ignored. Other threads than the main one may set none.
    handlers: dict[int, signal.Handlers] = {}
    if threading.current_thread() is threading.main_thread():
        for ending in _ENDING:
            if signal.getsignal(ending) == signal.SIG_DFL:
                handlers[ending] = signal.SIG_DFL
                signal.signal(ending, _end)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for number, handler in handlers.items():
            signal.signal(number, handler)


def unescaped() -> TextIO:
    """Standard error for what moves the cursor on purpose."""
    return bare(sys.stderr)


def bare(stream: TextIO) -> TextIO:
    """The stream under the escapes, for what is printable and styled on purpose."""
    return stream.unescaped if isinstance(stream, EscapedStream) else stream


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at it."""
    return stream.isatty()


def wants_colour(stream: TextIO) -> bool:
    """A terminal that knows colours, and nobody who asked for none (https://no-color.org)."""
    plain_terminal = os.environ.get("TERM", "") in ("", "dumb")
    return is_terminal(stream) and not plain_terminal and not os.environ.get("NO_COLOR")


def tell(message: str) -> None:
    """Says it on standard error; one that is closed changes nothing else."""
    try:
        sys.stderr.write(message)
        sys.stderr.flush()
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """What is still to be written there goes nowhere: it cannot be written."""
    with suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, stream.fileno(), inheritable=False)
        os.close(sink)


def _escaped(stream: TextIO | None) -> TextIO:
    """The stream with escapes; what its encoding cannot hold is escaped as well."""
    if stream is None:  # closed before we were started
        stream = io.StringIO()
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return cast(TextIO, EscapedStream(stream))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
