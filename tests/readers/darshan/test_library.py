from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import ROOT
from tests.makers.darshan_logs import (
    POSIX_COUNTERS,
    POSIX_TIMES,
    STDIO_COUNTERS,
    STDIO_TIMES,
    Log,
    log_bytes,
)
from vanidl.readers.darshan import library
from vanidl.readers.darshan.library import read_counters, start_counters
from vanidl.readers.records import CounterFile


def log_with(value: int) -> bytes:
    """A log with two POSIX records and one STDIO record."""
    posix = [
        (7, rank, range(value, value + POSIX_COUNTERS), [0.5] * POSIX_TIMES) for rank in (0, 1)
    ]
    stdio = [(2**63 + 8, -1, [value] * STDIO_COUNTERS, [1.5] * STDIO_TIMES)]
    return log_bytes(Log(names={7: b"/a"}, counters={"POSIX": posix, "STDIO": stdio}))


def several(folder: Path, contents: list[bytes]) -> list[str]:
    paths = [folder / f"{i}.darshan" for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return [str(path) for path in paths]


def check(file: CounterFile, value: int) -> None:
    posix, stdio = file.layers
    assert file.losses == ()
    assert (posix.layer, stdio.layer) == ("POSIX", "STDIO")
    assert (posix.file.tolist(), posix.rank.tolist()) == ([7, 7], [0, 1])
    assert posix.counters["POSIX_OPENS"].tolist() == [value, value]
    assert posix.counters["POSIX_WRITES"].tolist() == [value + 4, value + 4]
    assert posix.seconds["POSIX_F_READ_TIME"].tolist() == [0.5, 0.5]
    assert (stdio.file.tolist(), stdio.rank.tolist()) == ([2**63 + 8], [-1])
    assert stdio.counters["STDIO_OPENS"].tolist() == [value]
    assert not posix.counters["POSIX_OPENS"].flags.writeable


@pytest.mark.usefixtures("darshan_library")
def test_what_was_written(tmp_path: Path) -> None:
    paths = several(tmp_path, [log_with(3), log_with(40)])
    files = read_counters(paths)
    assert list(files) == paths
    check(files[paths[0]], 3)
    check(files[paths[1]], 40)


def test_no_logs_and_no_log() -> None:
    assert read_counters([]) == {}
    (file,) = read_counters(["nowhere.darshan"]).values()
    assert (file.layers, len(file.losses)) == ((), 1)


@pytest.mark.usefixtures("darshan_library")
def test_bad_logs_lose_only_themselves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "BATCH", 4)
    whole = log_with(5)
    contents = [whole, whole[:1400], whole, b"", whole, whole[:-30], b"no log", whole, whole]
    paths = several(tmp_path, contents)
    files = read_counters(paths)
    assert list(files) == paths
    for path, content in zip(paths, contents, strict=True):
        if content == whole:
            check(files[path], 5)
        else:
            assert files[path].losses
    assert capfd.readouterr() == ("", "")


def child_that(folder: Path, does: str) -> Path:
    """The program of a child that does something more before it reads each log."""
    original = Path(library.__file__).with_name("library_child.py").read_text()
    child = folder / "child.py"
    child.write_text(
        original.replace("    handle = backend", f"    {does}\n    handle = backend", 1)
    )
    return child


@pytest.mark.usefixtures("darshan_library")
def test_a_crash_loses_only_the_log_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_that(tmp_path, "if path.endswith('2.darshan'): os.abort()")
    monkeypatch.setattr(library, "CHILD", child)
    paths = several(tmp_path, [log_with(i) for i in range(5)])
    files = read_counters(paths)
    for i in (0, 1, 3, 4):
        check(files[paths[i]], i)
    assert files[paths[2]].layers == ()
    assert "signal 6" in files[paths[2]].losses[0]


@pytest.mark.usefixtures("darshan_library")
def test_a_log_that_takes_forever_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_that(tmp_path, "while path.endswith('1.darshan'): pass")
    child.write_text(child.read_text().replace("LOG_SECONDS = 30", "LOG_SECONDS = 1"))
    monkeypatch.setattr(library, "CHILD", child)
    paths = several(tmp_path, [log_with(i) for i in range(3)])
    files = read_counters(paths)
    check(files[paths[0]], 0)
    check(files[paths[2]], 2)
    assert files[paths[1]].losses


@pytest.mark.usefixtures("darshan_library")
def test_a_log_that_wants_all_memory_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_that(tmp_path, "hog = bytes(1 << 40) if path.endswith('1.darshan') else b''")
    monkeypatch.setattr(library, "CHILD", child)
    paths = several(tmp_path, [log_with(i) for i in range(3)])
    files = read_counters(paths)
    check(files[paths[0]], 0)
    check(files[paths[2]], 2)
    (loss,) = files[paths[1]].losses
    assert "8 GiB of memory" in loss


