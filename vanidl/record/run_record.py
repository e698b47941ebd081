"""What a recorded run was: the record that goes beside its logs."""

from __future__ import annotations

import json
import os
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import orjson

from vanidl.encoding.budget import read_whole
from vanidl.formatting.from_logs import clean_text
from vanidl.formatting.secrets import masked
from vanidl.parallel.threads import core_count
from vanidl.readers.run_folder import MISSING, RECORDED, UNFINISHED, ProcessRecord, RunRecord
from vanidl.record.launch import Ended
from vanidl.record.memory import list_control_group_folders
from vanidl.record.processes import Seen
from vanidl.record.recorder import ENDED, Tracer

_MOUNTS = Path("/proc/self/mounts")
_PSEUDO = {"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
           "devtmpfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "securityfs",
           "sysfs", "tracefs"}  # fmt: skip
_ESCAPES = {r"\040": " ", r"\011": "\t", r"\012": "\n", r"\134": "\\"}


def describe_run(command: Sequence[str], tracer: Tracer, ended: Ended) -> RunRecord:
    """The record of a command that has ended."""
    seen = ended.watch.seen
    states = tracer.found(ended.watch.ranks())
    ranks = {s.rank for s in seen.values() if s.rank is not None}
    begin = datetime.fromtimestamp(ended.start_ns / 1e9, tz=timezone.utc)
    run_id = f"{begin:%Y%m%d-%H%M%S}-{next(iter(ended.watch.seen))}"
    try:
        folder = os.getcwd()  # noqa: PTH109
    except OSError:  # removed by the command
        folder = ""
    return RunRecord(
        id=run_id,
        command=tuple(masked(map(_make_storable, command))),
        folder=_make_storable(folder),
        host=socket.gethostname(),
        tracer=tracer.name,
        tracer_version=tracer.version,
        settings={
            key: _make_storable(value)
            for key, value in tracer.environment.items()
            if value is not None
        },
        start_ns=ended.start_ns,
        end_ns=ended.end_ns,
        exit_status=ended.exit_status,
        ranks=len(ranks) or None,
        mounts=tuple(list_mounts()),
        cores=count_cores(),
        processes=tuple(_describe_process(s, states) for s in seen.values()),
        losses=(*tracer.remarks, *filter(None, [tracer.harm])),
    )


def _describe_process(seen: Seen, states: Mapping[int, str]) -> ProcessRecord:
    state = states.get(seen.pid)
    return ProcessRecord(
        pid=seen.pid,
        parent_pid=seen.parent_pid,
        command=" ".join(masked(map(_make_storable, seen.command.split("\0")))).strip(),
        rank=seen.rank,
        first_seen_ns=seen.first_ns,
        last_seen_ns=seen.last_ns,
        state=MISSING if state is None else RECORDED if state == ENDED else UNFINISHED,
        running=not seen.gone,
    )


def _make_storable(text: str) -> str:
    """The text as JSON can hold it: a word of a command may have bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()


def list_mounts() -> Iterator[tuple[str, str]]:
    """(mount point, type) of this host's file systems, longest mount point first."""
    try:
        text = _MOUNTS.read_text("utf-8", "backslashreplace")
    except OSError:
        return
    rows = [line.split() for line in text.splitlines()]
    mounts = {_unescape(row[1]): row[2] for row in rows if len(row) > 2 and row[2] not in _PSEUDO}
    yield from sorted(mounts.items(), key=lambda mount: (-len(mount[0]), mount))


def count_cores() -> float:
    """The cores that the command may use on this host: those it may run on, within its quota.

    The quota of a control group is a share of time: 1.5 cores are three cores half of the time.
    """
    quotas = (_read_quota(folder) for folder in list_control_group_folders("cpu"))
    return min([float(core_count()), *(quota for quota in quotas if quota)])


