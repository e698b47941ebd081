"""Steps of programs of several processes, however they were started and ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import vanidl
from tests.record import counted_loop
from vanidl.errors import UsageError
from vanidl.readers.steps.journal import WAIT, Journal, read_journal
from vanidl.record import Recorded, record

PROGRAM = Path(counted_loop.__file__)
NAMED = ("__main__:Batches",)


def run(folder: Path, how: str) -> Recorded:
    (folder / "truth").mkdir()
    command = [sys.executable, str(PROGRAM), how, str(folder / "truth")]
    return record(command, folder / "RUN", tracer="none", waits=NAMED)


def ends(folder: Path) -> dict[int, tuple[list[int], Journal]]:
    """pid -> what it wrote of the ends of its waits, and what was recorded of it."""
    journals = [read_journal(path) for path in (folder / "RUN" / "steps").glob("*.steps")]
    known = {journal.process["pid"]: journal for journal in journals}
    told = {int(p.name): [*map(int, p.read_text().split())] for p in (folder / "truth").iterdir()}
    return {pid: (times, known[pid]) for pid, times in told.items()}


def assert_whole(times: list[int], journal: Journal, lost_ns: int = 0) -> None:
    """Every wait of which the program knows is there, in order, until so long before its last one.

    That began once the end of the one before it was told.
    """
    waits = journal.events.end[journal.events.kind == WAIT].tolist()
    kept = [time for time in times if time <= times[-2] - lost_ns] if lost_ns else times
    assert len(times) >= len(waits) >= len(kept)
    before = [0, *times]
    assert all(before[k] <= wait <= times[k] for k, wait in enumerate(waits))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("how", ["alone", "os.fork", "subprocess", "fork", "spawn", "forkserver"])
def test_a_process_is_recorded_however_it_was_started(tmp_path: Path, how: str) -> None:
    assert run(tmp_path, how).exit_status == 0
    ((times, journal),) = ends(tmp_path).values()
    assert len(times) == counted_loop.BATCHES
    assert_whole(times, journal)


def test_a_killed_rank_loses_a_second_and_the_others_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "ranks").exit_status == 9
    assert capfd.readouterr().out == "out\n"
    found = ends(tmp_path).values()
    assert sorted(journal.process["rank"] for _, journal in found) == [*range(counted_loop.RANKS)]
    for times, journal in found:
        killed = journal.process["rank"] == 2
        assert_whole(times, journal, int(counted_loop.LOST_S * 1e9) if killed else 0)
        assert journal.ended != killed
    trace = vanidl.open_run(tmp_path / "RUN").trace
    assert len(trace.ranks) == counted_loop.RANKS
    (cut,) = [warning.message for warning in trace.warnings if warning.code == "steps_cut"]
    assert "last second" in cut


def test_a_hook_that_fails_is_in_the_run_once_and_the_program_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs.py").write_text("batches = 5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = "import theirs\nclass Rows:\n __iter__ = lambda self: iter([1, 2])\n"
    script += "print(theirs.batches, *Rows(), *Rows())"
    waits = ("theirs:batches", "__main__:Rows")
    done = record([sys.executable, "-c", script], tmp_path / "RUN", tracer="none", waits=waits)
    assert done.exit_status == 0
    assert tuple(capfd.readouterr()) == ("5 1 2 1 2\n", "")
    warnings = vanidl.open_run(tmp_path / "RUN").trace.warnings
    (incomplete,) = [w for w in warnings if w.code == "steps_incomplete"]
    assert "theirs:batches" in incomplete.message


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="MODULE:NAME"):
        record(["true"], tmp_path / "RUN", tracer="none", waits=("batches",))


def test_a_program_named_with_bytes_that_are_no_text_keeps_its_steps(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/train-\xff-\xc3\xa9.py"
    with open(program, "w") as file:  # noqa: PTH123 - no Path is of bytes
        file.write("import vanidl\nfor _ in range(7):\n    with vanidl.step(): pass\n")
    done = record([sys.executable, os.fsdecode(program)], tmp_path / "RUN", tracer="none")
    run = vanidl.open_run(done.folder)
    assert done.exit_status == 0
    assert len(run.steps.table.step) == 7
    run.trace.job.command.encode("utf-8")