@pytest.mark.usefixtures("darshan_library")
def test_impossible_records_are_left_out_and_counted(tmp_path: Path) -> None:
    good = (1, 0, [2] * STDIO_COUNTERS, [1.5] * STDIO_TIMES)
    bad = [(2, 0, [2**62] * STDIO_COUNTERS, [1.5] * STDIO_TIMES)]
    bad += [(3, 0, [2] * STDIO_COUNTERS, [t] * STDIO_TIMES) for t in (float("nan"), 1e300)]
    bad += [(4, 0, [-(2**40)] * STDIO_COUNTERS, [1.5] * STDIO_TIMES)]
    path = tmp_path / "log.darshan"
    path.write_bytes(log_bytes(Log(counters={"STDIO": [good, *bad]})))
    (file,) = read_counters([str(path)]).values()
    assert file.layers[0].file.tolist() == [1]
    assert file.losses == ("STDIO: 4 of 5 records hold impossible numbers and are left out",)


def test_starting_does_not_wait(tmp_path: Path) -> None:
    paths = several(tmp_path, [log_with(1)] * 2)
    pending = start_counters(paths)
    assert not pending.done()
    assert list(pending.result()) == paths


def test_the_parent_imports_neither_pydarshan_nor_pandas() -> None:
    import subprocess

    code = (
        "import sys, vanidl.readers.darshan.log, vanidl.readers.darshan.library;"
        "sys.exit(any(m in sys.modules for m in ('darshan', 'pandas')))"
    )
    root = ROOT
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def assert_same(path: Path, file: CounterFile) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from darshan.backend import cffi_backend as peer
    log = peer.log_open(str(path))
    present = [m for m in library.LAYERS if m in peer.log_get_modules(log)]
    assert [layer.layer for layer in file.layers] == [library.LAYERS[m] for m in present]
    for module, layer in zip(present, file.layers, strict=True):
        records = []
        while (record := peer.log_get_record(log, module, dtype="numpy")) is not None:
            records.append(record)
        assert layer.file.tolist() == [r["id"] for r in records]
        assert layer.rank.tolist() == [r["rank"] for r in records]
        assert list(layer.counters) == peer.counter_names(module)
        assert list(layer.seconds) == peer.fcounter_names(module)
        for mine, key in ((layer.counters, "counters"), (layer.seconds, "fcounters")):
            theirs = np.array([r[key] for r in records]).T
            np.testing.assert_array_equal(np.array(list(mine.values())), theirs)
    assert_same_stripes(peer, log, file)
    assert_same_heatmaps(peer, log, file)
    peer.log_close(log)


def assert_same_stripes(peer: Any, log: Any, file: CounterFile) -> None:
    layouts: dict[int, list[tuple[int, int, list[int]]]] = {}
    if "LUSTRE" in peer.log_get_modules(log):
        while (record := peer.log_get_record(log, "LUSTRE", dtype="dict")) is not None:
            layouts[record["id"]] = [
                (c["counters"]["LUSTRE_COMP_STRIPE_SIZE"],
                 c["counters"]["LUSTRE_COMP_STRIPE_COUNT"], c["ost_ids"])
                for c in record["components"]
            ]  # fmt: skip
    mine: dict[int, list[tuple[int, int, list[int]]]] = {}
    for s in file.stripes:
        mine.setdefault(s.file, []).append((s.stripe_nbytes, s.stripe_count, list(s.osts)))
    assert mine == {key: parts for key, parts in layouts.items() if parts}


def assert_same_heatmaps(peer: Any, log: Any, file: CounterFile) -> None:
    names = peer.log_get_name_records(log)
    layers = {"heatmap:POSIX": "POSIX", "heatmap:STDIO": "STDIO", "heatmap:MPIIO": "MPI-IO"}
    theirs = []
    if "HEATMAP" in peer.log_get_modules(log):
        while (record := peer.log_get_record(log, "HEATMAP")) is not None:
            if record["nbins"]:
                bins = record["read_bins"].tolist(), record["write_bins"].tolist()
                layer = layers[names[record["id"]]]
                theirs.append((layer, record["rank"], record["bin_width_seconds"], *bins))
    mine = [
        (h.layer, h.rank, h.bin_ns / 1e9, h.bytes_read.tolist(), h.bytes_written.tolist())
        for h in file.heatmaps
    ]
    assert mine == theirs


@pytest.mark.usefixtures("darshan_library")
def test_wheel_logs_equal_pydarshan(wheel_logs: tuple[Path, ...]) -> None:
    for path, file in read_counters([str(p) for p in wheel_logs]).items():
        assert file.losses == ()
        assert_same(Path(path), file)


@pytest.mark.usefixtures("darshan_library")
def test_shared_logs_equal_pydarshan(finished_logs: tuple[Path, ...]) -> None:
    for path, file in read_counters([str(path) for path in finished_logs]).items():
        assert file.losses == ()
        assert_same(Path(path), file)
