"""Secrets of every kind in every field of every format are in no output of any command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.anonymize.planted import decoded, plant
from tests.makers.canaries import NAMES, Canaries
from vanidl.cli import main
from vanidl.commands.arguments import COMMANDS
from vanidl.export.registry import FORMATS
from vanidl.mcp.answers import TOOLS, Answers, KnownRuns
from vanidl.readers import discover, registry

pytest.importorskip("pyarrow", reason="tables are written by pyarrow")

Arguments = Callable[[list[str], Path], list[list[str]]]

OF_RUNS: dict[str, Arguments] = {
    "summary": lambda runs, out: [
        ["summary", run, *how] for run in runs for how in ([], ["--full"], ["--json"])
    ],
    "report": lambda runs, out: [
        ["report", run, "-o", f"{out}/{i}.html"] for i, run in enumerate(runs)
    ],
    "compare": lambda runs, out: [
        ["compare", *runs[:2], "--label", f"token={runs[0][-24:]}"],
        ["compare", *runs[:2], "--json", "-o", f"{out}/page.html"],
    ],
    "check": lambda runs, out: [["check", *runs], ["check", *runs, "--json"]],
    "survey": lambda runs, out: [["survey", str(Path(runs[0]).parent), "-o", f"{out}/survey"]],
    "watch": lambda runs, out: [
        ["watch", runs[3], "--plain", "--openmetrics", f"{out}/metrics.prom"]
    ],
}
ELSEWHERE = {"export", "record", "ab", "ceiling", "mcp", "view"}
"""Commands with a test of their own below; `view` serves the page of `report`."""
OF_NO_RUN = {"demo", "completion", "schema"}
ANONYMOUS = ("summary", "report", "compare", "survey")


def test_every_command_is_tried() -> None:
    assert set(OF_RUNS) | ELSEWHERE | OF_NO_RUN == set(COMMANDS)


@pytest.fixture(scope="module")
def canaries() -> Canaries:
    return Canaries(40)


@pytest.fixture(scope="module")
def runs(canaries: Canaries, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [str(path) for path in plant(canaries, folder, None)]


def test_every_format_is_planted(runs: list[str]) -> None:
    kinds = {kind for run in runs for kind in discover.find(Path(run)).files}
    for known in registry.FORMATS:
        assert kinds & {kind.name for kind in known.kinds}, known.name


def all_said(capsys: pytest.CaptureFixture[str], calls: list[list[str]], out: Path) -> str:
    """What the calls print, and write below a folder.

    Not what a survey keeps to find logs again, which nobody else may read.
    """
    for call in calls:
        main(call)
    printed = capsys.readouterr()
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    kept = [path for path in files if path.suffix == ".known"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
    written = [decoded(path) for path in files if path not in kept]
    names = [str(path.relative_to(out)) for path in out.rglob("*")]
    return "\n".join([printed.out, printed.err, *names, *written])


@pytest.mark.parametrize("command", OF_RUNS)
def test_no_output_holds_a_secret(capsys, tmp_path, canaries, runs, command) -> None:
    said = all_said(capsys, OF_RUNS[command](runs, tmp_path), tmp_path)
    assert len(said) > 100
    assert canaries.found_in(said) == set()


@pytest.mark.parametrize("command", ANONYMOUS)
def test_nor_do_anonymous_ones(capsys, tmp_path, canaries, runs, command) -> None:
    calls = [[*call, "--anonymize"] for call in OF_RUNS[command](runs, tmp_path)]
    said = all_said(capsys, calls, tmp_path)
    assert len(said) > 100
    assert canaries.found_in(said) == set()


@pytest.mark.parametrize("to", FORMATS)
def test_no_export_holds_a_secret(capsys, monkeypatch, tmp_path, canaries, runs, to) -> None:
    if to == "figures":
        pytest.importorskip("matplotlib")
        from vanidl.paper import style

        monkeypatch.setattr(style, "WIDTHS_IN", {"2col": style.WIDTHS_IN["2col"]})
        runs = runs[:1]  # each takes seconds
    calls = [["export", run, "--to", to, "-o", f"{tmp_path}/{i}"] for i, run in enumerate(runs)]
    assert canaries.found_in(all_said(capsys, calls, tmp_path)) == set()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_no_answer_to_an_assistant_holds_a_secret(canaries, runs, tool) -> None:
    known = KnownRuns([Path(runs[0]).parent])
    answers = Answers(known)
    names = [name for name in known.names() if known.path(name).is_dir()]
    assert len(names) >= len(runs)
    wanted = tool.__code__.co_varnames[1 : tool.__code__.co_argcount]
    told = [
        getattr(answers, tool.__name__)(*[name] * len({"run", "a", "b"} & set(wanted)))
        for name in names[: 1 if "a" in wanted else None]
    ]
    assert canaries.found_in("\n".join(told)) == set()


def test_nothing_that_recording_leaves_holds_a_secret(tmp_path: Path) -> None:
    """run.json, ab.json, the page, and all that is printed, of commands that take every kind."""
    canaries = Canaries(41)
    command = [sys.executable, "-c", "print('trained')", *canaries.command()]
    label = NAMES["assignment"](canaries.word)
    shown = " ".join(f"'{word}'" if "'" not in word else "x" for word in command)
    environment = {**os.environ, "WANDB_API_KEY": canaries.word()}
    calls = [
        ["record", "--tracer", "none", "-o", "RUN", "--", *command],
        ["ab", "--tracer", "none", "--repeat", "1", "--runs", "AB", "-o", "ab.html",
         "--label", label, "--a", shown, "--b", f"{shown} 2"],
    ]  # fmt: skip
    said = []
    for call in calls:
        done = subprocess.run(
            [sys.executable, "-m", "vanidl", *call], check=False, cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        said += [done.stdout, done.stderr]
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"run.json", "ab.json"} <= {path.name for path in left}
    assert canaries.found_in("\n".join([*said, *map(decoded, left)])) == set()
    record = json.loads((tmp_path / "RUN/run.json").read_text())
    assert record["command"][-2:] == ["--epochs", "3"]
