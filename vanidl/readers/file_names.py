"""What the names of logs and traces say about who wrote them and when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_DARSHAN = re.compile(
    r"(?P<user>[^_]*)_(?P<exe>.*)_id(?P<job>\d+)(?:-(?P<pid>\d+))?"
    r"_(?P<month>\d+)-(?P<day>\d+)-(?P<second>\d+)-\d+(?:_\d+)?\.darshan(?:_partial)?"
)
_PROFILER = re.compile(r"(?P<worker>.+)\.(?P<time>\d+)\.pt\.trace\.json(?:\.gz)?")
_HOST_PID = re.compile(r"(?P<host>.+)_(?P<pid>\d+)")
_EVENT_FILE = re.compile(
    r"events\.out\.tfevents\.(?P<second>\d+)\.(?P<host>.+?)"
    r"(?:\.(?P<pid>\d+)\.(?P<number>\d+))?(?:\.(?:v2|profile-empty))?"
)
_SESSION = re.compile(r"(?P<host>.+)\.(?:xplane\.pb|trace\.json\.gz|input_pipeline\.pb)")

# Writers used milliseconds first, then nanoseconds: magnitudes for any date from 1973 on.
_UNITS = ((10**17, 1), (10**14, 1_000), (10**11, 1_000_000), (0, 1_000_000_000))


@dataclass(frozen=True, slots=True)
class DarshanName:
    """`USER_EXE_idJOBID-PID_M-D-S-HASH_N.darshan`; the user's name ends at the first `_`."""

    user: str
    exe: str
    job_id: str
    pid: int | None  # None in names of older versions
    month: int
    day: int
    second: int  # of the day, in local time


@dataclass(frozen=True, slots=True)
class ProfilerName:
    """`HOST_PID.TIME.pt.trace.json`, or `WORKER.TIME.pt.trace.json` with a name of the user's."""

    worker: str  # everything before the time
    host: str  # "" where the worker's name is no HOST_PID
    pid: int | None
    time_ns: int  # when the trace was exported, since the epoch


@dataclass(frozen=True, slots=True)
class EventFileName:
    """`events.out.tfevents.SECOND.HOST.PID.NUMBER`."""

    second: int  # since the epoch, when the file was opened
    host: str
    pid: int | None  # None in names of older versions
    number: int | None


@dataclass(frozen=True, slots=True)
class SessionName:
    """`plugins/profile/SESSION/HOST.xplane.pb` and its like."""

    host: str
    session: str  # name of the folder: the time at which profiling began


def darshan_name(path: str | Path) -> DarshanName | None:
    """What a Darshan log's name says, None for a log that was renamed."""
    match = _DARSHAN.fullmatch(_name(path))
    if not match:
        return None
    month, day, second = (int(match[key]) for key in ("month", "day", "second"))
    pid = _number(match["pid"])
    return DarshanName(match["user"], match["exe"], match["job"], pid, month, day, second)


def profiler_name(path: str | Path) -> ProfilerName | None:
    """What a PyTorch profiler trace's name says, None for one without a time."""
    match = _PROFILER.fullmatch(_name(path))
    if not match:
        return None
    time = int(match["time"])
    time_ns = time * next(scale for least, scale in _UNITS if time >= least)
    who = _HOST_PID.fullmatch(match["worker"])
    host, pid = (who["host"], int(who["pid"])) if who else ("", None)
    return ProfilerName(match["worker"], host, pid, time_ns)


def event_file_name(path: str | Path) -> EventFileName | None:
    """What an event file's name says, None for another naming."""
    match = _EVENT_FILE.fullmatch(_name(path))
    if not match:
        return None
    pid, number = _number(match["pid"]), _number(match["number"])
    return EventFileName(int(match["second"]), match["host"], pid, number)


def session_name(path: str | Path) -> SessionName | None:
    """What the name and folder of a TensorFlow or JAX profile say, None for another naming."""
    match = _SESSION.fullmatch(_name(path))
    return SessionName(match["host"], Path(path).absolute().parent.name) if match else None


def writer_named(path: str | Path) -> tuple[object, ...] | None:
    """Which process, or host, wrote a file by its name; None where the name does not tell."""
    if (log := darshan_name(path)) is not None:
        return None if log.pid is None else (log.pid,)
    if (trace := profiler_name(path)) is not None:
        return (trace.worker,)
    if (events := event_file_name(path)) is not None:
        return events.host, events.pid, events.number
    session = session_name(path)
    return None if session is None else (session.host,)


def log_folder(path: str | Path) -> Path | None:
    """LOGDIR of LOGDIR/plugins/profile/SESSION/FILE, None for a file that lies elsewhere."""
    parents = Path(path).absolute().parents
    inside = len(parents) > 3 and (parents[2].name, parents[1].name) == ("plugins", "profile")
    return parents[3] if inside else None


def _name(path: str | Path) -> str:
    """Without making a path of a path, which takes longer than all the rest."""
    return path.name if isinstance(path, Path) else Path(path).name


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
