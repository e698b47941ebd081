"""No system tracer: steps, input waits and object storage alone, recordable everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vanidl.readers.run_json import NO_TRACER
from vanidl.record.recorder import ENDED, Recorder, Tracer

NAME = NO_TRACER
_NOTHING = "I/O through files (POSIX, STDIO, MPI-IO) was not recorded"


def tracer(run: Path) -> Tracer:
    """A tracer that leaves no log, so that no process lacks one."""
    del run
    return Tracer(NAME, "", {}, _found, (f"{_NOTHING} (--tracer none).",))


def none_here() -> Tracer:
    """The same where a tracer was asked for and there is none that a program does not notice."""
    why = "vanidl's own was not compiled when it was installed, and no libdarshan.so was found"
    return Tracer(NAME, "", {}, _found, (f"{_NOTHING}: {why}.",))


def _found(pids: Mapping[int, int | None]) -> Mapping[int, str]:
    return dict.fromkeys(pids, ENDED)


RECORDER = Recorder(NAME, is_here=lambda _: True, prepare=lambda run, _: tracer(run))
