from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sqlite3
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.makers.darshan_logs import Log, log_bytes
from tests.makers.pytorch_traces import pretty, steps, trace, write
from vanidl.check.check import check
from vanidl.cli import main
from vanidl.errors import InputError
from vanidl.readers import discover
from vanidl.readers.darshan.log import read_log
from vanidl.readers.discover import Found, find, guess_kind_by_name
from vanidl.readers.names import (
    DarshanName,
    EventFileName,
    ProfilerName,
    SessionName,
    parse_darshan_name,
    parse_event_file_name,
    parse_profiler_name,
    parse_session_name,
)
from vanidl.readers.xprof import TRACE_VIEWER

# What is often taken for a log is refused with its name and the way out, alone and in a folder.

EVENT = {"ph": "X", "name": "aten::mm", "args": {"a": 1}, "tid": 1}


def zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("a", "b")
    return target.getvalue()


def database(tmp: Path) -> bytes:
    with sqlite3.connect(tmp / "d.sqlite") as connection:
        connection.execute("create table kernels (start integer)")
    connection.close()
    return (tmp / "d.sqlite").read_bytes()


def array() -> bytes:
    target = io.BytesIO()
    np.save(target, np.arange(3))
    return target.getvalue()


JSON = json.dumps
FOREIGN_KINDS: dict[str, tuple[str, bytes | str, str, str]] = {
    "utf16": ("t.json", "{}".encode("utf-16"), "UTF-16", "iconv"),
    "utf16 big": ("t.json", b"\xfe\xff\0{", "UTF-16", "iconv"),
    "zip": ("t.zip", zipped(), "zip archive", "unpack"),
    "zstd": ("t.json.zst", b"\x28\xb5\x2f\xfd\0\0", "zstd", "zstd -d"),
    "xz": ("t.json.xz", lzma.compress(b"{}"), "xz", "xz -d"),
    "bzip2": ("t.json.bz2", bz2.compress(b"{}"), "bzip2", "bzip2 -d"),
    "snapshot": ("m.pickle", pickle.dumps({}, 4), "memory snapshot", "torch.profiler"),
    "pdf": ("s.pdf", b"%PDF-1.5 ...", "darshan-job-summary", ".darshan"),
    "parquet": ("a.parquet", b"PAR1....", "Parquet", "logs of the run"),
    "hdf5": ("a.h5", b"\x89HDF\r\n\x1a\n", "HDF5", "logs of the run"),
    "npy": ("a.npy", array(), "NumPy", "logs of the run"),
    "png": ("a.png", b"\x89PNG\r\n\x1a\n", "picture", "logs of the run"),
    "elf": ("a.out", b"\x7fELF\2\1\1", "program", "log that it left"),
    "nsys": ("r.nsys-rep", b"\1\2\3\4\5", "Nsight Systems", "torch.profiler"),
    "perfetto": ("r.pftrace", b"\n\2\3\4\5", "Perfetto", "torch.profiler"),
    "page": ("report.html", "<!DOCTYPE html><html>", "web page", "logs that it was made of"),
    "parser": ("l.txt", "# darshan log version: 3.41\n", "darshan-parser", ".darshan"),
    "darshan 1": ("u_id7.darshan.gz", "1.21" + "\0" * 11 + "\x10", "Darshan 1", "darshan-util 2.x"),
    "dxt parser": ("l.txt", "# DXT, file_id: 7", "darshan-dxt-parser", ".darshan"),
    "chakra": ("e.json", JSON({"schema": "1.1.1-chakra.0.0.4", "nodes": []}), "Chakra", "profiler"),
    "older et": ("e.json", JSON({"schema": "1.0.1", "pid": 7, "nodes": []}), "Chakra", "profiler"),
    "perfetto too": ("r.perfetto-trace", b"\n\2\3\4\5", "Perfetto", "torch.profiler"),
    "graph": ("c.json", JSON({"workload_graph": []}), "Chakra", "torch.profiler"),
    "chakra et": ("c.0.et", b"\n\2\3\4\5", "Chakra", "torch.profiler"),
    "otf2": ("traces.otf2", b"\x03BOTF2\0\3", "OTF2", "vanidl record"),
    "hpctoolkit": ("trace.db", b"HPCTOOLKITtrce\4\0", "HPCToolkit", "vanidl record"),
    "as text": ("x.bin", b"\n\xef\xbf\xbd\2" * 8, "changed into text", "copy the file again"),
    "timeline": ("m.json", JSON([[1, 2], [[0, 0]]]), "memory timeline", "torch.profiler"),
    "legacy": ("t.json", JSON([EVENT | {"pid": "CPU functions"}]), "before 1.8", "torch.profiler"),
    "npu": ("trace_view.json", JSON([EVENT | {"ts": "1715588800000000.0"}]), "torch_npu", "number"),
    "speedscope": ("p.json", JSON({"$schema": "https://speedscope.app"}), "py-spy", "profiler"),
    "strace": ("s.txt", '1234 12:00:01 openat(3, "x", O_RDONLY) = 4\n', "strace", "vanidl record"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN_KINDS)
@pytest.mark.parametrize("packed", [False, True])
def test_it_is_named_with_the_way_out(tmp_path: Path, capsys, name: str, packed: bool) -> None:
    called, content, what, remedy = FOREIGN_KINDS[name]
    data = content.encode() if isinstance(content, str) else content
    if packed and not isinstance(content, str):
        pytest.skip("text alone is looked at through gzip")
    path = tmp_path / (f"{called}.gz" if packed else called)
    path.write_bytes(gzip.compress(data) if packed else data)
    for place in (path, tmp_path):
        assert main(["summary", str(place)]) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert what in said
        assert remedy in said
        (verdict,) = check([place])
        assert verdict.path == str(path)
        assert (verdict.state, verdict.read) == ("foreign", False)
        assert what in verdict.missing[0]


def test_there_are_twenty_kinds_and_a_database(tmp_path: Path) -> None:
    assert len(FOREIGN_KINDS) >= 20
    path = tmp_path / "r.db"
    path.write_bytes(database(tmp_path))
    with pytest.raises(InputError, match="and rocprofv3 export; run rocprofv3 with"):
        discover.find(path)


@pytest.mark.parametrize("name", ["a.darshan.txt", "a.darshan.gz", "a.darshan"])
@pytest.mark.parametrize("packed", [False, True])
def test_darshan_logs_are_known_by_content_in_folders_and_packed(
    tmp_path: Path, name: str, packed: bool
) -> None:
    content = log_bytes(Log(names={5: b"/p/a"}))
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if packed else content)
    assert discover.find(tmp_path).files == {"darshan": (path,)}
    assert read_log(path).names == {5: "/p/a"}
    assert [verdict.state for verdict in check([tmp_path])] == ["whole"]


