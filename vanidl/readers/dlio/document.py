"""JSON objects and plain YAML that DLIO writes, checked and within the budget of their file."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget, read_whole
from vanidl.errors import InputError

LONGEST_S = 1e8
"""Three years: no step or epoch is longer."""

_MOST_CONFIG_BYTES = 1 << 20
_LINE = re.compile(r"( *)([\w.+-]+):(?: +(.*))?")
_MOST_DEPTH = 16

Object = dict[str, Any]


def read_object(path: Path, expected: str) -> Object:
    """The JSON object that a file holds.

    Raises:
        InputError: It cannot be read, or holds something else.
    """
    try:
        data = read_whole(path)
    except OSError as error:
        raise unusable(path, expected, f"no readable file ({error.strerror})") from error
    brackets = data.count(b"{") + data.count(b"[")
    budget = Budget.of_file(len(data))
    if not budget.hold(brackets * OBJECT_BYTES):
        found = f"{brackets:,} nested parts, which take more than {budget.memory_limit}"
        raise unusable(path, expected, found)
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise unusable(path, expected, f"damage ({error})") from error
    if not isinstance(values, dict):
        raise unusable(path, expected, "other JSON")
    return values


def unusable(path: Path, expected: str, found: str) -> InputError:
    """What to say of a file that is not what its name says."""
    return InputError(
        f"{path}: expected {expected} of DLIO, found {found}; copy the result again, or leave the "
        "file out"
    )


def objects(values: object) -> Object:
    """The object itself; an empty one for anything else."""
    return values if isinstance(values, dict) else {}


def seconds(values: object) -> NDArray[np.float64] | None:
    """A list of durations as an array; None where one is no possible duration."""
    if not isinstance(values, list) or any(type(v) not in (int, float) for v in values):
        return None
    found = np.array(values, np.float64)
    return found if bool(((found >= 0) & (found < LONGEST_S)).all()) else None


def number(value: object, most: float = 1e18) -> float | None:
    """A number from 0 to `most`, written as one or as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is int or type(value) is float:
        return float(value) if 0 <= value <= most else None
    return None


def whole(value: object, most: int = 10**12) -> int | None:
    """A whole number from 0 to `most`, written as one or as text."""
    found = number(value, most)
    return None if found is None or found != int(found) else int(found)


def local_ns(value: object) -> int | None:
    """A time of the benchmark in ns since the epoch, as if its clock showed UTC."""
    try:
        found = datetime.fromisoformat(value if isinstance(value, str) else "")
        found = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
        since = found - datetime(1970, 1, 1, tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        return None
    ns = (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
    return ns if 0 < ns < 4 * 10**18 else None


def read_config(path: Path) -> dict[str, str]:
    """Scalars of a file that Hydra wrote: dotted name -> text. Lists are left out.

    Only what Hydra writes is understood: nested mappings by indentation, and plain scalars.
    """
    try:
        text = read_whole(path)[:_MOST_CONFIG_BYTES].decode(errors="replace")
    except (OSError, InputError):
        return {}
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        indent, name, value = len(match[1]), match[2], match[3]
        while above and above[-1][0] >= indent:
            above.pop()
        if value is None:
            above = [*above[: _MOST_DEPTH - 1], (indent, name)]
        else:
            found[".".join([*(each for _, each in above), name])] = value.strip("'\"")
    return found
