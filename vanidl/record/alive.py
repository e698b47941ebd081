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
from dataclasses import asdict, field, replace
from pathlib import Path
from struct import Struct
from typing import Any

import orjson

from vanidl.encoding.budget import read_whole
from vanidl.files.checked_json import checked_fields
from vanidl.record.processes import read_start_ticks
from vanidl.record.steps import FOLDER
from vanidl.schema.dataclass import dataclass

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

    place: str  # machine, its boot and its numbering of processes: see `name_place_of_processes`
    pid: int
    started: int  # ticks since boot, which tell it from a later process of its number
    start_ns: int  # when it began to record
    host: str = ""
    looks: int = 0  # how often it has written this
    lives: Mapping[int, Life] = field(default_factory=dict)  # pid -> a process on its host, `aged`

    @property
    def is_here(self) -> bool:
        """Whether its process can be looked up from here."""
        return bool(self.place) and self.place == name_place_of_processes()

    @property
    def is_alive(self) -> bool:
        """Whether its process is still there; of one that is here."""
        return self.started != 0 and read_start_ticks(self.pid) == self.started


def name_place_of_processes() -> str:
    """The boot of this machine, and the name space that process numbers are of; "" if unknown."""
    try:
        return f"{_MACHINE.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return ""


def read_recorder(run: Path) -> Recorder | None:
    """The recorder that a RUN names, None for one that has ended, or none that can be read."""
    try:
        values: dict[str, Any] = orjson.loads(read_whole(run / NAME))
        lives = {int(pid): _read_life(*each) for pid, each in values.get("lives", {}).items()}
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
    start_ns, started = time.time_ns(), read_start_ticks(me)

    # The file says who records, and what each recorded process was seen at.
    def write(looks: int) -> None:
        with suppress(OSError):
            _describe_new(journals, described)
            lives = {
                str(process["pid"]): _make_row(found.aged(time.monotonic_ns()))
                for process in list(described.values())[:_MOST_LIVES]
                if (found := look_at(process, journals)) is not None
            }
            recorder = Recorder(name_place_of_processes(), me, started, start_ns, host, looks)
            path.write_bytes(orjson.dumps({**asdict(recorder), "lives": lives}))

    def live() -> None:
        looks = 0
        while not over.wait(LOOK_S):
            look()
            looks += 1
            if looks % WRITTEN_LOOKS == 0:
                write(looks)

    # It is there from the first moment on, and gone with the block.
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


def _make_row(life: Life) -> list[str | int]:
    doing, last = life.doing or Call(0, 0), life.last or Call(0, 0)
    return [life.state, doing.code, doing.at_ns, last.code, last.at_ns]


def _read_life(state: str, doing: int, doing_ns: int, last: int, last_ns: int) -> Life:
    numbers = (doing, doing_ns, last, last_ns)
    if type(state) is not str or not all(type(number) is int for number in numbers):
        raise TypeError("a life of other values")
    return Life(state[:1], Call(doing, doing_ns), Call(last, last_ns))


# Whether a recorded process lives on this host, and what it is doing at this moment.
#
# Its recorder keeps that in a page of memory, which is read here through `/proc/PID/fd`:
# `vanidl/record/injected/vanidl_steps/journal.py` writes it. Times in it are of the monotonic
# clock, which all processes of a host share, and which does not jump.

PROC = Path("/proc")
SAVE = 0xFE
_PAGE = Struct("<4q")
_LINK = "/memfd:vanidl-present"
_FOLDERS = (b"VANIDL_STEPS=", b"VANIDL_RUN=")

_TROUBLES = {
    "": "its process is gone",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in a call of the system that cannot be interrupted, as of storage",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A code as journals have it (0: nothing), and when it began or ended, in ns."""

    code: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Life:
    """A process on this host: its state as the kernel has it, "" for one that is gone."""

    state: str
    doing: Call | None = None
    last: Call | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it lives no more."""
        return not self.state

    def aged(self, now_ns: int) -> Life:
        """The same with how long ago instead of when; and back, from ages to times."""

        def turned(call: Call | None) -> Call | None:
            return call and Call(call.code, now_ns - call.at_ns if call.code else 0)

        return replace(self, doing=turned(self.doing), last=turned(self.last))

    @property
    def trouble(self) -> str:
        """What keeps it from going on, "" where nothing is known to."""
        return _TROUBLES.get(self.state, "")


def look_at(process: Mapping[str, Any], folder: Path) -> Life | None:
    """What can be seen of a process that describes itself so; None of one elsewhere, or hidden.

    Args:
        process: the text at the head of its journal.
        folder: of the journals of the run, which its environment names.
    """
    pid = process.get("pid")
    if process.get("host") != os.uname().nodename or type(pid) is not int or pid <= 0:
        return None
    try:
        state = _read_state(pid)
        if state in "ZX" or not _may_be_of_run(pid, folder):
            return Life("")
    except (FileNotFoundError, ProcessLookupError):
        return None if _is_hidden(pid) else Life("")
    except OSError:
        return None
    doing, last = _read_present(pid, process.get("present"))
    return Life(state, doing, last)


def _read_present(pid: int, descriptor: object) -> tuple[Call | None, Call | None]:
    """What the process does, and what it did last."""
    if type(descriptor) is not int or descriptor < 0:
        return None, None
    path = PROC / str(pid) / "fd" / str(descriptor)
    content, again = b"", b"?"
    with suppress(OSError):
        if not os.readlink(path).startswith(_LINK):  # noqa: PTH115
            return None, None
        with path.open("rb", buffering=0) as file:
            while content != again:  # amid a store
                content, again = again, os.pread(file.fileno(), _PAGE.size, 0)
    if len(content) != _PAGE.size:
        return None, None
    # A time below 0 is that of the end: nothing is under way.
    code, since_ns, last, at_ns = _PAGE.unpack(content)
    before = Call(last, at_ns)
    if since_ns >= 0:
        return Call(code, since_ns), before
    ended = Call(code, -since_ns)
    return Call(0, 0), max(ended, before, key=lambda call: call.at_ns)


def _is_hidden(pid: int) -> bool:
    """Whether a process is there that /proc does not show, as `hidepid` has it."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _may_be_of_run(pid: int, folder: Path) -> bool:
    """Whether the environment names the run; of another user's process, which does not show it."""
    try:
        return is_of_run(pid, folder)
    except PermissionError:
        return True


def is_of_run(pid: int, folder: Path) -> bool:
    """Whether the environment of a process names the folder of a run, or that of its journals.

    Numbers of processes come again, so a number alone tells nothing.

    Raises:
        OSError: it is gone, or another user's.
    """
    for entry in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
        if entry.startswith(_FOLDERS):
            with suppress(OSError):
                if folder.samefile(os.fsdecode(entry.partition(b"=")[2])):
                    return True
    return False


def anyone_lives(folder: Path) -> bool:
    """Whether a process on this host that can be looked at has a folder in its environment."""
    for path in PROC.glob("[1-9]*"):
        with suppress(OSError):
            pid = int(path.name)
            if pid != os.getpid() and is_of_run(pid, folder) and _read_state(pid) not in "ZX":
                return True
    return False


def _read_state(pid: int) -> str:
    return (PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2][:1].decode("ascii")
