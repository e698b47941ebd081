"""The page for users of the original: every expression runs, every figure is what a run gives."""

from __future__ import annotations

import json
import re
import shlex

import pytest

import vanidl
from tests import DATA, ROOT
from vanidl.cli import main

PAGE = (ROOT / "notebooks" / "from_vanidl.md").read_text(encoding="utf-8")
RUN = DATA / "torch_pfs_workers0"
COSMIC = "data/public/vanidl_cosmictagger/cosmictagger_8ranks.darshan"
CODE = re.compile(r"`(?:[^`]+)`")


def cells(column: int) -> list[str]:
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| `")]
    return [code.strip("`") for row in rows for code in CODE.findall(row[column])]


EXPRESSIONS = [code for code in cells(1) if not code.startswith("vanidl ")]
COMMANDS = [code for code in cells(1) + cells(2) if code.startswith("vanidl ")]


@pytest.fixture(scope="module")
def run():
    return vanidl.open_run(RUN)


@pytest.mark.parametrize("code", EXPRESSIONS)
def test_expressions_give_something(run, code):
    names = {"run": run, "vanidl": vanidl, "PATH": RUN}
    assert eval(code, names) is not None


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_run(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [{"PATH": str(RUN), "DIR": "."}.get(word, word) for word in shlex.split(line)]
    assert main(words[1:]) == 0, capsys.readouterr().err


def figures() -> dict[str, tuple[str, str]]:
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.count("|") == 5]
    cleaned = [[cell.strip() for cell in row] for row in rows]
    return {row[0]: (row[1], row[2]) for row in cleaned}


def test_figures_of_the_original_are_those_that_were_measured(shared):
    oracle = json.dumps(json.loads((shared / "data/oracle/cosmictagger.json").read_text()))
    for name in ("bytes", "bytes, sum of the 1 ms timeline"):
        assert figures()[name][0].replace(",", "") in oracle
    assert "46.402" in oracle


def test_figures_are_what_the_run_gives(shared):
    run = vanidl.open_run(shared / COSMIC)
    summary, line = run.summary, run.frame("job_timeline")
    here = {
        "I/O time, mean of ranks": f"{summary.time.per_rank_mean_s:.2f} s",
        "share of the run": f"{summary.time.share:.2%}".replace("%", " %"),
        "median bandwidth of an operation": f"{summary.per_op_median_bytes_per_s / 1e6:.0f} MB/s",
        "bytes, sum of the 1 ms timeline": f"{line.bytes_read.sum() + line.bytes_written.sum():,}",
        "operations, sum of the 1 ms timeline": f"{line.reads.sum() + line.writes.sum():,}",
        "bars of request sizes": f"{len(run.sizes.histogram)}",
        "bytes": f"{summary.storage_bytes_read + summary.storage_bytes_written:,}",
    }
    assert {name: figures()[name][1] for name in here} == here
