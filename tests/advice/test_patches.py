"""Patches of a program's loader: git applies them, and the program then has these arguments."""

from __future__ import annotations

import ast
import os
import subprocess
from dataclasses import replace

import pytest

from tests.advice import labeled
from vanidl.advice.patches import patch_loader
from vanidl.model.lines import FETCH, FunctionLines, LineCost, SampledPart

BEGIN = "from torch.utils.data import DataLoader\n\n\ndef main():\n"


def trace_of(path, names=("DataLoader 0 (Files, training)",)):
    """A run of the program in a file, which was there before it."""
    trace = labeled.made("healthy").trace
    function = FunctionLines(str(path), "main", 1, True, None, 0, (LineCost(1, 1, 1, 1),))
    os.utime(path, ns=(trace.job.start_ns - 10**9,) * 2)
    return replace(
        trace,
        lines=(SampledPart(FETCH, 1, 1, 1, (function,)),),
        fetches=replace(trace.fetches, names=names),
    )


def arguments_of(source: str) -> list[dict[str, str]]:
    """Of each call of a loader its arguments by name."""
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    return [
        {k.arg: ast.unparse(k.value) for k in call.keywords}
        | {str(i): ast.unparse(arg) for i, arg in enumerate(call.args)}
        for call in calls
        if ast.unparse(call.func).endswith("DataLoader")
    ]


@pytest.mark.parametrize(
    ("call", "then"),
    [
        ("DataLoader(set_)", {"0": "set_", "num_workers": "4"}),
        ("DataLoader(set_, 8, num_workers=1)", {"0": "set_", "1": "8", "num_workers": "4"}),
        ("DataLoader(set_, 8, True, None, None, 2)",
         {"0": "set_", "1": "8", "2": "True", "3": "None", "4": "None", "5": "4"}),
        ("DataLoader(\n        set_,  # \u00e9\n        num_workers=count(),\n    )",
         {"0": "set_", "num_workers": "4"}),
        ("data.DataLoader(set_, batch_size=2,)", {"0": "set_", "batch_size": "2",
                                                  "num_workers": "4"}),
    ],
)  # fmt: skip
def test_git_applies_a_patch_that_changes_the_arguments_and_nothing_else(tmp_path, call, then):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    x = '\u00fc'; loader = {call}\n", encoding="utf-8")
    patch = patch_loader(trace_of(program), {"num_workers": "4"})
    apply = ["git", "apply", "-"]
    subprocess.run(apply, cwd=tmp_path, input=patch, text=True, check=True, encoding="utf-8")
    changed = program.read_text(encoding="utf-8")
    assert arguments_of(changed) == [then]
    assert changed.startswith(f"{BEGIN}    x = '\u00fc'; loader = ")


def test_of_several_loaders_the_one_over_the_recorded_dataset_is_changed(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        f"{BEGIN}    held = DataLoader(Other())\n    files = Files()\n"
        "    loader = DataLoader(files)\n"
    )
    patch = patch_loader(trace_of(program), {"num_workers": "2"})
    assert "+    loader = DataLoader(files, num_workers=2)" in patch
    assert "+    held" not in patch


@pytest.mark.parametrize(
    "source",
    [
        "DataLoader(Files(), **options)",
        "DataLoader(Files()), DataLoader(Files())",
        "make_loader(Files())",
        "DataLoader(Files()",
    ],
)
def test_no_patch_is_made_where_it_is_not_plain_what_to_change(tmp_path, source):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    loader = {source}\n")
    assert patch_loader(trace_of(program), {"num_workers": "2"}) == ""


def test_no_patch_is_made_of_a_program_that_was_changed_or_is_gone(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    loader = DataLoader(Files())\n")
    trace = trace_of(program)
    assert patch_loader(trace, {"num_workers": "2"})
    os.utime(program, ns=(trace.job.start_ns + 10**9,) * 2)
    assert patch_loader(trace, {"num_workers": "2"}) == ""
    program.unlink()
    assert patch_loader(trace, {"num_workers": "2"}) == ""


def test_arguments_that_need_workers_are_not_given_to_a_loader_without(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    loader = DataLoader(Files())\n")
    trace = trace_of(program)
    assert patch_loader(trace, {"persistent_workers": "True"}) == ""
    assert patch_loader(trace, {"num_workers": "2", "persistent_workers": "True"})


@pytest.mark.parametrize(
    "line",
    ["password = 'hunter22hunter22'", "note = '\x1b[31m'", "x = 1\r", "x = 1\x0c", None],
)
def test_no_patch_shows_secrets_or_holds_lines_that_git_would_count_otherwise(tmp_path, line):
    program = tmp_path / "train.py"
    last = "    loader = DataLoader(Files())"
    source = f"{BEGIN}{last}" if line is None else f"{BEGIN}    {line}\n{last}\n"
    program.write_bytes(source.encode())
    assert patch_loader(trace_of(program), {"num_workers": "2"}) == ""
