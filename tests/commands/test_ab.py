from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import DATA
from vanidl.commands import ab as command
from vanidl.commands.arguments import ARGUMENTS
from vanidl.errors import VanidlError
from vanidl.model.run_facts import Ending


@dataclass(frozen=True)
class Ended:
    exit_status: int
    tracer: str = "darshan"

    @property
    def ending(self) -> Ending:
        return Ending(self.exit_status)


def record(words: Sequence[str], folder: Path, *, tracer: str, darshan_lib: str | None) -> Ended:
    """Leaves the recorded run that the command names, as if it had run just now."""
    assert (tracer, darshan_lib) == ("auto", None)
    if words[0] == "false":
        return Ended(1)
    shutil.copytree(DATA / words[0], folder, dirs_exist_ok=True)
    return Ended(0)


@pytest.fixture
def ab(monkeypatch):
    monkeypatch.setattr(command, "record", record)
    parser = argparse.ArgumentParser()
    ARGUMENTS["ab"](parser)
    return lambda *words: command.run(parser.parse_args(words))


def test_pairs_are_recorded_and_compared(ab, capsys, tmp_path):
    page = tmp_path / "ab.html"
    runs = tmp_path / "runs"
    status = ab(
        "--a", "torch_pfs_workers0", "--b", "torch_pfs_workers4", "--repeat", "2",
        "--runs", str(runs), "-o", str(page),
    )  # fmt: skip
    assert status == 0
    out = capsys.readouterr().out
    assert out.startswith("2 pairs, too few for a verdict; seen: B has 2.18 times the throughput")
    assert out.endswith(f"runs: {runs}\n")
    assert sorted(p.name for p in runs.iterdir()) == ["a-0", "a-1", "a-2", "ab.json",
                                                      "b-0", "b-1", "b-2"]  # fmt: skip
    text = page.read_text(encoding="utf-8")
    assert "warm: caches left alone" in text
    assert "B A A B" in text


def test_a_failing_command_keeps_the_runs(ab, tmp_path):
    with pytest.raises(VanidlError, match="command B failed in the warm-up pair"):
        ab("--a", "torch_pfs_workers0", "--b", "false", "--runs", str(tmp_path / "runs"))
    assert (tmp_path / "runs/ab.json").is_file()
    assert (tmp_path / "runs/a-0/darshan").is_dir()
