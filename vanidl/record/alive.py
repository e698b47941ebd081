"""The sign of life of a recorder: a file in RUN that is there as long as it records.

Who watches learns from it that a run has begun before anything of it is recorded, and that it is
dead: a recorder that was killed leaves the file, whose process is gone, or no longer writes it.
From another host it also shows what the processes beside the recorder are doing, which only their
own host can see.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

import orjson

from vanidl.encoding.budget import read_whole
from vanidl.files.checked_json import checked_fields
from vanidl.record.life import Call, Life, look_at
from vanidl.record.steps import FOLDER
from vanidl.record.watch import process_started

NAME = "recorder.live"
LOOK_S = 1.0
WRITTEN_LOOKS = 5
"""The file is written at every fifth look."""
_MOST_LIVES = 256
_HEAD_NBYTES = 1 << 14
_ROW = Struct("<4q")
_MACHINE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Recorder:
    """One recorder: its process, and where that is."""

    place: str  # machine, its boot and its numbering of processes: see `place_of_processes`
    pid: int
    started: int  # ticks since boot, which tell it from a later process of its number
    start_ns: int  # when it began to record
    host: str = ""
    looks: int = 0  # how often it has written this
    lives: Mapping[int, Life] = field(default_factory=dict)  # pid -> a process on its host, `aged`

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
        lives = {int(pid): _life(*each) for pid, each in values.get("lives", {}).items()}
        known = {"host": "", "looks": 0, **values}
        return Recorder(**checked_fields(Recorder, known), lives=lives)
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return None


@contextmanager
def sign_of_life(run: Path, look: Callable[[], object] = lambda: None) -> Iterator[None]:
    """The file of this process is there, and touched, while it is in the block.

    Where it cannot be written the run is recorded as well. `look` is called every second, as the
    file is touched, by a thread of its own: storage that hangs holds up neither signals for the
    command nor word of its end.
    """
    path, me, journals = run / NAME, os.getpid(), run / FOLDER
    host = os.uname().nodename
    over, described = threading.Event(), dict[str, Mapping[str, Any]]()
    start_ns, started = time.time_ns(), process_started(me)

    def write(looks: int) -> None:
        with suppress(OSError):
            _describe_new(journals, described)
            lives = {
                str(process["pid"]): _as_row(found.aged(time.monotonic_ns()))
                for process in list(described.values())[:_MOST_LIVES]
                if (found := look_at(process, journals)) is not None
            }
            recorder = Recorder(place_of_processes(), me, started, start_ns, host, looks)
            path.write_bytes(orjson.dumps({**asdict(recorder), "lives": lives}))

    def live() -> None:
        looks = 0
        while not over.wait(LOOK_S):
            look()
            looks += 1
            if looks % WRITTEN_LOOKS == 0:
                write(looks)

    write(0)
    thread = threading.Thread(target=live, name="vanidl-recorder", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LOOK_S)
        with suppress(OSError):
            path.unlink()


def _describe_new(journals: Path, described: dict[str, Mapping[str, Any]]) -> None:
    """Adds what processes say of themselves at the heads of journals that are new."""
    if not journals.is_dir():
        return
    for name in sorted(os.listdir(journals)):  # noqa: PTH208 - again and again
        if name.endswith(".steps") and name not in described and len(described) < _MOST_LIVES:
            with (journals / name).open("rb") as file:
                head = file.read(_HEAD_NBYTES)
            if len(head) >= 2 * _ROW.size:
                rows = _ROW.unpack_from(head, _ROW.size)[1]  # of the text after the first line
                with suppress(ValueError):
                    text = orjson.loads(head[2 * _ROW.size : (2 + rows) * _ROW.size])
                    if isinstance(text, dict) and type(text.get("pid")) is int:
                        described[name] = text


def _as_row(life: Life) -> list[str | int]:
    doing, last = life.doing or Call(0, 0), life.last or Call(0, 0)
    return [life.state, doing.code, doing.at_ns, last.code, last.at_ns]


def _life(state: str, doing: int, doing_ns: int, last: int, last_ns: int) -> Life:
    numbers = (doing, doing_ns, last, last_ns)
    if type(state) is not str or not all(type(number) is int for number in numbers):
        raise TypeError("a life of other values")
    return Life(state[:1], Call(doing, doing_ns), Call(last, last_ns))
