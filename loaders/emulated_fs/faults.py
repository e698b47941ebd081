"""Faults of storage: errors, hangs, short reads and writes, at a rate, of some operations.

read=EIO                every read ends with EIO
write=EDQUOT@0.01       one write in a hundred, by a fixed sequence of chances
any=ESTALE+100          every operation after the first 100 of them
stat=hang30@0.1         one in ten takes 30 s; `hang` alone never ends before the mount does
read=short@0.5          every other read gives half of what was asked for
"""

from __future__ import annotations

import errno
import os
import random
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

OPERATIONS = {
    "open": ("open", "create"),
    "read": ("read",),
    "write": ("write", "truncate"),
    "sync": ("flush", "fsync"),
    "stat": ("getattr",),
    "list": ("readdir",),
    "make": ("create", "mkdir", "rename", "chmod", "utimens"),
    "remove": ("unlink", "rmdir"),
    "space": ("statfs",),
}
"""What a fault may be of, and libfuse's names for it; `any` is all of them."""
ANY = "any"
HANG, SHORT = "hang", "short"
_WORD = re.compile(
    r"(?P<operation>[a-z]+)=(?:(?P<hang>hang)(?P<seconds>\d{1,6}(?:\.\d+)?)?|(?P<short>short)|"
    r"(?P<error>E[A-Z0-9]+))(?:@(?P<rate>\d(?:\.\d+)?))?(?:\+(?P<after>\d{1,12}))?"
)


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        operation: A key of `OPERATIONS`, or `ANY`.
        error: Number of the error that it ends with; 0: it is a hang, or short.
        hang_s: Seconds that it takes longer; None: it is none. Infinite: until the mount ends.
        short: Whether half of the bytes are moved.
        rate: Share of the operations that it befalls.
        after: Operations before the first that it may befall.
    """

    operation: str
    error: int = 0
    hang_s: float | None = None
    short: bool = False
    rate: float = 1.0
    after: int = 0

    @property
    def methods(self) -> tuple[str, ...]:
        """Libfuse's names of what it is of."""
        if self.operation == ANY:
            return tuple(sorted({name for names in OPERATIONS.values() for name in names}))
        return OPERATIONS[self.operation]


def parse_fault(text: str) -> Fault:
    """A fault as it is written on a command line.

    Raises:
        UsageError: It is written otherwise.
    """
    match = _WORD.fullmatch(text)
    operations = (*OPERATIONS, ANY)
    # An error is named as errno has it; one that this system does not know is none.
    error = getattr(errno, match["error"], 0) if match and match["error"] else 0
    rate = float(match["rate"] or 1) if match else 0.0
    if (
        match is None
        or match["operation"] not in operations
        or bool(match["error"]) != bool(error)
        or not 0 < rate <= 1
        or (match["short"] and match["operation"] not in ("read", "write"))
    ):
        raise UsageError(
            f"--fault {text}: expected OPERATION=FAULT with an operation of "
            f"{', '.join(operations)} and a fault such as EIO, ESTALE, hang, hang30 or, of read "
            "and write, short; then maybe @RATE (0 to 1) and +NUMBER of operations before it"
        )
    seconds = float(match["seconds"] or "inf") if match["hang"] else None
    return Fault(
        match["operation"], error, seconds, bool(match["short"]), rate, int(match["after"] or 0)
    )


def plant(operations: Any, faults: Sequence[str], spared: str = "") -> None:  # noqa: ANN401
    """Has the methods of a file system fail so, of all paths but one.

    Raises:
        UsageError: A fault is written otherwise.
    """
    for number, fault in enumerate(map(parse_fault, faults)):
        # Each fault has chances of its own: the same operations fail in every run.
        befalls = _Chances(fault, seed=number)
        for name in fault.methods:
            if hasattr(operations, name):
                setattr(
                    operations,
                    name,
                    _make_failing(getattr(operations, name), fault, befalls, spared),
                )


class _Chances:
    """Which operations a fault befalls: those of the same places in their order in each run."""

    def __init__(self, fault: Fault, seed: int) -> None:
        self._fault, self._random = fault, random.Random(seed)
        self._left, self._lock = fault.after, threading.Lock()

    def next(self) -> bool:
        """Whether it befalls the next one."""
        with self._lock:
            if self._left > 0:
                self._left -= 1
                return False
            return self._random.random() < self._fault.rate


def _make_failing(
    original: Callable[..., Any], fault: Fault, befalls: _Chances, spared: str
) -> Callable[..., Any]:
    def operation(*arguments: Any) -> Any:  # noqa: ANN401
        if arguments[0] == spared or not befalls.next():
            return original(*arguments)
        if fault.error:
            raise OSError(fault.error, os.strerror(fault.error))
        # An operation that hangs goes through in the end: its server came back.
        if fault.hang_s is not None:
            threading.Event().wait(min(fault.hang_s, threading.TIMEOUT_MAX))
            return original(*arguments)
        return original(*_halve_amount(arguments))

    return operation


def _halve_amount(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of a read or write of half as many bytes, one at least."""
    path, amount, *rest = arguments
    if isinstance(amount, bytes):
        return (path, amount[: max(1, len(amount) // 2)], *rest)
    return (path, max(1, amount // 2), *rest)
