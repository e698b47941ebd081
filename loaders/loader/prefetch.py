"""A thread that runs ahead of whoever consumes, by so many items and no more."""

from __future__ import annotations

import threading
from collections.abc import Generator
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from ..errors import Caught, UsageError
from .stalls import StalledError

T = TypeVar("T")


class Background(Generic[T]):
    """Items of a generator, made in a thread of its own, at most `ahead` before they are asked for.

    What the generator raises is raised in `__next__`, behind the items made before it.

    Args:
        items: Made in the thread.
        ahead: Most items that wait or are in the making.
        timeout_s: Longest wait for one, after which the thread is left behind; None: no limit.

    Attributes:
        stalled: It was left behind: what it uses is not to be used, nor closed.
    """

    def __init__(
        self, items: Generator[T, None, None], ahead: int, timeout_s: float | None = None
    ) -> None:
        if ahead < 1:
            raise UsageError(f"expected at least 1 item ahead, found {ahead}: raise it")
        self._items, self._timeout_s = items, timeout_s
        # Queues of the C library: a condition takes several locks and system calls a hand-over.
        self._waiting: SimpleQueue[tuple[T] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(ahead):
            self._room.put(None)
        self._closed = self.stalled = False
        self._caught = Caught()
        # A daemon: a program that ends without close is not held up by it.
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Background[T]:
        """Itself."""
        return self

    def __next__(self) -> T:
        """The next item, waiting for it if need be.

        Raises:
            StalledError: It did not come within the limit.
        """
        if self._closed:
            raise StopIteration
        try:
            item = self._waiting.get(timeout=self._timeout_s)
        except Empty:
            self.stalled = True
            raise StalledError(
                f"expected data from storage within {self._timeout_s:g} s, found none"
            ) from None
        # An item was taken: room for one more.
        if item is not None:
            self._room.put(None)
            return item[0]
        self._waiting.put(None)  # for whoever asks again
        error, self._caught.error = self._caught.error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Ends the thread and waits for its end unless it hangs; the generator is closed."""
        # Wakes the thread, which finds that nobody wants more.
        self._closed = True
        self._room.put(None)
        if not self.stalled:
            self._thread.join()
        # Items that nobody took are dropped, so that their memory is free.
        while not self._waiting.empty():
            self._waiting.get()

    def _run(self) -> None:
        with self._caught:
            try:
                while self._has_room() and self._make():
                    pass
            finally:
                self._items.close()
        self._waiting.put(None)

    def _has_room(self) -> bool:
        """Waits for room for an item; False: nobody wants one any more."""
        self._room.get()
        return not self._closed

    def _make(self) -> bool:
        """Makes one item; False behind the last."""
        for item in self._items:
            self._waiting.put((item,))
            return True
        return False


class BackgroundGroups(Generic[T]):
    """The items of groups that are made in a thread of their own, one by one.

    A thread is woken once a group.

    Args:
        groups: Made in the thread.
        ahead: Most groups that wait or are in the making.
        timeout_s: Longest wait for one, as of `Background`.
    """

    def __init__(
        self, groups: Generator[list[T], None, None], ahead: int, timeout_s: float | None = None
    ) -> None:
        self._groups, self._rest = Background(groups, ahead, timeout_s), list[T]()

    def __iter__(self) -> BackgroundGroups[T]:
        """Itself."""
        return self

    def __next__(self) -> T:
        """The next item, waiting for its group if need be.

        Raises:
            StalledError: It did not come within the limit.
        """
        while not self._rest:
            self._rest = next(self._groups)[::-1]
        return self._rest.pop()

    @property
    def stalled(self) -> bool:
        """The thread was left behind: what it uses is not to be used, nor closed."""
        return self._groups.stalled

    def close(self) -> None:
        """Ends the thread and waits for its end unless it hangs; the generator is closed."""
        self._rest = []
        self._groups.close()
