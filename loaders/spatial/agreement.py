"""Ranks agree that nobody failed before they go on, so that nobody waits for a rank that did."""

from __future__ import annotations

from types import TracebackType

from ..errors import InputError
from ..ranks.messages import Transport


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
        own = f"{type(self.error).__name__}: {self.error}" if self.error else ""
        outcomes = transport.gather(own)
        if self.error is not None:
            raise self.error
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(outcomes) if text]
        if failed:
            raise InputError(
                f"expected every rank to read its block, found {len(failed)} that failed; "
                + "; ".join(failed[:3])
            )
