"""What every tracer needs: an environment for the command, and a look at what it left."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from vanidl.schema.dataclass import dataclass

AUTO = "auto"
TRACERS = (AUTO, "vanidl", "darshan", "dftracer", "none")
"""What can be asked for by name: `auto`, and those of `recording.RECORDERS`."""

PRELOAD = "LD_PRELOAD"

ENDED = "ended"
CUT = "cut"


@dataclass(frozen=True, slots=True)
class Tracer:
    """One tracer, ready for one run.

    `environment` is what it adds to the command's; None unsets a variable. `found(pids)` says
    of which of these processes there is a log after the run: pid -> ENDED or CUT.
    """

    name: str
    version: str
    environment: Mapping[str, str | None]
    found: Callable[[Mapping[int, int | None]], Mapping[int, str]]
    remarks: tuple[str, ...] = ()  # sentences for the record: what it was told to leave out
    drop: Callable[[], None] = lambda: None  # takes back what it made beside RUN: it is not used
    stop: Callable[[], None] = lambda: None  # has it stop in processes that go on
    goes_on: str = ""  # a sentence: what of it cannot be stopped, "" for nothing
    harm: str = ""  # a sentence: what it can do to the program, "" for nothing that is known


@dataclass(frozen=True, slots=True)
class Recorder:
    """One tracer that `vanidl record` can use."""

    name: str
    is_here: Callable[[str | None], bool]  # with the library that the user gave
    prepare: Callable[[Path, str | None], Tracer]  # folder of the run, the library given
    takes_library: bool = False


def keep_private(log: Path) -> None:
    """Takes the log from all but its owner: it holds the command as it was, passwords too."""
    with suppress(OSError):
        log.chmod(log.stat().st_mode & 0o700)


def prepend_preload(library: Path) -> str:
    """LD_PRELOAD with a library before whatever is in it now."""
    return ":".join([str(library), *(entry for entry in _read_preloads() if entry != str(library))])


def _read_preloads() -> list[str]:
    return [e for e in os.environ.get(PRELOAD, "").replace(" ", ":").split(":") if e]
