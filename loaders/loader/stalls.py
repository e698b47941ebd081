"""Storage that does not answer: said after a while, asked again, given up in the end.

A read that hangs in the operating system can be neither interrupted nor taken back: it may write
to its memory whenever the storage comes back. So what asks again leaves threads, files and memory
of the attempt behind, and begins with new ones.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, NoReturn, Protocol, TypeVar

from ..errors import InputError, counted

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

READ_TIMEOUT_S = 300.0  # a file system that fails over takes minutes
ATTEMPTS = 3  # before storage is given up
SAID_AFTER_S = 10.0  # a wait that a user would wonder about
_MARGIN_S = 5.0  # for who waits to give up by itself
_log = logging.getLogger("vanidl_loaders")


class StalledError(InputError):
    """Storage did not answer within the limit; threads that wait for it are left behind."""


class Items(Protocol[T_co]):
    """What is read, item by item."""

    def __next__(self) -> T_co:
        """The next item, or StalledError."""

    def close(self) -> None:
        """Ends the reading; does not wait for what hangs."""


class Retried(Generic[T]):
    """Items of a reading that is begun again where it stalls, behind the last that it gave.

    Args:
        begin: Items given so far -> the items behind those.
        attempts: Before the error is raised.
    """

    def __init__(self, begin: Callable[[int], Items[T]], attempts: int = ATTEMPTS) -> None:
        self._begin, self._attempts = begin, attempts
        self._given = self._stalled = 0
        self._items = begin(0)

    def __iter__(self) -> Retried[T]:
        """Itself."""
        return self

    def __next__(self) -> T:
        """The next item.

        Raises:
            StalledError: As often as there are attempts, without an item between.
        """
        item = self._attempt()
        while item is None:
            item = self._attempt()
        self._given, self._stalled = self._given + 1, 0
        return item[0]

    def close(self) -> None:
        """Ends the reading."""
        self._items.close()

    def _attempt(self) -> tuple[T] | None:
        try:
            return (next(self._items),)
        except StalledError as error:
            # The thread that hangs is left behind, and a new one begins behind the last item.
            self._items.close()
            self._stalled += 1
            if self._stalled >= self._attempts:
                raise StalledError(
                    f"{error}; asked {counted(self._attempts, 'time')}: see to the storage and "
                    "start again"
                ) from error
            _log.warning("%s; asking again, attempt %d", error, self._stalled + 1)
            self._items = self._begin(self._given)
            return None


class WaitWatch:
    """A thread that says when somebody has waited long, and ends the process where it must.

    Args:
        waiting_since: When the wait that goes on began (time.perf_counter); None: nobody waits.
        what: Who waits for what.
        most_s: Longest wait that is not given up by whoever waits.
        ask_every_s: Between two looks.
    """

    def __init__(
        self,
        waiting_since: Callable[[], float | None],
        what: str,
        most_s: float,
        ask_every_s: float = 1.0,
    ) -> None:
        self._since, self._what, self._most_s = waiting_since, what, most_s
        self._ask_every_s, self._said = ask_every_s, 0.0
        self._ended = threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._run, name="wait-watch", daemon=True).start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._ask_every_s):
            since = self._since()
            if since is not None:
                self._look(since, time.perf_counter() - since)

    def _look(self, since: float, waited_s: float) -> None:
        # Said once for each wait.
        if waited_s >= SAID_AFTER_S and since != self._said:
            self._said = since
            _log.warning(
                "%s has waited %.0f s: storage is slow or does not answer; given up after %.0f s "
                "(--read-timeout-s)", self._what, waited_s, self._most_s
            )  # fmt: skip
        # Whoever waits should have given up by now: it hangs inside a library.
        if waited_s >= self._most_s + _MARGIN_S and _Ending.allowed:
            _end_process(
                f"expected data within {self._most_s:g} s, found none: {self._what.rstrip(',')}"
            )


class _Ending:
    """Whether this process is a command's own, so that it may be ended."""

    allowed = False


def allow_ending() -> None:
    """Has a wait inside a library end this process at last: nothing else can end such a wait."""
    _Ending.allowed = True


def _end_process(why: str) -> NoReturn:
    from ..ranks.ending import end_ranks

    sys.stderr.write(f"loaders: {why}: see to the storage and start again\n")
    sys.stderr.flush()
    end_ranks(1, why)
    os._exit(1)
