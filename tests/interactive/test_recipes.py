"""Every recipe of the documentation runs as it stands, and has an answer."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas
import pytest

from tests import DATA, ROOT
from vanidl.cli import main

PAGE = ROOT / "docs/recipes.md"
RUN = DATA / "ddp_two_hosts"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?:^    .*\n)+", TEXT, re.MULTILINE)
SETUP, RECIPES = BLOCKS[0], BLOCKS[1:]


def test_each_is_at_most_three_lines() -> None:
    assert len(RECIPES) >= 16
    assert [block for block in RECIPES if len(block.splitlines()) > 3] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, a survey of them, and what other tools recorded of the same time."""
    pytest.importorskip("pyarrow", reason="a survey is Parquet")
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "RUN").symlink_to(RUN)
    for k, name in enumerate(["torch_fetches", "torch_late_workers"] * 5):
        (folder / "RUNS").mkdir(exist_ok=True)
        (folder / "RUNS" / f"{k}").symlink_to(DATA / name)
    (folder / "logs").mkdir()
    for log in sorted((DATA / "torch_pfs_workers0").rglob("*.darshan")):
        shutil.copy(log, folder / "logs")
    assert main(["survey", str(folder / "logs"), "-o", str(folder / "S")]) == 0
    begin = pandas.Timestamp("2026-11-21T00:20:50.827", tz="UTC")
    seconds = [begin + pandas.Timedelta(seconds=k) for k in range(20)]
    lines = [f"{at:%Y/%m/%d %H:%M:%S.%f}, {rank}, 40" for at in seconds for rank in range(4)]
    (folder / "gpu.csv").write_text("timestamp, index, utilization.gpu [%]\n" + "\n".join(lines))
    losses = [f"{step},{1 / (step + 1)}" for step in range(40)]
    (folder / "wandb.csv").write_text("_step,loss\n" + "\n".join(losses))
    values = [
        f"loss,{1 / (k + 1)},{int(at.timestamp() * 1000)},{k}" for k, at in enumerate(seconds)
    ]
    (folder / "mlflow.csv").write_text("key,value,timestamp,step\n" + "\n".join(values))
    found = [{"values": [[int(at.timestamp()), "1.5"] for at in seconds]}]
    (folder / "prometheus.json").write_text(json.dumps({"data": {"result": found}}))
    return folder


def test_every_recipe_has_an_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as in a notebook: each may use what was named before."""
    monkeypatch.chdir(folder)
    for package in ("polars", "duckdb"):
        pytest.importorskip(package)
    names: dict[str, Any] = {}
    for block in BLOCKS:
        code = ast.parse("\n".join(line[4:] for line in block.splitlines()))
        last = code.body[-1]
        given = code.body[:-1] if isinstance(last, ast.Expr) else code.body
        exec(compile(ast.Module(given, []), "recipe", "exec"), names)
        if not isinstance(last, ast.Expr):
            continue
        answer = eval(compile(ast.Expression(last.value), "recipe", "eval"), names)
        assert len(answer), block
        if isinstance(answer, pandas.DataFrame | pandas.Series):
            assert answer.notna().any(axis=None), block
