"""The Darshan logs of a run, read here or by workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from vanidl.errors import InputError
from vanidl.parallel.threads import batches
from vanidl.readers.darshan.log import read_log, read_logs, read_logs_to_send
from vanidl.readers.format import Files, Reading, Records
from vanidl.readers.names import parse_darshan_name
from vanidl.readers.records import TracerLog

LOG, UNFINISHED_LOG = "darshan", "darshan_partial"

_LOGS = "Darshan logs"
_BATCH = 16  # logs that a worker reads at a time, of a cluster
_HERE = 128  # the same of this machine
_BATCH_NBYTES = 8 << 20  # and not more than that, but for a log that is larger itself
_MANY = 512  # logs that are worth starting workers on this machine
_SECOND_NS = 1_000_000_000
_QUARTER_S = 900  # offsets of time zones are multiples


def read_darshan(files: Files, reading: Reading) -> Records:
    """What all logs say."""
    paths = [*files.get(LOG, ()), *files.get(UNFINISHED_LOG, ())]
    # Read here, or by the workers of an executor; in order.
    logs: Sequence[TracerLog]
    if reading.executor is not None:
        logs = _read_by_workers(paths, reading, reading.executor, _BATCH, read_logs)
    elif len(paths) < _MANY:
        logs = reading.each(_LOGS, read_log, paths)
    else:
        from vanidl.parallel.executors import local_workers

        with local_workers() as workers:
            logs = _read_by_workers(paths, reading, workers, _HERE, read_logs_to_send)
    logs = complete_counters(logs)
    return Records(
        logs=tuple(logs),
        counters={log.path: log.counters for log in logs if log.counters is not None},
        utc_offset_s=find_utc_offset_s((log.path, log.start_ns) for log in logs),
    )


def complete_counters(logs: Sequence[TracerLog]) -> Sequence[TracerLog]:
    """The logs with counters of newer versions than ours, as far as PyDarshan knows them."""
    if not any(log.counters and log.counters.unread for log in logs):
        return logs
    from vanidl.readers.darshan.pydarshan import add_newer_counters

    return add_newer_counters(logs)


def _read_by_workers(
    paths: Sequence[Path],
    reading: Reading,
    executor: Executor,
    size: int,
    read: Callable[[list[str]], list[TracerLog | InputError]],
) -> list[TracerLog]:
    from vanidl.parallel.executors import run_batches

    # Batches may end in any order.
    outcomes: dict[str, TracerLog | InputError] = {}
    some_each = (list(map(str, some)) for some in _split_batches(paths, size))  # cheaper to send
    for some, records in run_batches(read, some_each, executor, _explain_killed):
        outcomes |= zip(some, records, strict=True)
        reading.progress(_LOGS, len(outcomes), len(paths))

    # In the order of the paths; what could not be read is noted.
    every = [(path, outcomes[str(path)]) for path in paths]
    reading.unreadable.update((path, one) for path, one in every if isinstance(one, InputError))
    return [one for _, one in every if isinstance(one, TracerLog)]


def _split_batches(paths: Sequence[Path], size: int) -> Iterator[list[Path]]:
    """The paths in lists of so many at most, shorter ones of large logs."""

    def weight(path: Path) -> int:
        with suppress(OSError):  # gone, or not ours to read: reading will say so
            return max(os.stat(path).st_size * size, _BATCH_NBYTES)  # noqa: PTH116 - of thousands
        return _BATCH_NBYTES

    return batches(paths, weight, _BATCH_NBYTES * size)


def _explain_killed(path: str) -> InputError:
    return InputError(f"{path}: the worker that read it ended twice; read it with vanidl check")


def find_utc_offset_s(logs: Iterable[tuple[str, int]]) -> int | None:
    """Local time minus UTC on the machine of a run, None where no name tells.

    Names of logs hold the local time of their start.

    Args:
        logs: Path and start (ns since the epoch) of each.
    """
    for path, start_ns in logs:
        name = parse_darshan_name(path)
        if name is not None:
            start_s = start_ns // _SECOND_NS
            utc = datetime.fromtimestamp(start_s, timezone.utc)
            around = (utc - timedelta(days=1), utc, utc + timedelta(days=1))  # names hold no year
            days = {datetime(day.year, day.month, day.day, tzinfo=timezone.utc) for day in around}
            named = [day for day in days if (day.month, day.day) == (name.month, name.day)]
            if not named:
                return 0
            apart = named[0] + timedelta(seconds=name.second) - utc
            return round(apart.total_seconds() / _QUARTER_S) * _QUARTER_S
    return None