def _read_quota(group: Path) -> float | None:
    """Cores that a control group may use; None without a limit, or such a group."""
    unified = group / "cpu.max"  # of version 2; a file for each number in version 1
    parts = [group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us"]
    try:
        files = [unified] if unified.exists() else parts
        quota, period = map(float, " ".join(file.read_text("ascii") for file in files).split())
    except (OSError, ValueError):  # "max": no limit
        return None
    return quota / period if min(quota, period) > 0 else None


def _unescape(point: str) -> str:
    for code, character in _ESCAPES.items():
        point = point.replace(code, character)
    return point


# The error that ended a program in Python, as its processes left it (`vanidl_steps.journal`).

_LAST_ERROR_SUFFIX = ".last-error"
_MOST_ERROR_FILES = 1000
_MOST_ERROR_TEXT = 500


def take_last_error(folder: Path) -> str:
    """The first error that a process left, "" for none; what they left is removed.

    The first is the cause: processes that train together fail once one of them has. Secrets in it
    are masked; what was left is not, so nothing of it stays.
    """
    errors, paths = [], []
    with suppress(OSError):  # a folder that cannot be listed any more
        paths = sorted(folder.glob(f"*{_LAST_ERROR_SUFFIX}"))[:_MOST_ERROR_FILES]
    for path in paths:
        with suppress(OSError, ValueError):
            at, _, text = read_whole(path).decode("utf-8", "replace").partition(" ")
            errors.append((int(at), text.strip()))
        with suppress(OSError):
            path.unlink()
    if not errors:
        return ""
    return mask_error_line(min(errors)[1])


def mask_error_line(text: str) -> str:
    """A line of a program's output, printable and of bounded length."""
    return clean_text(text)[:_MOST_ERROR_TEXT]


# The source text of the lines that were sampled in the program, kept beside its journals.
#
# A report may be made elsewhere, or when the program has been changed. Nothing of it is read in the
# program itself: this is done once the command has ended.

SOURCE_LINES_NAME = "program.source-lines"
_PARTS = (b'{"lines": "fetch"', b'{"lines": "loop"')  # as `vanidl_steps/lines.py` begins tables
_MOST_TABLE_NBYTES = 1 << 20
_MOST_SOURCE_NBYTES = 4 << 20
_LITTLE = 0.005  # of a part: the text of a line with less is not kept


def keep_source_lines(folder: Path, since_ns: int) -> None:
    """Writes the texts of costly lines; of files that were changed since the run began none.

    Args:
        folder: of the journals.
        since_ns: when the run began.
    """
    costly: dict[str, set[int]] = defaultdict(set)
    with suppress(OSError):
        for path in sorted(folder.glob("*.steps")):
            for table in _find_last_tables(path.read_bytes()):
                for file, line in _find_costly_lines(table):
                    costly[file].add(line)
        texts = [
            row
            for file, lines in sorted(costly.items())
            for row in _read_lines(file, lines, since_ns)
        ]
        if texts:
            (folder / SOURCE_LINES_NAME).write_bytes(orjson.dumps(texts))


def _find_last_tables(content: bytes) -> Iterator[Mapping[str, Any]]:
    """The last table of each part in a journal."""
    for begins in _PARTS:
        at = content.rfind(begins)
        if at >= 0:
            text = content[at : at + _MOST_TABLE_NBYTES].decode("utf-8", "replace")
            with suppress(ValueError):
                yield json.JSONDecoder().raw_decode(text)[0]


def _find_costly_lines(table: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    with suppress(KeyError, TypeError, ValueError):
        for function in table["functions"]:
            for line, _, wall_ns, *_ in function["costs"]:
                if wall_ns >= _LITTLE * table["wall_ns"]:
                    yield str(function["file"]), int(line)


def _read_lines(file: str, lines: set[int], since_ns: int) -> Iterator[tuple[str, int, str]]:
    try:
        status = os.stat(file)  # noqa: PTH116 - what it is named may be no path
        if status.st_mtime_ns >= since_ns or status.st_size > _MOST_SOURCE_NBYTES:
            return
        source = Path(file).read_text("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return
    for line in sorted(lines):
        if 0 < line <= len(source):
            yield file, line, clean_text(source[line - 1].strip())
