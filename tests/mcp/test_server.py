"""Assistants get measured numbers of the runs below the roots, bounded, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import DATA, ROOT
from tests.makers.needed import needed
from vanidl.errors import InputError, UsageError
from vanidl.mcp import answers
from vanidl.mcp.answers import MOST_CHARACTERS, TOOLS, KnownRuns, bound_answer
from vanidl.report.summary import summary_object

needed("mcp", reason="the server needs the package mcp")
anyio = pytest.importorskip("anyio")

FAST, SLOW = "data/torch_pfs_workers4", "data/torch_pfs_workers0"


@pytest.fixture(scope="module")
def known() -> KnownRuns:
    return KnownRuns([DATA])


def client_of(known: KnownRuns) -> Any:
    """The package's own client, at a server of these runs."""
    from mcp import Client

    from vanidl.mcp.server import make_server

    return Client(make_server(known))


def ask(known: KnownRuns, *questions: tuple[str, dict]) -> list[tuple[bool, str]]:
    """Whether each is an error, and its text, as the package's own client sees them."""

    async def asked() -> list[tuple[bool, str]]:
        async with client_of(known) as client:
            found = [await client.call_tool(name, given) for name, given in questions]
        return [(answer.is_error, answer.content[0].text) for answer in found]

    return anyio.run(asked)


def test_answers_are_those_of_the_json_outputs(known: KnownRuns, opened) -> None:
    content = json.loads(json.dumps(summary_object(opened(DATA / "torch_pfs_workers0"))))
    questions = [(name, {"run": SLOW}) for name in ("summary", "findings", "what_if", "files")]
    pages = ask(known, ("runs", {}), *questions, ("steps", {"run": SLOW, "first": 2, "count": 3}),
                ("compare", {"a": SLOW, "b": FAST}))  # fmt: skip
    assert not any(error for error, _ in pages)
    runs, summary, findings, what_if, files, steps, compare = (json.loads(p) for _, p in pages)
    assert {SLOW, FAST} <= set(runs["runs"])
    assert "endings" not in runs  # of none a program failed
    assert summary["headline"] == content["headline"]
    assert summary["overlap"]["mean"] == content["overlap"]["mean"]
    assert [f["code"] for f in findings["findings"]] == [f["code"] for f in content["findings"]]
    assert what_if["what_if"] == content["what_if"]
    assert files["files"][0]["file"] == "/scratch/pfs/ptycho.h5"
    assert (len(steps["steps"]), steps["first"], steps["of"]) == (3, 2, 60)
    assert compare["metrics"]["input_wait_s"]["a"] == content["overlap"]["mean"]["input_wait_s"]


