"""How a recorded command ended."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass

_SIGNALLED = 128  # an exit status above it: that of a signal, as shells have it


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended, and what is known of why.

    Attributes:
        exit_status: 128 + N where signal N ended it.
        memory_kills: processes that the kernel killed as memory had run out; None: not known.
        last_error: the last line of a Python process that failed, without secrets; "" for none.
    """

    exit_status: int
    memory_kills: int | None = None
    last_error: str = ""

    @property
    def failed(self) -> bool:
        """Whether the command says so."""
        return self.exit_status != 0

    @property
    def signal(self) -> str:
        """The name of the signal that ended it, "" where none did."""
        if self.exit_status > _SIGNALLED:
            with suppress(ValueError):  # a number that is no signal
                return signal.Signals(self.exit_status - _SIGNALLED).name
        return ""
