"""What every tracer needs: an environment for the command, and a look at what it left."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vanidl.errors import VanidlError
from vanidl.parallel.children import interpreter_command

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


_READS = """
import os, time
file, best = os.open({path!r}, os.O_RDONLY), 1e12
for _ in range(15):
    began = time.perf_counter_ns()
    for _ in range(2000): os.pread(file, 1, 0)
    best = min(best, (time.perf_counter_ns() - began) / 2000)
print(best)
"""
_PROBE_S = 20  # at most, before nothing is known


def time_call_ns(recorder: Recorder, library: str | None = None) -> float | None:
    """What a call costs more under a tracer than without; None where that cannot be told.

    Reads of a byte of a file of their own, the fastest of 15 x 2,000, in a process each: so many
    that room for what is recorded is made among them. What the tracer writes of them goes.
    """
    took_ns: list[float] = []
    with suppress(OSError, ValueError, VanidlError, subprocess.SubprocessError):
        with tempfile.TemporaryDirectory(prefix="vanidl-probe-") as place:
            data = Path(place) / "data"
            data.write_bytes(b"\0" * 4096)
            tracer = recorder.prepare(Path(place) / "run", library)
            command = interpreter_command(f"exec({_READS.format(path=str(data))!r})")
            for added in ({}, tracer.environment):
                changed = {**os.environ, **added}
                done = subprocess.run(
                    command,
                    env={name: value for name, value in changed.items() if value is not None},
                    stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_PROBE_S,
                )  # fmt: skip
                took_ns.append(float(done.stdout))
        return max(took_ns[1] - took_ns[0], 0.0)
    return None


def keep_private(log: Path) -> None:
    """Takes the log from all but its owner: it holds the command as it was, passwords too."""
    with suppress(OSError):
        log.chmod(log.stat().st_mode & 0o700)


def prepend_preload(library: Path) -> str:
    """LD_PRELOAD with a library before whatever is in it now."""
    return ":".join([str(library), *(entry for entry in _read_preloads() if entry != str(library))])


def _read_preloads() -> list[str]:
    return [e for e in os.environ.get(PRELOAD, "").replace(" ", ":").split(":") if e]
