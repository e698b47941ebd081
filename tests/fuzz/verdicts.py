"""What the tool makes of a damaged log, found out in a child with limits of its own."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.fuzz import forks
from tests.fuzz.mutants import changed, unprotected
from vanidl.errors import InputError
from vanidl.report.summary import summary_json
from vanidl.run import open_run

MEMORY_BYTES = 4 << 30
SECONDS = 60

SAME, SAID, REFUSED = "same", "different and said", "refused in one line"
APART = "different in an unprotected word"
SILENT, RAISED, CRASHED, HUNG, MEMORY = (
    "silently different", "exception", "crash", "hang", "out of memory",
)  # fmt: skip
VERDICTS = (SAME, SAID, REFUSED, APART, SILENT, RAISED, CRASHED, HUNG, MEMORY)
FAULTS = (SILENT, RAISED, CRASHED, HUNG, MEMORY)


@dataclass(frozen=True)
class Outcome:
    """How a child ended: its answer, or why there is none."""

    state: str  # "answer", REFUSED, RAISED, CRASHED, HUNG or MEMORY
    answer: dict[str, Any] | None = None
    message: str = ""
    seconds: float = 0.0


def outcome(path: Path) -> Outcome:
    """`vanidl summary --json` of a log, in a forked child that may die."""
    began = time.monotonic()
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        os.close(read)
        answer(path, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        raw = pipe.read()
    _, status = os.waitpid(pid, 0)
    return _ended(os.waitstatus_to_exitcode(status), raw, time.monotonic() - began)


def fresh_outcome(path: Path, free_bytes: int) -> Outcome:
    """The same from a process without threads: one that has some must not fork and work on."""
    return Outcome(**_asked(path, free_bytes))


def memory(path: Path, reader: str) -> tuple[int, int]:
    """`costs.memory` of one of READERS, from such a process."""
    peak, held = _asked(path, reader)
    return peak, held


def _asked(path: Path, what: int | str) -> Any:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([str(path), what]) + "\n")
    server.stdin.flush()
    found = json.loads(server.stdout.readline())
    assert not isinstance(found, str), found
    return found


@cache
def _server() -> subprocess.Popen[str]:
    """Started once and ended with this process."""
    line = [sys.executable, "-m", "tests.fuzz.child"]
    pipe = subprocess.PIPE
    server = subprocess.Popen(line, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    atexit.register(server.communicate)  # its input ends, so it does
    return server


def _ended(status: int, raw: bytes, spent: float) -> Outcome:
    if status < 0:
        return Outcome(HUNG if status == -signal.SIGALRM else CRASHED, None, f"{-status}", spent)
    found = json.loads(raw)
    return Outcome(found["state"], found.get("answer"), found.get("message", ""), spent)


def warm() -> None:
    """Forks the children that read counters instead of starting them: ten times as many mutants.

    Only for a process that does nothing else.
    """
    forks.instead_of_interpreters()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page of this process


def answer(path: Path, write: int) -> None:
    """Answers within limits and leaves the process; never returns."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    try:
        run = open_run(path)
        found = {"state": "answer", "answer": json.loads(summary_json(run))}
    except InputError as error:
        found = {"state": REFUSED, "message": str(error)}
    except MemoryError:
        found = {"state": MEMORY}
    except Exception:  # whatever it is, it is counted
        found = {"state": RAISED, "message": traceback.format_exc()}
    with os.fdopen(write, "wb") as pipe:
        pipe.write(json.dumps(found).encode())
    os._exit(0)


def verdict(whole: dict[str, Any], found: Outcome, content: bytes, mutant: bytes) -> str:
    """One of VERDICTS: what the answer about a mutant is worth."""
    if found.answer is None:
        return found.state
    if _numbers(found.answer) == _numbers(whole):
        return SAME
    if warned(found.answer) - warned(whole) or _is_incomplete(found.answer) > _is_incomplete(whole):
        return SAID
    words = unprotected(content)
    return APART if changed(content, mutant) <= set().union(*words.values()) else SILENT


def warned(answer: dict[str, Any]) -> set[tuple[str, str]]:
    """Code and message of every warning of a summary."""
    return {(w["code"], w["message"]) for w in answer["coverage"]["warnings"]}


def _is_incomplete(answer: dict[str, Any]) -> bool:
    return not answer["coverage"]["complete"]


def _numbers(answer: dict[str, Any]) -> dict[str, Any]:
    """The summary without its warnings."""
    coverage = {k: v for k, v in answer["coverage"].items() if k not in ("warnings", "complete")}
    return answer | {"coverage": coverage}
