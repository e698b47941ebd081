"""Data files looked into by a child process with limits: their libraries may end it.

Parquet's C++ aborts on some damaged files, HDF5's recurses as deep as a file says, and a header may
ask for any memory. The child takes many files, as starting one costs as much as looking into a
hundred; where it ends, the file at hand is named and the rest gets a new child.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vanidl.dataset.registry import inspect_file
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError, UsageError
from vanidl.files.checked_json import checked_fields
from vanidl.model.run_facts import ArrayFacts, Block, FileFacts
from vanidl.parallel import children

MEMORY_BYTES = 4 << 30  # of the child
FILE_SECONDS = 20  # for one file
START_SECONDS = 60  # for the child to import its libraries, from slow storage too
MOST_ANSWER_BYTES = 16 << 20
_CHILD = "from vanidl.dataset.sandbox import answer_paths; answer_paths({memory}, {seconds})"
_LARGEST = 2**63
_EXPECTED = "expected a data file that can be opened"
_REMEDY = "Leave --inspect out to do without."
Answer = FileFacts | InputError | None


def inspect_files(paths: Sequence[Path]) -> list[Answer]:
    """The facts of each file, why there are none, or None where no reader knows its ending.

    Raises:
        UsageError: The format of one needs a library that is not installed.
    """
    found: list[Answer] = []
    while len(found) < len(paths):
        # A child answers in order, a line for each file that is left, as long as it lives.
        left = paths[len(found) :]
        code = _CHILD.format(memory=MEMORY_BYTES, seconds=FILE_SECONDS)
        request = json.dumps([str(path.absolute()) for path in left]).encode()
        seconds = START_SECONDS + FILE_SECONDS * len(left)
        ended = children.current_children().run(code, request, seconds)
        lines = ended.output.split(b"\n")[:-1]  # the last may be cut
        answers = [json.loads(line) for line in lines]
        found += [_read_answer(path, a) for path, a in zip(left, answers, strict=False)]
        if len(answers) < len(left):
            at_fault, ending = left[len(answers)], _describe_ending(ended.status)
            found.append(InputError(f"{at_fault}: {_EXPECTED}, found one that {ending}. {_REMEDY}"))
    return found


def _describe_ending(status: int) -> str:
    if status in (-signal.SIGALRM, -signal.SIGKILL):
        return f"takes more than {FILE_SECONDS} s to look into"
    if status < 0:
        return f"ends the library of its format with signal {-status}"
    return f"ends the process that looks into it with status {status}"


def _read_answer(path: Path, values: object) -> Answer:
    try:
        if not isinstance(values, dict):
            return None
        if "usage" in values:
            raise UsageError(str(values["usage"]))
        if "error" in values:
            return InputError(str(values["error"]))
        plain = _plain_fields(FileFacts, values) | {"path": str(path)}
        arrays = tuple(_make_array(array) for array in values["arrays"])
        blocks = tuple(Block(**_plain_fields(Block, block)) for block in values["blocks"])
        return FileFacts(**plain, arrays=arrays, blocks=blocks)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return InputError(f"{path}: {_EXPECTED}, found impossible values ({error}). {_REMEDY}")


def _make_array(values: Mapping[str, Any]) -> ArrayFacts:
    return ArrayFacts(
        **_plain_fields(ArrayFacts, values),
        shape=_check_sizes(values["shape"]),
        chunk=None if values["chunk"] is None else _check_sizes(values["chunk"]),
        filters=tuple(map(str, values["filters"])),
    )


def _plain_fields(record: type, values: object) -> dict[str, Any]:
    """Fields that are plain values, numbers among them that can be a size."""
    found = checked_fields(record, values)
    numbers = [v for v in found.values() if type(v) in (int, float)]
    if not all(0 <= number < _LARGEST for number in numbers):
        raise ValueError("a size that no file has")
    return found


def _check_sizes(values: Sequence[object]) -> tuple[int, ...]:
    sizes = tuple(value for value in values if type(value) is int and 0 <= value < _LARGEST)
    if len(sizes) < len(values):
        raise ValueError("a shape that no array has")
    return sizes


# The child: looks into files within limits, one line of JSON each.


def answer_paths(memory_bytes: int, seconds: int) -> None:
    """Answers the list of paths on standard input; `seconds` is the time for each."""
    paths = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints must not get between the answers
        _limit_child(memory_bytes)
        for path in paths:
            signal.alarm(seconds)
            line = json.dumps(_inspect(path)).encode()
            if len(line) > MOST_ANSWER_BYTES:
                line = b'{"error": "a data file says more of itself than is of use"}'
            answers.write(line + b"\n")
            answers.flush()


def _limit_child(memory_bytes: int) -> None:
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def _inspect(path: str) -> dict[str, Any] | None:
    try:
        facts = read_one(inspect_file, Path(path))
    except InputError as error:
        return {"error": str(error)}
    except UsageError as error:
        return {"usage": str(error)}
    return None if facts is None else asdict(facts)
