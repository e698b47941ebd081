"""What a recorded run was: the record that goes beside its logs."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from vanidl.formatting.secrets import masked
from vanidl.readers.run_json import MISSING, RECORDED, UNFINISHED, ProcessRecord, RunRecord
from vanidl.record.launch import Ended
from vanidl.record.recorder import ENDED, Tracer
from vanidl.record.watch import Seen

_MOUNTS = Path("/proc/self/mounts")
_PSEUDO = {"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
           "devtmpfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "securityfs",
           "sysfs", "tracefs"}  # fmt: skip
_ESCAPES = {r"\040": " ", r"\011": "\t", r"\012": "\n", r"\134": "\\"}


def run_record(command: Sequence[str], tracer: Tracer, ended: Ended) -> RunRecord:
    """The record of a command that has ended."""
    seen = ended.watch.seen
    states = tracer.found(ended.watch.ranks())
    ranks = {s.rank for s in seen.values() if s.rank is not None}
    return RunRecord(
        id=_id(ended),
        command=tuple(masked(map(_storable, command))),
        folder=_storable(_current_folder()),
        host=socket.gethostname(),
        tracer=tracer.name,
        tracer_version=tracer.version,
        settings={
            key: _storable(value) for key, value in tracer.environment.items() if value is not None
        },
        start_ns=ended.start_ns,
        end_ns=ended.end_ns,
        exit_status=ended.exit_status,
        ranks=len(ranks) or None,
        mounts=tuple(mounts()),
        processes=tuple(_process(s, states) for s in seen.values()),
        losses=(*tracer.remarks, *filter(None, [tracer.harm]), *_ending(ended.exit_status)),
    )


def _id(ended: Ended) -> str:
    begin = datetime.fromtimestamp(ended.start_ns / 1e9, tz=timezone.utc)
    return f"{begin:%Y%m%d-%H%M%S}-{next(iter(ended.watch.seen))}"


def _process(seen: Seen, states: Mapping[int, str]) -> ProcessRecord:
    state = states.get(seen.pid)
    return ProcessRecord(
        pid=seen.pid,
        parent_pid=seen.parent_pid,
        command=" ".join(masked(map(_storable, seen.command.split("\0")))).strip(),
        rank=seen.rank,
        first_seen_ns=seen.first_ns,
        last_seen_ns=seen.last_ns,
        state=MISSING if state is None else RECORDED if state == ENDED else UNFINISHED,
        running=not seen.gone,
    )


def _storable(text: str) -> str:
    """The text as JSON can hold it: a word of a command may have bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _current_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # removed by the command
        return ""


def _ending(exit_status: int) -> Iterator[str]:
    if exit_status > 128 and exit_status - 128 in signal.valid_signals():
        name = signal.Signals(exit_status - 128).name
        yield f"The command was ended by {name} or returned {exit_status}."


def mounts() -> Iterator[tuple[str, str]]:
    """(mount point, type) of this host's file systems, longest mount point first."""
    try:
        text = _MOUNTS.read_text("utf-8", "backslashreplace")
    except OSError:
        return
    rows = [line.split() for line in text.splitlines()]
    found = {_unescaped(row[1]): row[2] for row in rows if len(row) > 2 and row[2] not in _PSEUDO}
    yield from sorted(found.items(), key=lambda mount: (-len(mount[0]), mount))


def _unescaped(point: str) -> str:
    for code, character in _ESCAPES.items():
        point = point.replace(code, character)
    return point
