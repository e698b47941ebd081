"""I/O that is hidden or exposed by construction, recorded, against what the program measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import vanidl
from vanidl.record import dftracer, record

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "programs" / "known_split.py"
WITHIN = 0.02


@pytest.mark.parametrize("helper", ["process", "thread"])
def test_hidden_and_exposed_io_are_those_of_the_program(tmp_path: Path, helper: str) -> None:
    if dftracer.find_library() is None:
        pytest.skip("the package dftracer is not installed (x86-64 Linux only)")
    truth = tmp_path / "truth"
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(truth), helper]
    waits = ("__main__:Batches",)
    assert record(command, tmp_path / "RUN", tracer="dftracer", waits=waits).exit_status == 0
    overlap = vanidl.open_run(tmp_path / "RUN").overlap
    assert overlap is not None
    assert overlap.basis == "loop"
    (rank,) = overlap.per_rank
    parts = {name: getattr(rank, name) for name in ("in_wait_s", "hidden_s", "other_s")}
    for name, (expected_s, delayed_s) in json.loads(truth.read_text()).items():
        assert parts[name] == pytest.approx(expected_s, abs=WITHIN * expected_s + delayed_s), name
    assert sum(parts.values()) == pytest.approx(rank.io_s - rank.unobserved_s, rel=1e-9)
