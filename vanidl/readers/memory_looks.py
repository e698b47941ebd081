"""`memory/*.memory`, which `vanidl record` leaves in a RUN: what its processes took over time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from vanidl.encoding.budget import read_whole
from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError
from vanidl.formatting.from_logs import clean_text
from vanidl.model.run_facts import HostMemory, Int64Array, ProcessMemory
from vanidl.model.warnings import Notice

FOLDER = "memory"
SCHEMA = "vanidl-memory/1"
_LARGEST = 1 << 62
_MOST_PIDS = 10_000
_RESIDENT, _WALKED = 2, 4  # numbers of a process in a line


def read_memory(path: Path) -> HostMemory:
    """What one recorder saw; lines that are cut or make no sense are left out.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    try:
        lines = read_whole(path).splitlines()
    except OSError as error:
        raise InputError(f"{path}: permission denied or missing ({error.strerror})") from error
    return memory_of(lines, str(path))


def memory_of(lines: Iterable[bytes], name: str) -> HostMemory:
    """The same of lines that are read already.

    Raises:
        InputError: they do not begin as the recorder begins.
    """
    rows = [row for row in map(_row, lines) if row is not None]
    if not rows or rows[0].get("schema") != SCHEMA:
        raise InputError(
            f"{name}: expected memory as vanidl record writes it (schema {SCHEMA}), found "
            "something else; remove it."
        )
    looks = [row for row in rows[1:] if _number(row.get("t")) > 0]
    parents: dict[int, int] = {}
    sizes: dict[int, list[list[int]]] = {}
    walked: dict[int, list[list[int]]] = {}
    for row in looks:
        for pid, parent in _of_pids(row.get("new")):
            parents.setdefault(pid, _number(parent))
        for found, key, width in ((sizes, "p", _RESIDENT), (walked, "s", _WALKED)):
            for pid, values in _of_pids(row.get(key)):
                if _are_numbers(values, width) and (pid in found or len(found) < _MOST_PIDS):
                    found.setdefault(pid, []).append([row["t"], *values])
    around = [[row["t"], *_two(row.get("m")), *_two(row.get("c"), (0, 2))] for row in looks]
    at_ns, dev_shm, available, group, group_files = _columns(around, 5)
    return HostMemory(
        clean_text(str(rows[0].get("host", ""))),
        _number(rows[0].get("limit")),
        clean_text(str(rows[0].get("limit_of", ""))),
        tuple(
            ProcessMemory(
                pid,
                parents.get(pid, -1),
                *_columns(sizes[pid], 1 + _RESIDENT),
                *_columns(walked.get(pid, []), 1 + _WALKED),
            )
            for pid in sorted(sizes)
        ),
        at_ns,
        dev_shm,
        available,
        group,
        group_files,
    )


def gather(records: Iterable[Path]) -> tuple[tuple[HostMemory, ...], list[Notice]]:
    """The memory of the RUNs of these records, and what of it could not be read."""
    paths = [path for r in records for path in sorted((r.parent / FOLDER).glob("*.memory"))]
    found = [_read_or_say(path) for path in paths]
    return (
        tuple(each for each in found if isinstance(each, HostMemory)),
        [each for each in found if isinstance(each, Notice)],
    )


def _read_or_say(path: Path) -> HostMemory | Notice:
    try:
        return read_one(read_memory, path)
    except InputError as error:
        return Notice("unreadable", str(error), "info")


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _of_pids(found: object) -> list[tuple[int, Any]]:
    if not isinstance(found, dict):
        return []
    return [(int(pid), value) for pid, value in found.items() if pid.isdecimal() and len(pid) < 12]


def _are_numbers(values: object, width: int) -> bool:
    return (
        isinstance(values, list) and len(values) == width and all(_number(v) >= 0 for v in values)
    )


def _two(values: object, places: tuple[int, int] = (0, 1)) -> tuple[int, int]:
    numbers = values if isinstance(values, list) else []
    first, second = (_number(numbers[k]) if k < len(numbers) else -1 for k in places)
    return first, second


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < _LARGEST else -1


def _columns(rows: list[list[int]], width: int) -> tuple[Int64Array, ...]:
    """Columns of rows by their time."""
    table = np.array(rows, np.int64).reshape(-1, width)
    table = table[np.argsort(table[:, 0], kind="stable")]
    columns = tuple(np.ascontiguousarray(column) for column in table.T)
    for column in columns:
        column.flags.writeable = False
    return columns
