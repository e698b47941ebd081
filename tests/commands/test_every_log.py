"""Every real log and run at hand gives a report, or one clear line."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests import SHARED, golden
from tests.conftest import DEAR
from vanidl.cli import main
from vanidl.commands import inputs
from vanidl.readers.darshan.log import read_log
from vanidl.run import Run

LOGS = SHARED / "data"
DIGESTS = golden.golden("shared")


def everything() -> list[Path]:
    """Logs by file, recorded runs and job folders as a whole; in the same order everywhere."""
    spec = importlib.util.find_spec("darshan")
    wheel = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    public = LOGS / "public/darshan_logs"
    found = [log for folder in wheel for log in sorted(folder.rglob("*.darshan"))]
    found += sorted(public.glob("*.darshan")) + sorted((public / "release_logs").glob("*"))
    if LOGS.is_dir():
        found += [public / "dlio_24_processes", LOGS / "public/vanidl_cosmictagger"]
        found += sorted(p for p in (LOGS / "recorded").iterdir() if (p / "darshan").is_dir())
    return found


def name_of(path: Path) -> str:
    return "/".join(path.parts[-3:])


RUNS = everything()
every_run = pytest.mark.parametrize("path", RUNS, ids=[name_of(p) for p in RUNS])


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch, opened) -> None:
    """All commands of a test are about the same run, which is read once."""
    read = cache(inputs.open_run)

    def open_run(path: str | Path, **options: object) -> Run:
        is_dear = Path(path).name in DEAR
        return opened(Path(path)) if is_dear else read(path, **options)

    monkeypatch.setattr(inputs, "open_run", open_run)


RESULTS: dict[Path, dict | None] = {}


def result_of(path: Path, capsys: pytest.CaptureFixture[str]) -> dict | None:
    """The run's JSON, or None where the command gave one clear line; asked for once."""
    if path not in RESULTS:
        RESULTS[path] = _read_result(path, capsys)
    return RESULTS[path]


def _read_result(path: Path, capsys: pytest.CaptureFixture[str]) -> dict | None:
    status = main(["summary", str(path), "--json"])
    out, err = capsys.readouterr()
    if status:
        assert (status, out, len(err.splitlines())) == (1, "", 1)
        assert err.startswith("vanidl: ")
        return None
    assert err == ""
    if SHARED in path.parents:
        golden.assert_same(DIGESTS[golden.name_of(path)], golden.digests(golden.neutral(out, path)))
    return json.loads(out)


@every_run
@pytest.mark.usefixtures("read_once")
def test_json_text_and_report(path, capsys, tmp_path):
    result = result_of(path, capsys)
    if result is None:
        return
    assert result["schema"] == "vanidl/1"
    assert main(["summary", str(path)]) == 0
    text = capsys.readouterr().out
    first = " ".join(filter(None, (result["verdict"], result["headline"])))
    assert first.split()[:6] == text.split()[:6]
    assert main(["summary", str(path), "--full"]) == 0
    text = capsys.readouterr().out
    assert first.split()[:6] == text.split()[:6]
    page = tmp_path / "report.html"
    assert main(["report", str(path), "-o", str(page)]) == 0
    content = page.read_text()
    assert content.lower().startswith("<!doctype html>")
    for word in ("nan B", "NaN", "None s", "-1 B"):
        assert word not in text
    check_numbers(result)


def check_numbers(result: dict) -> None:
    """What holds of every run, whatever it recorded."""
    io = result["io"]
    if io["source"] == "counters":
        assert io["time"] is None
        for side in ("read", "write"):
            counted = [b[f"{side}s"] for b in io["sizes"]["histogram_darshan"]]
            if counted and io["layer"] == "POSIX":
                assert sum(counted) == io[f"{side}s"]
    posix = result["storage"]["by_layer"].get("POSIX")
    if posix and io["layer"] == "POSIX" and result["coverage"]["complete"]:
        assert io["bytes_read"] == posix["bytes_read"]
        assert io["bytes_written"] == posix["bytes_written"]
    assert sum(result["job"]["roles"].values()) == result["job"]["processes"]


@pytest.fixture
def public(shared: Path) -> Path:
    return shared / "data/public/darshan_logs"


def test_all_release_logs_are_read(public, capsys):
    logs = sorted((public / "release_logs").glob("*.darshan"))
    assert len(logs) == 25
    for log in logs:
        result = result_of(log, capsys)
        assert result is not None
        assert (result["job"]["ranks"], result["coverage"]["complete"]) == (4, True)
        assert result["io"]["bytes_written"] == 4 * 16 * 2**20
        assert result["layers"]["MPI-IO"]["bytes_written"] == 4 * 16 * 2**20