def test_what_is_cut_of_a_packed_log_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan.gz"
    path.write_bytes(gzip.compress(log_bytes(Log(names={5: b"/p/a"})))[:-30])
    with pytest.raises(InputError, match="the gzip data is cut"):
        read_log(path)


def test_other_text_with_such_a_name_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "notes.darshan.txt").write_text("what I think of it")
    with pytest.raises(InputError, match="found 1 other file;"):
        discover.find(tmp_path)


@pytest.mark.parametrize("name", ["a.darshan", "a.darshan_partial"])
def test_a_header_that_was_never_written_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(2048) + log_bytes(Log())[2048:])
    with pytest.raises(InputError, match="header was never written"):
        read_log(tmp_path / name)


def test_a_pytorch_trace_with_a_name_of_tensorflow_is_one(tmp_path: Path) -> None:
    """SGLang calls its profiles so; others of that name stay TensorFlow's."""
    head = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}
    ours, other = tmp_path / "17-TP-0.trace.json.gz", tmp_path / "host.trace.json.gz"
    ours.write_bytes(gzip.compress(JSON(head).encode()))
    other.write_bytes(gzip.compress(JSON({"displayTimeUnit": "ns", "traceEvents": []}).encode()))
    found = discover.find(tmp_path).files
    assert found == {"profiler": (ours,), TRACE_VIEWER: (other,)}
    assert [*discover.find(ours).files] == ["profiler"]
    assert [*discover.find(other).files] == [TRACE_VIEWER]


