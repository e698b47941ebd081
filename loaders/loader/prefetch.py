"""A thread that runs ahead of whoever consumes, by so many items and no more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from types import TracebackType
from typing import Generic, TypeVar

from ..errors import UsageError

T = TypeVar("T")


class Background(Generic[T]):
    """Items of a generator, made in a thread of its own, at most `ahead` waiting.

    What the generator raises is raised in `__next__`, behind the items made before it.
    """

    def __init__(self, items: Generator[T, None, None], ahead: int) -> None:
        if ahead < 1:
            raise UsageError(f"expected at least 1 item ahead, found {ahead}: raise it")
        self._items, self._ahead = items, ahead
        self._waiting: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._caught = _Caught()
        # A daemon: a program that ends without close is not held up by it.
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Background[T]:
        """Itself."""
        return self

    def __next__(self) -> T:
        """The next item, waiting for it if need be."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if self._waiting:
                item = self._waiting.popleft()
                self._changed.notify_all()
                return item
        error, self._caught.error = self._caught.error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Ends the thread and waits for its end; the generator is closed. Again: nothing."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        with self._caught:
            try:
                while not self._closed and self._make():
                    pass
            finally:
                self._items.close()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _make(self) -> bool:
        """Makes one item and waits for room for it; False behind the last."""
        for item in self._items:
            with self._changed:
                self._changed.wait_for(lambda: len(self._waiting) < self._ahead or self._closed)
                if not self._closed:
                    self._waiting.append(item)
                    self._changed.notify_all()
            return True
        return False


class _Caught:
    """Keeps whatever is raised inside, for the thread that consumes."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.error = error
        return True
