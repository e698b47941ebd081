"""A few mutants of every kind; `python -m tests.fuzz` runs thousands and prints the table."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz import forks
from tests.fuzz.mutants import KINDS, seeds
from tests.fuzz.readers import READERS
from tests.fuzz.values import files_of
from tests.fuzz.verdicts import (
    APART,
    CRASHED,
    FAULTS,
    HUNG,
    MEMORY,
    RAISED,
    REFUSED,
    SAID,
    SAME,
    SILENT,
    Outcome,
    fresh_outcome,
    outcome,
    verdict,
)
from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log
from vanidl.cli import main
from vanidl.encoding.budget import FREE_TEXT_BYTES
from vanidl.parallel.children import interpreter_command

LOGS = {"3.00": Log("3.00"), "3.41": Log(dxt_version={"DXT_POSIX": 2})}


@pytest.mark.parametrize("version", LOGS)
def test_no_mutant_is_silently_wrong(tmp_path: Path, version: str) -> None:
    path = tmp_path / "mutant.darshan"
    write_log(path, Workload(300, ranks=2, files=2), LOGS[version])
    content = path.read_bytes()
    whole = fresh_outcome(path, FREE_TEXT_BYTES)
    assert whole.answer is not None
    verdicts: Counter[str] = Counter()
    for kind in KINDS:
        for mutant in seeds(content, kind, (3,)):
            path.write_bytes(mutant)
            verdicts[
                verdict(whole.answer, fresh_outcome(path, FREE_TEXT_BYTES), content, mutant)
            ] += 1
    assert not {v: n for v, n in verdicts.items() if v in FAULTS}
    assert verdicts[SAID] > 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("raise ValueError('x')", RAISED),
        ("import os; os.abort()", CRASHED),
        ("import signal, os; os.kill(os.getpid(), signal.SIGALRM)", HUNG),
        ("bytes(1 << 40)", MEMORY),
        ("from vanidl.errors import InputError; raise InputError('x')", REFUSED),
    ],
)
def test_the_judge_sees_how_a_child_ends(tmp_path, monkeypatch, code: str, state: str) -> None:
    monkeypatch.setattr("tests.fuzz.verdicts.open_run", lambda path: exec(code))
    assert outcome(tmp_path).state == state


def test_the_judge_tells_said_from_silent() -> None:
    def answer(ops: int, *messages: str) -> dict:
        warnings = [{"code": "damaged", "message": m} for m in messages]
        return {"io": {"ops": ops}, "coverage": {"complete": not messages, "warnings": warnings}}

    write = Log(partial=("POSIX",))
    from tests.makers.darshan_logs import log_bytes

    content = log_bytes(write)
    flag, other = bytearray(content), bytearray(content)
    flag[24] ^= 1
    other[-1] ^= 1
    judged = [
        verdict(answer(5), Outcome("answer", found), content, bytes(mutant))
        for found, mutant in (
            (answer(5), other), (answer(4, "cut"), other), (answer(4), other), (answer(4), flag)
        )
    ]  # fmt: skip
    assert judged == [SAME, SAID, SILENT, APART]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "end",
    ["pass", "sys.exit(3)", "raise ValueError('x')", "os.kill(os.getpid(), 15)", "sys.exit('x')"],
)
def test_a_fork_ends_and_answers_as_the_interpreter_that_it_stands_for(end: str) -> None:
    code = f"import os; print(sys.stdin.read()[::-1], flush=True); {end}"
    ends = []
    for start in (subprocess.Popen, forks.Forked):
        child = start(interpreter_command(code), stdin=-1, stdout=-1, stderr=subprocess.DEVNULL)
        ends.append((child.communicate(b"abc"), child.returncode))
    assert ends[0] == ends[1]
    assert ends[0][0][0] == b"cba\n"


OF_A_RUN = (
    "objects", "calls", "calls gzip", "states", "steps", "dlio", "dlio times", "mlperf",
    "run record",
)  # fmt: skip


@pytest.mark.parametrize("way", OF_A_RUN)
def test_odd_numbers_in_what_a_run_holds_are_an_answer_or_a_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """All that is computed of it; `python -m tests.fuzz.commands` tries thousands, and exports."""
    for seed in range(4):
        folder = tmp_path / f"{seed}"
        for name, content in files_of(way, np.random.default_rng((5, seed))).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        if way == "run record":
            (folder / "x.pfw").write_bytes(READERS["dftracer"].content)
        status = main(["summary", str(folder), "--json"])
        said = capsys.readouterr()
        assert (status == 0 and json.loads(said.out)) or said.err.startswith("vanidl: ")
