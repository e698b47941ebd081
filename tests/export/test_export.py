"""What is exported comes back: the same totals, the same rows, and nothing half written."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import vanidl
from tests import DATA
from tests.makers.records import Io, darshan_log
from vanidl.analyses.results import analyse
from vanidl.cli import main
from vanidl.errors import UsageError, VanidlError
from vanidl.export import tables
from vanidl.export.registry import FORMATS, export
from vanidl.frames import FRAMES
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import Options, assemble
from vanidl.model.selection import Selection
from vanidl.run import Run

pytest.importorskip("pyarrow", reason="Parquet and CSV need pyarrow")
RUN = DATA / "ddp_two_hosts"


@pytest.fixture(scope="module")
def run() -> Run:
    return vanidl.open_run(RUN)


def made(count: int = 1000, *, name: str = "/data/a.h5", **options) -> Run:
    ios = [Io(i * 10, i * 10 + 5, i, i % 97, 1, i % 2) for i in range(count)]
    trace = assemble(Group((darshan_log(ios, names={1: name}),), ()), {}, (), Options(**options))
    return Run(trace, analyse(trace), Selection())


def read(folder: Path, name: str, form: str):
    if form == "parquet":
        from pyarrow import parquet

        return parquet.read_table(folder / f"{name}.parquet")
    from pyarrow import csv

    return csv.read_csv(folder / f"{name}.csv")


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    for form in ("parquet", "csv"):
        export(run, form, folder / form)
    return folder


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_bytes_and_operations_add_up_to_the_summary(run, exported, form):
    rows = read(exported / form, "operations", form).to_pandas()
    summary = run.summary
    assert len(rows) == summary.ops
    assert rows.nbytes[rows.op == "read"].sum() == summary.bytes_read
    assert rows.nbytes[rows.op == "write"].sum() == summary.bytes_written
    for name in ("timeline", "job_timeline", "file_timeline", "sizes"):
        frame = read(exported / form, name, form).to_pandas()
        assert frame.bytes_read.sum() == summary.bytes_read, name
        assert frame.bytes_written.sum() == summary.bytes_written, name


@pytest.mark.parametrize("name", FRAMES)
def test_csv_and_parquet_hold_the_frame(run, exported, name):
    frame = run.frame(name)
    for form in ("parquet", "csv"):
        back = read(exported / form, name, form).to_pandas()
        assert list(back.columns) == list(frame.columns)
        assert len(back) == len(frame)
        for column in frame.select_dtypes("number"):
            np.testing.assert_array_equal(
                back[column].to_numpy(float), frame[column].to_numpy(float), err_msg=column
            )


def test_operations_are_written_in_blocks(tmp_path, monkeypatch):
    from pyarrow import parquet

    monkeypatch.setattr(tables, "BATCH_ROWS", 64)
    run = made(1000, max_part_rows=150)
    export(run, "parquet", tmp_path / "out")
    file = parquet.ParquetFile(tmp_path / "out/operations.parquet")
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert sum(groups) == 1000
    assert max(groups) <= 64
    assert (
        file.read().to_pandas().nbytes.sum() == run.summary.bytes_read + run.summary.bytes_written
    )


def test_filters_apply(tmp_path, capsys):
    arguments = ["export", str(RUN), "--only", "dataset", "--until", "12", "--to", "parquet"]
    assert main([*arguments, "-o", str(tmp_path / "out")]) == 0
    assert "operations.parquet" in capsys.readouterr().out
    rows = read(tmp_path / "out", "operations", "parquet").to_pandas()
    chosen = vanidl.open_run(RUN, selection=Selection(only="dataset", to_s=12))
    assert len(rows) == chosen.summary.ops
    assert set(rows.file) == {f.path for f in chosen.files.rows if f.reads + f.writes}


def test_json_is_the_contract_and_every_table(run, tmp_path):
    from vanidl.report.summary import summary_object

    export(run, "json", tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())
    held = document.pop("tables")
    assert document == json.loads(json.dumps(summary_object(run)))
    assert set(held) == set(FRAMES) - {"operations"}
    assert sum(held["job_timeline"]["bytes_read"]) == run.summary.bytes_read


@pytest.mark.parametrize("form", sorted({*FORMATS} - {"tensorboard"}))  # that holds no path
def test_names_that_are_no_text_do_no_harm(tmp_path, form, monkeypatch):
    if form == "figures":
        pytest.importorskip("matplotlib", reason="figures need matplotlib")
        from vanidl.paper import style

        monkeypatch.setattr(style, "WIDTHS_IN", {"2col": style.WIDTHS_IN["2col"]})
    export(made(20, name='/data/raw\udcff,"\n$x^2$日.h5'), form, tmp_path / "out")
    if form in ("parquet", "csv"):
        files = read(tmp_path / "out", "operations", form).to_pandas().file
        assert "raw\\udcff" in files[0]


def test_a_run_without_operations(tmp_path):
    run = made(0)
    export(run, "parquet", tmp_path / "out")
    export(run, "csv", tmp_path / "out2")
    for form in ("parquet", "csv"):
        back = read(tmp_path / ("out" if form == "parquet" else "out2"), "steps", form)
        assert (back.num_rows, back.column_names) == (0, list(run.frame("steps").columns))


@pytest.mark.parametrize("form", ["parquet", "csv", "figures"])
def test_a_folder_with_something_in_it_is_left_alone(tmp_path, form):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="new or empty folder"):
        export(made(3), form, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "arrow_table", full)
    with pytest.raises(VanidlError, match="No space left"):
        export(made(3), "parquet", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_missing_parent_is_one_clear_line(tmp_path, capsys, form):
    target = tmp_path / "no-such-folder" / "out"
    assert main(["export", str(RUN), "--to", form, "-o", str(target)]) == 1
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    assert "no-such-folder" in err


@pytest.mark.parametrize(("form", "package"), [("parquet", "pyarrow"), ("figures", "matplotlib")])
def test_a_missing_package_is_named(tmp_path, monkeypatch, form, package):
    for name in [n for n in sys.modules if n.startswith("vanidl.paper")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"needs the package {package}.*pip install"):
        export(made(3), form, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_csv_needs_no_further_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert export(made(3), "csv", tmp_path / "out")


def test_an_unknown_format_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="parquet, csv"):
        export(made(3), "xlsx", tmp_path / "out")


@pytest.mark.parametrize("start", "=+-@\t\r\n")
def test_no_cell_of_csv_is_a_formula(tmp_path: Path, start: str) -> None:
    evil = f'{start}HYPERLINK("http://x","y")'
    export(made(10, name=evil), "csv", tmp_path / "csv")
    cells = []
    for path in (tmp_path / "csv").glob("*.csv"):
        with path.open(newline="") as file:
            cells += [cell for row in csv.reader(file) for cell in row if cell]
    # What controls a terminal is written out, and no formula begins so.
    assert (f"'{evil}" if start in "=+-@" else evil.encode("unicode_escape").decode()) in cells
    number = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
    assert not [c for c in cells if c[0] in "=+-@\t\r\n" and not number.fullmatch(c)]