def test_e3sm_has_the_timeline_of_its_heat_map(public, opened):
    run = opened(public / "e3sm_io_heatmap_only.darshan")
    line = run.timeline
    maps = [h for h in run.trace.heatmaps if h.layer == "POSIX"]
    assert (line.source, len(maps), line.ranks) == ("heatmap", 512, 512)
    assert np.diff(line.edges_s) == pytest.approx(6.4)
    assert line.bytes_read.sum() == sum(int(h.bytes_read.sum()) for h in maps) == 25_722_213
    assert line.bytes_written.sum() == 304_663_273_053
    # Darshan splits an operation over its bins and rounds down: the counters hold more.
    assert run.summary.bytes_read - 25_722_213 == 3
    assert {len(s.osts) for s in run.trace.stripes} == {56}
    assert len(run.trace.mpi) == 512
    assert len({p.host for p in run.trace.processes}) == 8


def test_dlio_is_shown_as_the_job_it_is(public, opened, capsys):
    result = result_of(public / "dlio_24_processes", capsys)
    assert (result["job"]["ranks"], result["job"]["processes"]) == (4, 24)
    assert result["job"]["roles"] == {"auxiliary": 4, "trainer": 4, "unassigned": 16}
    (unassigned,) = [w for w in result["coverage"]["warnings"] if w["code"] == "unassigned"]
    assert "4 families of 4" in unassigned["message"]
    assert result["io"]["files"]["by_kind"]["dataset"]["files"] == 168
    line = opened(public / "dlio_24_processes").timeline
    assert (line.source, line.row_labels[-1]) == ("heatmap", "no rank")
    assert line.bytes_read.sum() == result["io"]["bytes_read"]
    assert len(result["io"]["files"]["stripes"]) >= 168


def test_the_tfrecord_files_are_read_four_times_each_in_256_kib(shared, opened):
    run = opened(shared / "data/recorded/tf_tfrecord")
    rows = [r for r in run.files.rows if r.path.endswith(".tfrecord")]
    assert len(rows) == 8
    codes = {run.trace.files.path.index(r.path): r for r in rows}
    (part,) = [p for p in run.trace.io if p.layer == "POSIX"]
    for code in codes:
        mine = part.rows(part.file == code)
        full = mine.rows(mine.nbytes == 256 * 1024)
        times = Counter(full.offset.tolist())
        assert len(times) == 12
        assert set(times.values()) == {4}
        assert mine.nbytes.sum() == 4 * (mine.offset + mine.nbytes).max()
    table = run.trace.counters["POSIX"]
    opens = {c: int(table.counters["POSIX_OPENS"][table.file == c].sum()) for c in codes}
    assert set(opens.values()) == {4}
    common = {c.nbytes: c.reads for c in run.sizes.common}
    assert common[256 * 1024] == 8 * 12 * 4


def test_an_empty_log_is_not_called_zero(public, capsys):
    result = result_of(public / "empty_log.darshan", capsys)
    assert result["io"]["ops"] is None
    assert result["job"]["ranks"] == 4
    assert "recorded the job and no I/O at all" in result["headline"]


def test_an_anonymised_log_says_so(public, capsys):
    result = result_of(public / "nonmpi_dxt_anonymized.darshan", capsys)
    assert "anonymised" in {w["code"] for w in result["coverage"]["warnings"]}
    assert result["io"]["ops"] > 0


def test_a_log_of_stdio_alone_names_what_it_has(public, capsys):
    path = next(public.glob("laytonjb*"))
    result = result_of(path, capsys)
    assert result["headline"].startswith("I/O can cost less than 0.1 % of the 1.00 s run")
    assert "No POSIX operation was recorded" in result["headline"]
    assert "STDIO read nothing and wrote 151 B" in result["headline"]
    assert main(["summary", str(path), "--layer", "STDIO", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["io"]["bytes_written"] == 151


def test_layers_above_posix_are_shown_and_never_added(public, opened):
    run = opened(next(public.glob("shane_ior-HDF5*")))
    layers = {layer.layer: layer for layer in run.summary.layers}
    assert set(layers) == {"POSIX", "MPI-IO", "STDIO", "H5F", "H5D"}
    assert layers["H5D"].bytes_written == 4 * 2**20
    assert layers["MPI-IO"].bytes_written > 4 * 2**20  # HDF5's own data beside the user's
    assert layers["H5F"].bytes_written is None
    posix, stdio = layers["POSIX"], layers["STDIO"]
    assert run.summary.storage_bytes_written == posix.bytes_written + stdio.bytes_written


def test_every_log_with_mpi_times_has_one_a_rank(public):
    for path in sorted(public.rglob("*.darshan")):
        log = read_log(path)
        if "APMPI" in log.modules:
            assert [m.rank for m in log.mpi] == list(range(log.nprocs))
            assert all(0 <= m.total_s < 1e6 for m in log.mpi)