@pytest.mark.parametrize(("lost", "refused"), [(7, False), (8, True)])
def test_a_profile_that_was_copied_as_text_is_said_to_be_one(tmp_path: Path, lost, refused) -> None:
    path = tmp_path / "n.xplane.pb"
    path.write_bytes(b"\n" + "\N{REPLACEMENT CHARACTER}\2".encode() * lost)
    if refused:
        with pytest.raises(InputError, match="copy the file again, as binary"):
            discover.find(path)
    else:
        assert discover.find(path).files == {"xplane": (path,)}


KINDS = {
    "darshan": "u_x_id1-2_11-21-99-7_1.darshan",
    "darshan_partial": "u_x_id1-2_11-21-99-7.darshan_partial",
    "profiler": "node01_8.1795219325968000540.pt.trace.json.gz",
    "event_files": "events.out.tfevents.1795219356.node01.8429.0.v2",
    "xplane": "node01.xplane.pb",
    "trace_viewer": "node01.trace.json.gz",
    "input_pipeline": "node01.input_pipeline.pb",
    "dftracer": "a-fork.pfw.gz",
    "run_records": "run.json",
}


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def of_kind(path: Path, kind: str) -> Found:
    if kind == "run_records":
        return Found(path, run_records=(path,))
    return Found(path, {kind: (path,)})


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_in_a_folder_and_alone(tmp_path: Path, kind: str) -> None:
    path = touch(tmp_path / "a" / KINDS[kind])
    touch(tmp_path / "readme.txt")
    expected = of_kind(path, kind)
    assert find(tmp_path) == replace(expected, root=tmp_path, others=1)
    assert find(str(path)) == expected


def test_other_names_are_no_kind() -> None:
    others = ["x.json", "x.darshan.txt", "trace.json.gz.tmp", "tfevents", "my_run.json"]
    assert [guess_kind_by_name(name) for name in others] == [""] * 5
    assert guess_kind_by_name("w.pt.trace.json") == "profiler"
    assert guess_kind_by_name("a.pfw") == "dftracer"


def test_order_does_not_depend_on_the_file_system(tmp_path: Path) -> None:
    paths = [touch(tmp_path / str(i % 3) / f"{i}.darshan") for i in (5, 3, 8, 1, 9, 2, 7)]
    assert find(tmp_path).files["darshan"] == tuple(sorted(paths))


def test_depth(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"abcdef")
    path = touch(deep / "x.darshan")
    touch(deep / "g" / "y.darshan")
    found = find(tmp_path)
    assert found.files["darshan"] == (path,)
    assert found.too_deep == (deep / "g",)
    with pytest.raises(InputError, match="searched 5 levels deep"):
        find(tmp_path, max_depth=5)


def test_hidden_folders_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path / ".cache" / "x.darshan")
    with pytest.raises(InputError, match="no file at all"):
        find(tmp_path)
    assert len(find(tmp_path / ".cache").files["darshan"]) == 1


def test_links(tmp_path: Path) -> None:
    root, outside = tmp_path / "run", tmp_path / "outside"
    path = touch(root / "logs" / "x.darshan")
    other = touch(outside / "y.darshan")
    (root / "up").symlink_to(root)
    (root / "again").symlink_to(root / "logs")
    (root / "a.darshan").symlink_to(path)
    (root / "b.darshan").symlink_to(other)
    (root / "broken.darshan").symlink_to(tmp_path / "missing")
    (root / "circle.darshan").symlink_to(root / "circle.darshan")
    (root / "above").symlink_to(tmp_path)
    (root / "far").symlink_to(outside)
    found = find(root)
    assert found.files["darshan"] == (root / "far" / "y.darshan", path)
    assert found.others == 2  # the links that lead nowhere
    assert len(find(root / "up").files["darshan"]) == 2


