"""A rank that left no steps is named by its number, as far as launchers told the others."""

from __future__ import annotations

from pathlib import Path

import pytest

import vanidl
from tests.makers.step_journals import journal_bytes
from vanidl.record.injected.vanidl_steps.journal import process_description

LOOP = "w0:0-1 o:5 w0:10-11 o:15"


def said(folder: Path, *ranks: tuple[int | None, int | None], silent: int | None = None) -> str:
    """What is said of a RUN whose (rank, world size) recorded steps; `silent` wrote its header."""
    for pid, (rank, size) in enumerate(ranks, 7):
        process = {"host": "n", "pid": pid, "rank": rank, "world_size": size}
        (folder / f"n-{pid}.steps").write_bytes(journal_bytes(process, LOOP))
    if silent is not None:
        process = {"host": "n", "pid": 99, "rank": silent, "world_size": 2}
        (folder / "n-99.steps").write_bytes(journal_bytes(process, "", loaders=0))
    warnings = vanidl.open_run(folder).coverage.warnings
    return " ".join(w.message for w in warnings if w.code == "ranks_silent")


def test_a_rank_that_left_nothing_is_named(tmp_path: Path) -> None:
    assert "rank 1 of 2 left none" in said(tmp_path, (0, 2))


def test_a_rank_that_left_a_header_alone_is_named(tmp_path: Path) -> None:
    assert "rank 1 of 2 left none" in said(tmp_path, (0, 2), silent=1)


def test_of_many_the_first_are_named_at_once(tmp_path: Path) -> None:
    words = said(tmp_path, (0, 10**9), (3, 10**9))
    assert "ranks 1, 2, 4, 5 and 999,999,994 more of" in words


@pytest.mark.parametrize(
    "ranks",
    [
        [(0, 2), (1, 2)],  # all are there
        [(0, 2), (0, 2), (1, 2)],  # one was started again
        [(0, 1), (0, None)],  # alone
        [(None, 2), (None, 2)],  # they do not know their number
        [(0, 2), (None, 2)],
        [(5, 2)],  # a number that cannot be
    ],
)
def test_nothing_is_said_where_none_is_missing(
    tmp_path: Path, ranks: list[tuple[int | None, int | None]]
) -> None:
    assert not said(tmp_path, *ranks)


def test_a_batch_script_is_no_world_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm gives `sbatch -n 8` the rank 0 and the size 8, and the script runs one Python."""
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_NTASKS", "8")
    assert process_description()["world_size"] is None
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    assert process_description()["world_size"] == 8
