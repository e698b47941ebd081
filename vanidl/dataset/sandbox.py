"""Data files looked into by a child process with limits: their libraries may end it.

Parquet's C++ aborts on some damaged files, HDF5's recurses as deep as a file says, and a header may
ask for any memory. The child takes many files, as starting one costs as much as looking into a
hundred; where it ends, the file at hand is named and the rest gets a new child.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vanidl.errors import InputError, UsageError
from vanidl.files.checked_json import checked_fields
from vanidl.model.file_facts import ArrayFacts, Block, FileFacts
from vanidl.parallel import children

MEMORY_BYTES = 4 << 30
FILE_SECONDS = 20
START_SECONDS = 60

_CHILD = "from vanidl.dataset.sandbox_child import main; main({memory}, {seconds})"
_LARGEST = 2**63
_REMEDY = "Leave --inspect out to do without."

Answer = FileFacts | InputError | None


def inspect_files(paths: Sequence[Path]) -> list[Answer]:
    """The facts of each file, why there are none, or None where no reader knows its ending.

    Raises:
        UsageError: The format of one needs a library that is not installed.
    """
    found: list[Answer] = []
    while len(found) < len(paths):
        left = paths[len(found) :]
        answers, ending = _child(left)
        found += [_answer(path, a) for path, a in zip(left, answers, strict=False)]
        if len(answers) < len(left):
            at_fault = left[len(answers)]
            found.append(InputError(f"{at_fault}: {_EXPECTED}, found one that {ending}. {_REMEDY}"))
    return found


_EXPECTED = "expected a data file that can be opened"


def _child(paths: Sequence[Path]) -> tuple[list[object], str]:
    """Its answers in order, and how it ended."""
    code = _CHILD.format(memory=MEMORY_BYTES, seconds=FILE_SECONDS)
    request = json.dumps([str(path.absolute()) for path in paths]).encode()
    seconds = START_SECONDS + FILE_SECONDS * len(paths)
    ended = children.current().run(code, request, seconds)
    return _lines(ended.output), _ending(ended.status)


def _lines(output: bytes) -> list[object]:
    """One answer a line; a last one without its end is none."""
    return [json.loads(line) for line in output.split(b"\n")[:-1]]


def _ending(status: int) -> str:
    if status in (-signal.SIGALRM, -signal.SIGKILL):
        return f"takes more than {FILE_SECONDS} s to look into"
    if status < 0:
        return f"ends the library of its format with signal {-status}"
    return f"ends the process that looks into it with status {status}"


def _answer(path: Path, values: object) -> Answer:
    try:
        return _checked(path, values)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return InputError(f"{path}: {_EXPECTED}, found impossible values ({error}). {_REMEDY}")


def _checked(path: Path, values: object) -> Answer:
    if not isinstance(values, dict):
        return None
    if "usage" in values:
        raise UsageError(str(values["usage"]))
    if "error" in values:
        return InputError(str(values["error"]))
    plain = _plain(FileFacts, values) | {"path": str(path)}
    arrays = tuple(_array(array) for array in values["arrays"])
    blocks = tuple(Block(**_plain(Block, block)) for block in values["blocks"])
    return FileFacts(**plain, arrays=arrays, blocks=blocks)


def _array(values: Mapping[str, Any]) -> ArrayFacts:
    return ArrayFacts(
        **_plain(ArrayFacts, values),
        shape=_sizes(values["shape"]),
        chunk=None if values["chunk"] is None else _sizes(values["chunk"]),
        filters=tuple(map(str, values["filters"])),
    )


def _plain(record: type, values: object) -> dict[str, Any]:
    """Fields that are plain values, numbers among them that can be a size."""
    found = checked_fields(record, values)
    numbers = [v for v in found.values() if type(v) in (int, float)]
    if not all(0 <= number < _LARGEST for number in numbers):
        raise ValueError("a size that no file has")
    return found


def _sizes(values: Sequence[object]) -> tuple[int, ...]:
    sizes = tuple(value for value in values if type(value) is int and 0 <= value < _LARGEST)
    if len(sizes) < len(values):
        raise ValueError("a shape that no array has")
    return sizes
