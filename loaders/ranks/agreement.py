"""Ranks agree that nobody failed before they go on, so that nobody waits for a rank that did."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from ..errors import InputError
from .messages import Transport, gathered

T = TypeVar("T")


class Attempt:
    """What was tried inside, and whether it failed.

    with Attempt() as tried:
        read()
    tried.agree(transport)
    """

    error: Exception | None = None

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None

    def agree(self, transport: Transport) -> None:
        """Checks that all ranks succeeded; one message to all. Every rank has to call it.

        Raises:
            InputError: Another rank failed; its number and its message.
            Exception: What this rank itself failed with.
        """
        self._require(transport.gather(self._said()))

    def agree_within(self, transport: Transport, value: T, timeout_s: float) -> list[T]:
        """The values of all ranks, by rank, where all succeeded; otherwise as `agree`.

        Raises:
            LoadersError: A rank said nothing within that time.
        """
        said = gathered(transport, (self._said(), value), timeout_s)
        self._require([outcome for outcome, _ in said])
        return [found for _, found in said]

    def _said(self) -> str:
        return f"{type(self.error).__name__}: {self.error}" if self.error else ""

    def _require(self, outcomes: Sequence[str]) -> None:
        if self.error is not None:
            raise self.error
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(outcomes) if text]
        if failed:
            raise InputError(
                f"expected every rank to read its samples, found {len(failed)} that failed; "
                + "; ".join(failed[:3])
            )