@pytest.mark.parametrize("order", ["little", "big"])
def test_renamed_darshan_log(tmp_path: Path, order: str) -> None:
    path = tmp_path / "renamed"
    path.write_bytes(b"3.41".ljust(8, b"\0") + (6567223).to_bytes(8, order) + bytes(100))
    assert find(path).files["darshan"] == (path,)


def test_renamed_traces(tmp_path: Path) -> None:
    contents = {
        "profiler": pretty(trace(steps(1))).encode(),
        "dftracer": b'[\n{"id":1,"name":"read","ph":"X","ts":1,"pid":2}\n',
    }
    for kind, data in contents.items():
        for packed in (data, gzip.compress(data)):
            path = tmp_path / "renamed"
            path.write_bytes(packed)
            assert find(path) == of_kind(path, kind)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b", gzip.compress(b"text", mtime=0)])
def test_unknown_single_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"expected a run: .* found something that is none"):
        find(path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="check the path"):
        find(tmp_path / "missing")
    with pytest.raises(InputError, match=r"Darshan logs .* no file at all"):
        find(tmp_path)
    touch(tmp_path / "a" / "x.txt")
    touch(tmp_path / "b" / "y.csv")
    with pytest.raises(InputError, match=r"2 other files; give the folder"):
        find(tmp_path)


def refuse_scandir(monkeypatch: pytest.MonkeyPatch, refused: Path) -> None:
    scandir = os.scandir

    def guarded(path):
        if Path(path) == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = touch(tmp_path / "a" / "x.darshan")
    touch(tmp_path / "b" / "x.darshan")
    refuse_scandir(monkeypatch, tmp_path / "b")
    found = find(tmp_path)
    assert found.files["darshan"] == (path,)
    assert found.unreadable == (tmp_path / "b",)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        find(tmp_path / "b")
    path.unlink()
    with pytest.raises(InputError, match=r"1 folder cannot be listed: Permission denied"):
        find(tmp_path)


def test_darshan_names() -> None:
    name = "u123_my_app_id_3_id10450-10480_11-21-1256-11675753276379639316_1.darshan"
    assert parse_darshan_name(f"/x/{name}") == DarshanName(
        "u123", "my_app_id_3", "10450", 10480, 11, 21, 1256
    )
    old = "carns_mpi-io-test_id114525_7-27-58921-2678151525192183_1.darshan"
    assert parse_darshan_name(old) == DarshanName(
        "carns", "mpi-io-test", "114525", None, 7, 27, 58921
    )
    assert parse_darshan_name("renamed.darshan") is None


def test_profiler_names() -> None:
    tail = ".pt.trace.json"
    assert parse_profiler_name(f"a_b_12.1795219325968000540{tail}.gz") == ProfilerName(
        "a_b_12", "a_b", 12, 1795219325968000540
    )
    assert parse_profiler_name(f"node01_rank0.1623143089861{tail}") == ProfilerName(
        "node01_rank0", "", None, 1623143089861000000
    )
    assert parse_profiler_name(f"node.example.org_7.1623143089861{tail}").host == "node.example.org"
    assert parse_profiler_name(f"num_workers_0{tail}") is None


def test_event_file_names() -> None:
    start = "events.out.tfevents.1795219356"
    expected = EventFileName(1795219356, "node01", 8429, 0)
    assert parse_event_file_name(f"{start}.node01.8429.0") == expected
    assert parse_event_file_name(f"{start}.node01.8429.0.v2") == expected
    assert parse_event_file_name(f"{start}.a.b.org.8429.1").host == "a.b.org"
    assert parse_event_file_name(f"{start}.nid03827") == EventFileName(
        1795219356, "nid03827", None, None
    )
    assert parse_event_file_name("events.out.tfevents.x") is None


