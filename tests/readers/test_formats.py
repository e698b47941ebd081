"""A format is its folder and one line: a synthetic one is found, checked, read and reported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from vanidl.cli import main
from vanidl.errors import InputError
from vanidl.merge.pipeline import Inputs, read_trace
from vanidl.model.trace import READ
from vanidl.readers import registry
from vanidl.readers.format import (
    FileKind,
    Files,
    Format,
    Opening,
    Reading,
    Records,
    check_by_reading,
)
from vanidl.readers.records import OperationTable, TracerLog

MAGIC = b"#calls of "
TEXT = """#calls of python train.py
/data/a.bin 0 4096 1000
/data/a.bin 4096 4096 2500
/data/b.bin 0 8192 9000
"""
START_NS = 1_700_000_000 * 10**9


def read_calls(path: Path) -> TracerLog:
    """One line a read: path, offset, bytes, start in us; each takes 500 us."""
    head, *lines = path.read_text().splitlines() or [""]
    if not head.encode().startswith(MAGIC):
        raise InputError(f"{path}: expected a list of calls, found {head[:20]!r}; record again")
    rows = [line.split() for line in lines]
    whole = [row for row in rows if len(row) == 4]
    names = sorted({row[0] for row in whole})
    order = sorted(whole, key=lambda row: (row[0], int(row[3])))
    start = np.array([int(row[3]) * 1000 for row in order], np.int64)
    table = OperationTable(
        layer="POSIX",
        record_file=np.arange(len(names), dtype=np.uint64),
        record_rank=np.zeros(len(names), np.int64),
        record_host=("node01",) * len(names),
        record=np.array([names.index(row[0]) for row in order], np.int32),
        op=np.full(len(order), READ, np.uint8),
        offset=np.array([int(row[1]) for row in order], np.int64),
        nbytes=np.array([int(row[2]) for row in order], np.int64),
        start_ns=start,
        end_ns=start + 500_000,
        thread=None,
    )
    losses = ("the list is cut: its last line has no end",) if len(whole) < len(rows) else ()
    return TracerLog(
        path=str(path), tracer="lines", version="1", job_id="7", host="node01", pid=42,
        parent_pid=None, user_id=1, nprocs=1, start_ns=START_NS, end_ns=START_NS + 10**9,
        start_resolution_ns=1, start_error_ns=1, command=head.removeprefix(MAGIC.decode()),
        metadata={}, mounts=(), names=dict(enumerate(names)), modules=("POSIX",),
        operations=(table,), partial_layers=(), whole=not losses, losses=losses,
    )  # fmt: skip


def read(files: Files, reading: Reading) -> Records:
    return Records(logs=tuple(reading.each("lists of calls", read_calls, files.get("lines", ()))))


def sniff(opening: Opening) -> str:
    return "lines" if opening.head.startswith(MAGIC) else ""


FORMAT = Format(
    name="lines",
    title="lists of calls",
    patterns=(".lines",),
    kinds=(FileKind("lines", "list of calls", (".lines",)),),
    read=read,
    check=check_by_reading({"lines": lambda path: read_calls(path).losses}),
    traces_io=True,
    sniff=sniff,
    outputs=r"\.lines$",
)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FORMATS", (*registry.FORMATS, FORMAT))


def test_it_is_found_by_name_and_content_and_reported(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/42.lines").write_text(TEXT)
    (tmp_path / "renamed").write_text(TEXT)
    for path in (tmp_path / "run", tmp_path / "renamed"):
        assert main(["summary", str(path), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["io"]["reads"], document["io"]["bytes_read"]) == (3, 16_384)
        assert document["job"]["command"] == "python train.py"
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    assert "b.bin" in (tmp_path / "page.html").read_text()


def test_it_is_checked(tmp_path, capsys):
    for name, text in {"a": TEXT, "b": TEXT[:-8], "c": "what?\n", "d": ""}.items():
        (tmp_path / f"{name}.lines").write_text(text)
    assert main(["check", str(tmp_path), "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)["checked"]
    assert [v["state"] for v in verdicts] == ["whole", "cut", "foreign", "empty"]
    assert {v["kind"] for v in verdicts} == {"list of calls"}


def test_a_damaged_one_is_a_warning_beside_whole_ones(tmp_path, capsys):
    (tmp_path / "a.lines").write_text(TEXT)
    (tmp_path / "c.lines").write_text("what?\n")
    assert main(["summary", str(tmp_path), "--json"]) == 0
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    assert [w["code"] for w in coverage["warnings"]].count("unreadable") == 1


def test_what_its_tracer_writes_is_a_log_of_the_run(tmp_path):
    (tmp_path / "a.lines").write_text(TEXT.replace("b.bin", "b.lines"))
    files = read_trace(tmp_path, Inputs()).files
    assert dict(zip(files.path, files.kind, strict=True))["/data/b.lines"] == "log"


def test_messages_tell_of_it(tmp_path, capsys):
    assert main(["summary", str(tmp_path)]) == 1
    assert "lists of calls (.lines)" in capsys.readouterr().err


def test_nothing_else_imports_a_format():
    root = Path(registry.__file__).parent
    names = "|".join(known.name for known in registry.FORMATS)
    imported = re.compile(rf"readers\.({names})\b|from vanidl.readers import .*\b({names})\b")
    modules = [path for path in root.glob("*.py") if path.name != "registry.py"]
    modules += [path for room in ("merge", "check") for path in (root.parent / room).rglob("*.py")]
    assert [path.name for path in modules if imported.search(path.read_text())] == []
