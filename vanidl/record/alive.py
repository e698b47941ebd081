"""The sign of life of a recorder: a file in RUN that is there as long as it records.

Who watches learns from it that a run has begun before anything of it is recorded, and that it is
dead: a recorder that was killed leaves the file, whose process is gone, or no longer touches it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from vanidl.encoding.budget import read_whole
from vanidl.files.checked_json import checked_fields
from vanidl.record.watch import process_started

NAME = "recorder.live"
LOOK_S = 1.0
TOUCHED_LOOKS = 5
"""The file is touched at every fifth look."""
_MACHINE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Recorder:
    """One recorder: its process, and where that is."""

    place: str  # machine, its boot and its numbering of processes: see `place_of_processes`
    pid: int
    started: int  # ticks since boot, which tell it from a later process of its number
    start_ns: int  # when it began to record

    @property
    def is_here(self) -> bool:
        """Whether its process can be looked up from here."""
        return bool(self.place) and self.place == place_of_processes()

    @property
    def is_alive(self) -> bool:
        """Whether its process is still there; of one that is here."""
        return self.started != 0 and process_started(self.pid) == self.started


def place_of_processes() -> str:
    """The boot of this machine, and the name space that process numbers are of; "" if unknown."""
    try:
        return f"{_MACHINE.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return ""


def read_recorder(run: Path) -> Recorder | None:
    """The recorder that a RUN names, None for one that has ended, or none that can be read."""
    try:
        values: dict[str, Any] = orjson.loads(read_whole(run / NAME))
        return Recorder(**checked_fields(Recorder, values))
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return None


@contextmanager
def sign_of_life(run: Path, look: Callable[[], object] = lambda: None) -> Iterator[None]:
    """The file of this process is there, and touched, while it is in the block.

    Where it cannot be written the run is recorded as well. `look` is called every second, as the
    file is touched, by a thread of its own: storage that hangs holds up neither signals for the
    command nor word of its end.
    """
    path, me = run / NAME, os.getpid()
    recorder = Recorder(place_of_processes(), me, process_started(me), time.time_ns())
    over = threading.Event()

    def live() -> None:
        looks = 0
        while not over.wait(LOOK_S):
            look()
            looks += 1
            if looks % TOUCHED_LOOKS == 0:
                with suppress(OSError):
                    os.utime(path)

    with suppress(OSError):
        path.write_bytes(orjson.dumps(asdict(recorder)))
    thread = threading.Thread(target=live, name="vanidl-recorder", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LOOK_S)
        with suppress(OSError):
            path.unlink()