def test_every_tool_is_read_only_and_described(known: KnownRuns) -> None:
    async def listed() -> list:
        async with client_of(known) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(listed)}
    assert list(tools) == [tool.__name__ for tool in TOOLS]
    assert {tool.annotations.read_only_hint for tool in tools.values()} == {True}
    assert all(tool.description for tool in tools.values())
    assert set(tools["compare"].input_schema["required"]) == {"a", "b"}
    page = (ROOT / "docs" / "assistants.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(tools)


@pytest.mark.parametrize(
    "name", ["../data/torch_pfs_workers0", str(DATA / "torch_pfs_workers0"), "data/../data", "/",
             "data//torch_pfs_workers0", "data/torch_pfs_workers0/tb", "", "no\x1b[31m\nsuch"]
)  # fmt: skip
def test_only_names_that_are_listed_are_opened(known: KnownRuns, name: str) -> None:
    ((error, text),) = ask(known, ("summary", {"run": name}))
    assert error
    assert "expected a name that the tool" in text
    assert text.isprintable()


def test_a_file_outside_the_roots_is_not_read(tmp_path: Path) -> None:
    run = tmp_path / "root" / "run"
    run.mkdir(parents=True)
    log = next((DATA / "torch_pfs_workers0").rglob("*.darshan"))
    shutil.copy(log, run)
    assert not ask(KnownRuns([tmp_path / "root"]), ("findings", {"run": "root/run"}))[0][0]
    (run / log.name).unlink()
    (run / log.name).symlink_to(log)
    ((error, text),) = ask(KnownRuns([tmp_path / "root"]), ("summary", {"run": "root/run"}))
    assert error
    assert "outside" in text


def test_an_answer_is_bounded_and_says_what_it_left_out() -> None:
    rows = [{"path": f"/data/{i:06}" * 20, "x": float("nan")} for i in range(10_000)]
    text = bound_answer({"headline": "x\x00\u202e" + "y" * 10_000, "files": rows, "runs": rows})
    assert len(text) <= MOST_CHARACTERS
    content = json.loads(text)
    assert len(content["headline"]) <= 600
    assert content["headline"].isprintable()
    assert content["left_out"]["files"].endswith("of 10000")
    assert content["files"][0]["x"] is None


@pytest.mark.parametrize("given", [{"first": -1}, {"count": 0}, {"count": 51}])
def test_a_window_is_bounded(known: KnownRuns, given: dict) -> None:
    ((error, text),) = ask(known, ("steps", {"run": SLOW, **given}))
    assert error
    assert "count from 1 to 50" in text


def test_roots_are_folders_of_different_names(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(UsageError, match="expected a folder"):
        KnownRuns([tmp_path / "log"])
    (tmp_path / "a" / "x").mkdir(parents=True)
    (tmp_path / "b" / "x").mkdir(parents=True)
    with pytest.raises(UsageError, match="different names"):
        KnownRuns([tmp_path / "a" / "x", tmp_path / "b" / "x"])


def test_runs_are_opened_once_while_they_stay_the_same(known: KnownRuns, monkeypatch) -> None:
    first = known.open(SLOW)
    monkeypatch.setattr("vanidl.mcp.answers.open_run", None)
    assert known.open(SLOW) is first
    assert answers.Answers(known).files(SLOW)


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("what_if", {"run": SLOW, "workers": 4},
         "what_if: expected no argument but run, found 'workers'; nearest: run"),
        ("steps", {"run": SLOW, "frist": 4},
         "steps: expected no argument but run, first, count, found 'frist'; nearest: first"),
        ("runs", {"run": SLOW}, "runs: expected no argument, found 'run'"),
        ("steps", {"first": 4}, "steps: argument run: field required"),
        ("steps", {"run": SLOW, "first": "x"},
         "steps: argument first: input should be a valid integer, "
         "unable to parse string as an integer"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_in_one_line(known, tool: str, given: dict, said: str) -> None:
    assert ask(known, (tool, given)) == [(True, said)]


def test_a_run_that_was_listed_is_not_searched_for_again(tmp_path: Path, monkeypatch) -> None:
    for name in ("a", "b"):
        shutil.copytree(DATA / "torch_pfs_workers0", tmp_path / "root" / name)
    known = KnownRuns([tmp_path / "root"])
    searches = []
    search = answers.find_runs
    monkeypatch.setattr(answers, "find_runs", lambda root: searches.append(root) or search(root))
    assert known.names() == ["root/a", "root/b"]
    assert known.path("root/b") == tmp_path / "root" / "b"
    assert len(searches) == 1
    shutil.rmtree(tmp_path / "root" / "b")
    with pytest.raises(InputError, match="Nearest names: root/a"):
        known.path("root/b")
    shutil.copytree(DATA / "torch_pfs_workers0", tmp_path / "root" / "c")
    assert known.path("root/c") == tmp_path / "root" / "c"
    assert len(searches) == 3


def test_names_like_an_unknown_one_are_told(known: KnownRuns) -> None:
    answers_ = ask(known, ("summary", {"run": SLOW[:-1]}), ("summary", {"run": "q" * 10**5}))
    assert [error for error, _ in answers_] == [True, True]
    assert answers_[0][1].partition("Nearest names: ")[2].startswith(f"{SLOW}, ")
    assert len(answers_[1][1]) < 500


@pytest.mark.parametrize(
    ("asked", "first"),
    [("r99", "r9"), ("jobs/r99", "r9"), ("train_resnet", "train_resnet50"), ("R12", "r12")],
)
def test_a_name_without_its_folder_finds_the_nearest_runs(
    tmp_path: Path, monkeypatch, asked: str, first: str
) -> None:
    names = [f"jobs/{name}" for name in ("r9", "r12", "train_resnet50", "validate_bert")]
    monkeypatch.setattr(KnownRuns, "_list_paths", lambda _: dict.fromkeys(names, tmp_path))
    with pytest.raises(InputError, match=rf"Nearest names: jobs/{first}, jobs/\w+, jobs/\w+\."):
        KnownRuns([tmp_path]).path(asked)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (rb'"\ud800x"', "\ufffdx"), (rb'"\uDC00"', "\ufffd"), (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\ud800"', "\\ud800"), (rb'"\ud800\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\ud800\\udc00"', "\ufffd\\udc00"), (rb'"\n\u00e9"', "\n\u00e9"),
    ],
)  # fmt: skip
def test_half_a_character_is_read_as_none(line: bytes, read: str) -> None:
    from vanidl.mcp.server import without_halves

    assert json.loads(without_halves(line)) == read


def test_a_request_with_half_a_character_is_answered() -> None:
    start = {"protocolVersion": "2025-06-18", "capabilities": {},
             "clientInfo": {"name": "x", "version": "1"}}  # fmt: skip
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start}),
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        r'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "summary", '
        r'"arguments": {"run": "\ud800x"}}}',
    ]
    command = [sys.executable, "-m", "vanidl", "mcp", str(DATA)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write("\n".join([*lines, ""]).encode())
        process.stdin.flush()
        answers_ = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
    assert [answer["id"] for answer in answers_] == [1, 2]
    assert answers_[1]["result"]["isError"]