def test_session_names() -> None:
    folder = "tb/plugins/profile/2026_11_21_00_02_36"
    for suffix in ("xplane.pb", "trace.json.gz", "input_pipeline.pb"):
        expected = SessionName("node01", "2026_11_21_00_02_36")
        assert parse_session_name(f"{folder}/node01.{suffix}") == expected
    assert parse_session_name("x.pb") is None


def test_recorded_run(shared: Path) -> None:
    found = find(shared / "data" / "recorded" / "ddp_two_hosts")
    logs, events = found.files["darshan"], found.files["event_files"]
    assert [len(paths) for paths in (logs, found.files["profiler"], events)] == [8, 4, 4]
    assert {parse_darshan_name(p).job_id for p in logs} == {"10450", "10452", "10451", "10453"}
    assert {parse_event_file_name(p).pid for p in events} == {10450, 10451, 10452, 10453}


@pytest.mark.parametrize("name", ["trace.json", "profile_0.json", "profile_1.json.gz"])
def test_a_profile_of_any_name_is_known_by_what_it_holds(tmp_path: Path, name: str) -> None:
    """`export_chrome_trace` takes any name, accelerate writes profile_RANK.json."""
    path = write(tmp_path / "run" / name, trace(steps(2)))
    for other in ('{"lr": 0.1}', "[1, 2]", '{"schemaVersion": 2, "mediaType": "x"}', "{", ""):
        write(tmp_path / "run" / f"other{len(other)}.json", other)
    write(tmp_path / "run" / "chrome.json", {"traceEvents": [{"ph": "X", "name": "a"}]})
    found = find(tmp_path / "run")
    assert found.files == {"profiler": (path,)}
    assert found.others == 6


@pytest.mark.parametrize(
    "before", [{"distributedInfo": {"rank": 0}}, {"metadata": ["x" * 99] * 300}]
)
def test_a_profile_whose_events_another_tool_wrote_anew_is_one(tmp_path: Path, before) -> None:
    """HTA's filtered traces have no schemaVersion, TraceLens' have what ran in front of it."""
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    text = JSON({**before, "traceEvents": [event] * 3000, "schemaVersion": 1})
    path = tmp_path / "rank_0.json.gz"
    path.write_bytes(gzip.compress(text.encode()))
    other = {"traceEvents": [event | {"cat": "toplevel"}]}
    write(tmp_path / "browser.json", other)
    assert find(tmp_path).files == {"profiler": (path,)}


def test_only_so_many_files_are_opened(tmp_path: Path) -> None:
    for i in range(1000):
        touch(tmp_path / f"label-{i:04d}.json")
    last = write(tmp_path / "z.json", trace(steps(2)))
    known = touch(tmp_path / KINDS["profiler"])
    found = find(tmp_path)
    assert found.files == {"profiler": (known,)}
    assert found.others == 1001
    assert find(last).files == {"profiler": (last,)}


@pytest.mark.parametrize("content", [b"", b"[\n", gzip.compress(b"[\n", mtime=0), b"\x1f\x8b\x08"])
def test_a_trace_without_an_event_is_called_that(tmp_path: Path, capsys, content: bytes) -> None:
    """Not a file of another tool: a killed process leaves it."""
    path = tmp_path / "node1-7.pfw"
    path.write_bytes(content)
    assert main(["summary", str(path)]) == 1
    said = capsys.readouterr().err
    assert "no event in any DFTracer trace" in said
    assert "profiles of other" not in said


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_of_darshan_1_under_the_name_of_today(tmp_path: Path, capsys, packed: bool) -> None:
    content = b"1.23" + bytes(11) + bytes(range(16, 80))
    path = tmp_path / "u_app_id7_1-2-3_1.darshan"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert main(["summary", str(path)]) == 1
    assert "found one of Darshan 1, which no vanidl reads" in capsys.readouterr().err
