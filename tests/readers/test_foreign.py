"""What is often taken for a log is refused with its name and the way out, alone and in a folder."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.makers.darshan_logs import Log, log_bytes
from vanidl.check.check import check
from vanidl.cli import main
from vanidl.errors import InputError
from vanidl.readers import discover
from vanidl.readers.darshan.log import read_log
from vanidl.readers.xprof import TRACE_VIEWER

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
KINDS: dict[str, tuple[str, bytes | str, str, str]] = {
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
    "dxt parser": ("l.txt", "# DXT, file_id: 7", "darshan-dxt-parser", ".darshan"),
    "chakra": ("e.json", JSON({"schema": "1.1.1-chakra.0.0.4", "nodes": []}), "Chakra", "profiler"),
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


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("packed", [False, True])
def test_it_is_named_with_the_way_out(tmp_path: Path, capsys, name: str, packed: bool) -> None:
    called, content, what, remedy = KINDS[name]
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
    assert len(KINDS) >= 20
    path = tmp_path / "r.db"
    path.write_bytes(database(tmp_path))
    with pytest.raises(InputError, match="Nsight Systems and rocprofv3 export; record"):
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
