"""Every JSON output is what its schema says: every field named, with a meaning and a unit."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests import DATA, ROOT
from tests.makers import dlio_results
from tests.makers.results import EXAMPLES
from vanidl.advice.job_counters import _PART
from vanidl.advice.training_loop import _PARTS, _WAITS_FOR
from vanidl.check.check import check, check_object
from vanidl.cli import main
from vanidl.commands import demo, schema
from vanidl.compare import compare
from vanidl.compare.json import make_object
from vanidl.compare.runs import WARM, Experiment, RecordedRun, save
from vanidl.compare.sides import Side, sample_of
from vanidl.export import tables
from vanidl.report.summary import summary_object
from vanidl.run import open_run
from vanidl.schema import schema as making
from vanidl.schema.meanings import LINES, line_of, meaning_of, meanings, means
from vanidl.schema.schema import fields_of, schema_of
from vanidl.sections.actions import EVIDENCE
from vanidl.survey.rows import Job, build_unread_row

jsonschema = pytest.importorskip("jsonschema", reason="outputs are validated by jsonschema")
RUNS = [*sorted(path.parent for path in DATA.glob("*/tb")), DATA / "torch_fetches", demo.RUN]
NAMES = sorted(schema.outputs())


@cache
def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(schema.output_schema(name))


def faults(name: str, content: object) -> list[str]:
    """Where what a program would read differs from the schema."""
    plain = shortened(json.loads(json.dumps(content)))
    found = validator(name).iter_errors(plain)
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


def shortened(content: Any) -> Any:
    """The first and the last of long lists: their records are all made by the same line."""
    if isinstance(content, dict):
        return {name: shortened(value) for name, value in content.items()}
    if isinstance(content, list):
        return [shortened(v) for v in (content if len(content) < 9 else content[:4] + content[-4:])]
    return content


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_recorded_runs(path: Path, opened) -> None:
    assert faults("summary", summary_object(opened(path))) == []


def test_results_of_a_storage_benchmark(tmp_path: Path) -> None:
    assert faults("summary", summary_object(open_run(dlio_results.write(tmp_path)))) == []


@pytest.mark.parametrize("name", sorted({*EXAMPLES} - {"many_ranks"}))
def test_what_was_recorded_in_part(name: str) -> None:
    assert faults("summary", summary_object(EXAMPLES[name]().run)) == []


@pytest.mark.parametrize("name", ["torch_pfs_workers4", "torch_fetches"])
def test_an_export(name: str, opened, tmp_path: Path) -> None:
    tables.write(opened(DATA / name), tmp_path / "run.json")
    content = json.loads((tmp_path / "run.json").read_text())
    assert any(content["tables"].values())
    assert faults("export", content) == []


def test_a_comparison_and_one_with_a_run_that_cannot_be_read(opened) -> None:
    paths = [DATA / f"torch_pfs_workers{n}" for n in (0, 4)]
    a, b = (sample_of(opened(path), path) for path in paths)
    lost = type(a)("lost", None, (), None, missing="nothing there")
    pair = compare((Side("A", "a", (a,)), Side("B", "b", (b,))), (("caches", "warm"),))
    assert faults("compare", make_object(pair)) == []
    half = compare((Side("A", "a", (a, a)), Side("B", "b", (b, lost))), ())
    assert faults("compare", make_object(half)) == []


def test_verdicts_on_logs(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("no log")
    (tmp_path / "empty.darshan").touch()
    assert (
        faults(
            "check", check_object(check([DATA / "torch_pfs_workers0", tmp_path, tmp_path / "gone"]))
        )
        == []
    )


def test_rows_of_a_survey_that_could_and_could_not_be_read(opened) -> None:
    from vanidl.survey.rows import COLUMNS, MORE, _look_up

    content = summary_object(opened(DATA / "torch_pfs_workers0"))
    row = {name: _look_up(content, place) for name, _, place in COLUMNS}
    more = {"traced_fraction": 1.0, "warnings": "", "findings": 2, "workload": None,
            "utilization_percent": None, "accelerators": None, "samples_per_s": None,
            "io_bytes_per_s": None, "largest_wait": None, "largest_wait_percent": None,
            "rules_not_kept": None, "finding_codes": ["a", "b"], "finding_gains_s": [1.0, None],
            "user": "me", "nodes": 1, "input_s": 2.0, "input_rank_hours": 0.1,
            "input_node_hours": None, "input_file_systems": ["lustre"],
            "input_file_system_s": [2.0], "logs": 1, "first_log": "a",
            "problem": None}  # fmt: skip
    assert set(more) == {name for name, _ in MORE}
    assert faults("survey", row | more) == []
    assert faults("survey", build_unread_row(Job(None, ("/x/a",), "", "key"), "gone")) == []


def test_files_that_runs_leave(tmp_path: Path) -> None:
    recorded = (RecordedRun("a", 0, "a-0", 2.0, 0, "darshan"),)
    save(Experiment("python a.py", "python b.py", WARM, recorded), tmp_path)
    assert faults("ab", json.loads((tmp_path / "ab.json").read_text())) == []
    records = sorted(DATA.rglob("run.json"))
    assert records
    for path in records:
        assert faults("run", json.loads(path.read_text())) == [], path


IDENTIFIERS = ("rank", "position", "step", "epoch", "batch", "index", "lag", "pair", "osts", "pid",
               "thread", "parent_pid", "exit_status", "file", "worker", "amount", "first_steps",
               "slow_steps", "ranks", "epochs_from_memory", "ost")  # fmt: skip


def objects(part: Any) -> Iterator[dict[str, Any]]:
    """Every schema of an object within a schema."""
    if isinstance(part, dict):
        if part.get("type") == "object" or "properties" in part:
            yield part
        for value in part.values():
            yield from objects(value)
    if isinstance(part, list):
        for value in part:
            yield from objects(value)


@pytest.mark.parametrize("name", NAMES)
def test_no_object_is_open_and_every_field_has_a_meaning_and_every_number_a_unit(name: str) -> None:
    for found in objects(schema.output_schema(name)):
        assert "additionalProperties" in found
        for field, value in found.get("properties", {}).items():
            assert value["description"], field
            if numeric(value) and field not in IDENTIFIERS:
                assert "unit" in value, field


def numeric(value: dict[str, Any]) -> bool:
    """Whether the field, or each item of a list, is a number."""
    kinds = (value.get("items") or value).get("type", [])
    return not {"number", "integer"}.isdisjoint([kinds] if isinstance(kinds, str) else kinds)


UNITS = {"_per_s": ("bytes/s", "1/s"), "_s": ("s",), "_ns": ("ns",), "nbytes": ("bytes",),
         "bytes_read": ("bytes",), "bytes_written": ("bytes",), "_bytes": ("bytes",),
         "_share": ("1",), "_fraction": ("1",)}  # fmt: skip


def test_a_name_says_the_unit() -> None:
    by_name = [(path.split(".")[-1], meaning.unit) for path, meaning in meanings().items()]
    by_name += [
        (name, field.get("unit", ""))
        for part in objects([schema.output_schema(output) for output in NAMES])
        for name, field in part.get("properties", {}).items()
    ]
    wrong = {
        name: unit
        for name, unit in by_name
        for ending, units in UNITS.items()
        if name.endswith(ending) and unit not in units
        if not (ending == "_s" and name.endswith("_per_s"))
    }
    assert wrong == {"at_buffer_of_different_bytes": "", "share_of_bytes": "1"}


def test_no_line_stands_twice() -> None:
    lines = [line.split("|")[0].strip() for line in LINES.split("\n") if "|" in line]
    assert len(lines) == len(set(lines))


def test_every_meaning_is_of_a_field(monkeypatch) -> None:
    """A line that no schema uses is of a field that is gone."""
    used: set[str] = set()
    monkeypatch.setattr(
        making, "meaning_of", lambda path: used.add(line_of(path)) or meaning_of(path)
    )
    for output in schema.outputs().values():
        schema_of(output.kind, output.unnamed)
    assert set(meanings()) - used == set()


OF_NO_FIELD = {"cosmoflow", "deepcam", *_PARTS, *_WAITS_FOR, *_PART} - {"lock", "network"}
"""Names of codecs, of parts of the step, and of what blocks."""


def test_every_number_of_a_finding_is_named() -> None:
    sources = [path.read_text() for path in (ROOT / "vanidl/advice").glob("*.py")]
    trees = [ast.parse(source) for source in sources if "RuleResult(" in source]
    trees.append(ast.parse((ROOT / "vanidl/advice/own_loaders.py").read_text()))
    keys = {
        key.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    assert keys - set(meanings_of(EVIDENCE.fields)) == OF_NO_FIELD


def meanings_of(kinds: Any) -> Iterator[str]:
    """Names of fields at any depth."""
    for name, kind in getattr(kinds, "fields", kinds).items():
        if isinstance(name, str):
            yield name
        if hasattr(kind, "fields") or isinstance(kind, dict):
            yield from meanings_of(kind)


def test_the_command_prints_one_or_all(capsys) -> None:
    assert main(["schema", "check"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "vanidl check --json"
    assert main(["schema"]) == 0
    whole = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(whole)
    assert set(whole["$defs"]) == set(NAMES)


@dataclass(frozen=True)
class Longest:
    """A record that nobody described."""

    longest_name: str


@dataclass(frozen=True)
class Described:
    """A record that says beside a field what it means."""

    longest_name: Annotated[int | None, means("Letters of it", "count")] = None


def test_a_record_says_what_its_fields_mean() -> None:
    field = schema_of(Described)["properties"]["longest_name"]
    assert field == {"type": ["integer", "null"], "description": "Letters of it", "unit": "count"}
    assert schema_of(fields_of(Described)) == schema_of(Described)


def test_a_field_without_a_meaning_is_refused() -> None:
    with pytest.raises(TypeError, match="longest_name"):
        schema_of(Longest)
