from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.makers.pytorch_traces import pretty, steps, trace, write
from vanidl.errors import InputError
from vanidl.readers.discover import Found, find, kind_by_name
from vanidl.readers.file_names import (
    DarshanName,
    EventFileName,
    ProfilerName,
    SessionName,
    darshan_name,
    event_file_name,
    profiler_name,
    session_name,
)

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
    assert [kind_by_name(name) for name in others] == [""] * 5
    assert kind_by_name("w.pt.trace.json") == "profiler"
    assert kind_by_name("a.pfw") == "dftracer"


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
    assert darshan_name(f"/x/{name}") == DarshanName(
        "u123", "my_app_id_3", "10450", 10480, 11, 21, 1256
    )
    old = "carns_mpi-io-test_id114525_7-27-58921-2678151525192183_1.darshan"
    assert darshan_name(old) == DarshanName("carns", "mpi-io-test", "114525", None, 7, 27, 58921)
    assert darshan_name("renamed.darshan") is None


def test_profiler_names() -> None:
    tail = ".pt.trace.json"
    assert profiler_name(f"a_b_12.1795219325968000540{tail}.gz") == ProfilerName(
        "a_b_12", "a_b", 12, 1795219325968000540
    )
    assert profiler_name(f"node01_rank0.1623143089861{tail}") == ProfilerName(
        "node01_rank0", "", None, 1623143089861000000
    )
    assert profiler_name(f"node.example.org_7.1623143089861{tail}").host == "node.example.org"
    assert profiler_name(f"num_workers_0{tail}") is None


def test_event_file_names() -> None:
    start = "events.out.tfevents.1795219356"
    expected = EventFileName(1795219356, "node01", 8429, 0)
    assert event_file_name(f"{start}.node01.8429.0") == expected
    assert event_file_name(f"{start}.node01.8429.0.v2") == expected
    assert event_file_name(f"{start}.a.b.org.8429.1").host == "a.b.org"
    assert event_file_name(f"{start}.nid03827") == EventFileName(1795219356, "nid03827", None, None)
    assert event_file_name("events.out.tfevents.x") is None


def test_session_names() -> None:
    folder = "tb/plugins/profile/2026_11_21_00_02_36"
    for suffix in ("xplane.pb", "trace.json.gz", "input_pipeline.pb"):
        expected = SessionName("node01", "2026_11_21_00_02_36")
        assert session_name(f"{folder}/node01.{suffix}") == expected
    assert session_name("x.pb") is None


def test_recorded_run(shared: Path) -> None:
    found = find(shared / "data" / "recorded" / "ddp_two_hosts")
    logs, events = found.files["darshan"], found.files["event_files"]
    assert [len(paths) for paths in (logs, found.files["profiler"], events)] == [8, 4, 4]
    assert {darshan_name(p).job_id for p in logs} == {"10450", "10452", "10451", "10453"}
    assert {event_file_name(p).pid for p in events} == {10450, 10451, 10452, 10453}


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


def test_only_so_many_files_are_opened(tmp_path: Path) -> None:
    for i in range(1000):
        touch(tmp_path / f"label-{i:04d}.json")
    last = write(tmp_path / "z.json", trace(steps(2)))
    known = touch(tmp_path / KINDS["profiler"])
    found = find(tmp_path)
    assert found.files == {"profiler": (known,)}
    assert found.others == 1001
    assert find(last).files == {"profiler": (last,)}
