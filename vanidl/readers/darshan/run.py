"""The Darshan logs of a run: read here or by workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from vanidl.errors import InputError
from vanidl.parallel.executors import local_workers, run_batches
from vanidl.parallel.threads import batches
from vanidl.readers.darshan.log import read_log, read_logs
from vanidl.readers.darshan.newer import with_newer
from vanidl.readers.file_names import DarshanName, darshan_name
from vanidl.readers.format import Files, Reading, Records
from vanidl.readers.records import TracerLog

LOG, UNFINISHED_LOG = "darshan", "darshan_partial"

_LOGS = "Darshan logs"
_BATCH = 16  # logs that a worker reads at a time, of a cluster
_HERE = 128  # the same of this machine
_BATCH_NBYTES = 8 << 20  # and not more than that, but for a log that is larger itself
_MANY = 512  # logs that are worth starting workers on this machine
_SECOND_NS = 1_000_000_000
_QUARTER_S = 900  # offsets of time zones are multiples


def read(files: Files, reading: Reading) -> Records:
    """What all logs say."""
    paths = [*files.get(LOG, ()), *files.get(UNFINISHED_LOG, ())]
    logs = with_newer(_logs(paths, reading))
    return Records(
        logs=tuple(logs),
        counters={log.path: log.counters for log in logs if log.counters is not None},
        utc_offset_s=utc_offset_s((log.path, log.start_ns) for log in logs),
    )


def _logs(paths: Sequence[Path], reading: Reading) -> list[TracerLog]:
    """What the logs say, read here or by the workers of an executor, in order."""
    if reading.executor is not None:
        return _by_workers(paths, reading, reading.executor, _BATCH)
    if len(paths) < _MANY:
        return reading.each(_LOGS, read_log, paths)
    with local_workers() as workers:
        return _by_workers(paths, reading, workers, _HERE)


def _by_workers(
    paths: Sequence[Path], reading: Reading, executor: Executor, size: int
) -> list[TracerLog]:
    found: dict[str, TracerLog | InputError] = {}
    some_each = (list(map(str, some)) for some in _batches(paths, size))  # cheaper to send
    for some, records in run_batches(read_logs, some_each, executor, _killed):
        found |= zip(some, records, strict=True)
        reading.progress(_LOGS, len(found), len(paths))
    every = [(path, found[str(path)]) for path in paths]
    reading.unreadable.update((path, one) for path, one in every if isinstance(one, InputError))
    return [one for _, one in every if isinstance(one, TracerLog)]


def _batches(paths: Sequence[Path], size: int) -> Iterator[list[Path]]:
    """The paths in lists of so many at most, shorter ones of large logs."""

    def weight(path: Path) -> int:
        with suppress(OSError):  # gone, or not ours to read: reading will say so
            return max(path.stat().st_size * size, _BATCH_NBYTES)
        return _BATCH_NBYTES

    return batches(paths, weight, _BATCH_NBYTES * size)


def _killed(path: str) -> InputError:
    return InputError(f"{path}: the worker that read it ended twice; read it with vanidl check")


def utc_offset_s(logs: Iterable[tuple[str, int]]) -> int | None:
    """Local time minus UTC on the machine of a run, None where no name tells.

    Names of logs hold the local time of their start.

    Args:
        logs: Path and start (ns since the epoch) of each.
    """
    for path, start_ns in logs:
        name = darshan_name(path)
        if name is not None:
            return _apart_s(name, start_ns // _SECOND_NS)
    return None


def _apart_s(name: DarshanName, start_s: int) -> int:
    utc = datetime.fromtimestamp(start_s, timezone.utc)
    around = (utc - timedelta(days=1), utc, utc + timedelta(days=1))  # names hold no year
    days = {datetime(day.year, day.month, day.day, tzinfo=timezone.utc) for day in around}
    named = [day for day in days if (day.month, day.day) == (name.month, name.day)]
    if not named:
        return 0
    apart = named[0] + timedelta(seconds=name.second) - utc
    return round(apart.total_seconds() / _QUARTER_S) * _QUARTER_S
