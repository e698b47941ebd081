"""What the child of `sandbox` does: looks into files within limits, one line of JSON each."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vanidl.dataset import inspect_file
from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError, UsageError

MOST_ANSWER_BYTES = 16 << 20


def main(memory_bytes: int, seconds: int) -> None:
    """Answers the list of paths on standard input; `seconds` is the time for each."""
    paths = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints must not get between the answers
        _limit(memory_bytes)
        for path in paths:
            signal.alarm(seconds)
            answers.write(_line(_answer(path)))
            answers.flush()


def _limit(memory_bytes: int) -> None:
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def _answer(path: str) -> dict[str, Any] | None:
    try:
        facts = read_one(inspect_file, Path(path))
    except InputError as error:
        return {"error": str(error)}
    except UsageError as error:
        return {"usage": str(error)}
    return None if facts is None else asdict(facts)


def _line(answer: dict[str, Any] | None) -> bytes:
    line = json.dumps(answer).encode()
    if len(line) > MOST_ANSWER_BYTES:
        line = json.dumps({"error": "a data file says more of itself than is of use"}).encode()
    return line + b"\n"
