from __future__ import annotations

import io
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.mutants import KINDS, seeds
from tests.makers.darshan_logs import Log, Record, log_bytes, log_parts, random_records
from tests.makers.large_logs import Workload, write_logs
from tests.makers.sameness import same
from vanidl.encoding.budget import OBJECT_BYTES, Budget
from vanidl.errors import InputError
from vanidl.parallel.executors import dump, load
from vanidl.readers.darshan.header import LAYOUTS, Header
from vanidl.readers.darshan.job import read_names
from vanidl.readers.darshan.log import read_log, read_logs
from vanidl.readers.records import TracerLog

# Names of a log: what a budget leaves of them does not depend on the logs that came before.

JOB_NAMES = {1: "/data/a", 2: "/data/b", 3: "/data/c"}
REGION = b"".join(
    key.to_bytes(8, "little") + name.encode() + b"\0" for key, name in JOB_NAMES.items()
)
HEADER = Header("3.41", LAYOUTS["3.41"], "<", "zlib", (), {}, 0)


def room_for(names: int) -> Budget:
    """A budget that so many of the names fit into."""
    budget = Budget.of_file(len(REGION))
    budget.held_bytes = sum(OBJECT_BYTES + len(name) for name in [*JOB_NAMES.values()][:names])
    return budget


def test_each_log_pays_for_names_that_many_share() -> None:
    for names in (3, 1, 3, 0, 2):
        budget = room_for(names)
        found, left = read_names(REGION, HEADER, budget)
        assert found == dict([*JOB_NAMES.items()][:names])
        assert left == (3 - names) * len(REGION) // 3
        assert budget.held_bytes <= 0


def test_the_same_bytes_in_another_byte_order_are_other_names() -> None:
    low, _ = read_names(REGION, HEADER, room_for(3))
    high, _ = read_names(REGION, replace(HEADER, byte_order=">"), room_for(3))
    assert [*high] == [key << 56 for key in low]


VERSIONS = ("3.00", "3.10", "3.20", "3.21", "3.41")


def written(folder: Path, log: Log, name: str = "log.darshan") -> TracerLog:
    path = folder / name
    path.write_bytes(log_bytes(log))
    return read_log(path)


def peer_says(path: Path) -> dict[str, Any]:
    """Job, command, mounts, names and modules as PyDarshan reads them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from darshan.backend import cffi_backend as peer
    log = peer.log_open(str(path))
    says = {
        "job": peer.log_get_job(log),
        "command": peer.log_get_exe(log),
        "names": peer.log_get_name_records(log),
        "modules": peer.log_get_modules(log),
    }
    try:
        says["mounts"] = peer.log_get_mounts(log)
    except UnicodeDecodeError:  # a fault of this version of PyDarshan
        says["mounts"] = None
    peer.log_close(log)
    return says


def assert_same(path: Path) -> None:
    log, says = read_log(path), peer_says(path)
    job = says["job"]
    assert (log.version, log.job_id) == (job["log_ver"], str(job["jobid"]))
    assert (log.user_id, log.nprocs) == (job["uid"], job["nprocs"])
    assert log.metadata == job["metadata"]
    assert log.start_ns == job["start_time_sec"] * 10**9 + job["start_time_nsec"]
    assert (log.end_ns - log.start_ns) / 1e9 == pytest.approx(job["run_time"], abs=1e-6)
    # PyDarshan finds no command where the mount table did not fit in behind it.
    assert says["command"].strip() in (log.command, "")
    assert log.names == says["names"]
    assert log.modules == tuple(says["modules"])
    partial = tuple(name for name, m in says["modules"].items() if m["partial_flag"])
    assert log.partial_layers == partial
    if says["mounts"] is not None:
        assert sorted(log.mounts) == sorted(says["mounts"])
    assert (log.whole, log.losses) == (True, ())


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", VERSIONS)
def test_all_fields(tmp_path: Path, version: str, order: str) -> None:
    log = Log(version, order, names={2**64 - 1: b"/p/a", 3: b"/b"}, partial=("POSIX", "STDIO"))
    read = written(tmp_path, log, "me_python_id4711-99_1-2-3-4_1.darshan")
    seconds = version != "3.41"
    assert (read.version, read.job_id, read.pid) == (version, "4711", 99)
    assert (read.user_id, read.nprocs) == (1000, 2)
    start, end = (1_700_000_000_000_000_000, 1_700_000_061_000_000_000)
    assert read.start_ns == (start if seconds else start + 250_000_000)
    assert read.end_ns == (end if seconds else end - 250_000_000)
    assert read.start_resolution_ns == (10**9 if seconds else 1)
    assert read.metadata == {"lib_ver": "3.4.7", "fork_parent": "12"}
    assert read.command == "python train.py"
    assert read.mounts == (("/p", "lustre"), ("/", "ext4"))
    assert read.names == {2**64 - 1: "/p/a", 3: "/b"}
    assert read.partial_layers == ("POSIX", "STDIO")
    assert read.whole


@pytest.mark.parametrize(("processes", "error_ms"), [(1, 1), (4, 10)])
def test_the_start_is_less_sure_under_mpi(tmp_path: Path, processes: int, error_ms: int) -> None:
    path = tmp_path / "x.darshan"
    path.write_bytes(log_bytes(Log(job=(1000, 1, processes))))
    assert read_log(path).start_uncertainty_ns == error_ms * 1_000_000


def test_whole_seconds_in_a_new_log_are_known_as_such(tmp_path: Path) -> None:
    log = Log(start=(1_700_000_000, 0), end=(1_700_000_009, 0))
    read = written(tmp_path, log)
    assert (read.end_ns - read.start_ns, read.start_resolution_ns) == (10 * 10**9, 10**9)


def test_bytes_that_are_no_text_stay_printable(tmp_path: Path) -> None:
    log = Log(command=b"python \xff.py", names={1: b"/\xe9", 2: "/ü".encode()})
    read = written(tmp_path, log)
    assert read.command == r"python \xff.py"
    assert read.names == {1: r"/\xe9", 2: "/ü"}


def test_an_end_before_the_start_is_a_loss(tmp_path: Path) -> None:
    read = written(tmp_path, Log(end=(0, 0)))
    assert read.end_ns == read.start_ns
    assert "before its start" in read.losses[0]


def test_impossible_times_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="job record"):
        written(tmp_path, Log(start=(2**62, 0)))


@pytest.mark.parametrize("compression", ["zlib", "bz2", "none"])
@pytest.mark.parametrize("missing", [0, 1, 900])
def test_a_large_log_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, missing: int
) -> None:
    dxt = {"DXT_POSIX": random_records(1), "DXT_MPIIO": random_records(2)}
    log = Log(compression=compression, names={1: b"/a"}, dxt=dxt)
    path = tmp_path / "log.darshan"
    raw = b"".join(log_parts(log))
    path.write_bytes(raw[: len(raw) - missing])
    read = read_log(path)
    monkeypatch.setattr("vanidl.readers.darshan.header._LARGE", 0)
    monkeypatch.setattr("vanidl.encoding.inflate._AHEAD_STREAM", 0)
    assert same(read_log(path), read)
    assert read.whole == (not missing)


def test_a_large_file_that_is_no_log_is_refused_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.darshan"
    path.write_bytes(b"\1" * 3000)
    monkeypatch.setattr("vanidl.readers.darshan.header._LARGE", 0)
    with pytest.raises(InputError, match="3,000 bytes of another kind"):
        read_log(path)


def test_a_log_without_regions(tmp_path: Path) -> None:
    read = written(tmp_path, Log())
    assert (read.modules, read.names, read.operations, read.whole) == ((), {}, (), True)


def test_a_tail_and_a_gap_are_losses(tmp_path: Path) -> None:
    parts = log_parts(Log(names={1: b"/a"}))
    path = tmp_path / "log.darshan"
    path.write_bytes(b"".join(parts) + b"tail")
    read = read_log(path)
    assert read.losses == ("4 bytes at the end of the log belong to nothing",)
    assert read.names == {1: "/a"}


def test_damaged_names_leave_the_rest(tmp_path: Path) -> None:
    header, job, names = log_parts(Log(names={1: b"/a"}))
    path = tmp_path / "log.darshan"
    path.write_bytes(header + job + names[:-1] + b"\x99")
    read = read_log(path)
    assert read.names == {}
    assert "file names" in read.losses[0]


def test_damaged_counters_are_a_loss(tmp_path: Path) -> None:
    log = Log(counters={"STDIO": [(1, 0, range(14), [0.0] * 15)]})
    header, job, names, stdio = log_parts(log)
    path = tmp_path / "log.darshan"
    path.write_bytes(header + job + names + stdio[:-2] + b"\0\0")
    (loss,) = read_log(path).losses
    assert loss.startswith("STDIO is damaged")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "an empty file"),
        (b"PK\x03\x04 not a log at all", "another kind"),
        (log_bytes(Log())[:100], "100"),
        (log_bytes(Log())[:1340], "job record"),
        (b"4.00" + log_bytes(Log())[4:], "'4.00'"),
        (log_bytes(Log())[:16] + b"\x07" + log_bytes(Log())[17:], "found 7"),
    ],
)
def test_what_is_no_log(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "x.darshan"
    path.write_bytes(content)
    with pytest.raises(InputError, match="expected") as error:
        read_log(path)
    assert found in str(error.value)
    assert str(path) in str(error.value)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_log(tmp_path / "none.darshan")
    with pytest.raises(InputError, match="a folder"):
        read_log(tmp_path)


@pytest.mark.usefixtures("darshan_library")
@pytest.mark.parametrize("version", VERSIONS)
def test_pydarshan_reads_what_the_writer_writes(tmp_path: Path, version: str) -> None:
    path = tmp_path / "log.darshan"
    path.write_bytes(log_bytes(Log(version, names={5: b"/p/a", 6: b"/b"})))
    assert_same(path)


@pytest.mark.usefixtures("darshan_library")
def test_wheel_logs_equal_pydarshan(wheel_logs: tuple[Path, ...]) -> None:
    for path in wheel_logs:
        assert_same(path)


@pytest.mark.usefixtures("darshan_library")
def test_shared_logs_equal_pydarshan(finished_logs: tuple[Path, ...]) -> None:
    assert len(finished_logs) > 50
    for path in finished_logs:
        assert_same(path)


def assert_together_as_alone(paths: list[Path]) -> None:
    """Many logs at once say what each says alone, also where another process read them."""
    together = read_logs(paths)
    sent = io.BytesIO()
    dump(together, sent)
    sent.seek(0)
    for path, found, received in zip(paths, together, load(sent), strict=True):
        if isinstance(found, InputError):
            assert str(received) == str(found)
            with pytest.raises(InputError, match=re.escape(str(found))):
                read_log(path)
        else:
            alone = read_log(path)
            assert same(found, alone), path
            assert same(received, alone), path


def test_many_logs_at_once_say_what_each_says(
    real_logs: tuple[Path, ...], wheel_logs: tuple[Path, ...], tmp_path: Path
) -> None:
    small = [p for p in (*real_logs, *wheel_logs) if p.stat().st_size < 1 << 20]
    assert len(small) > 50
    assert_together_as_alone([*small, tmp_path / "none.darshan"])


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("version", ["3.10", "3.21", "3.41"])
def test_damaged_logs_among_others_say_what_each_says(
    kind: str, version: str, tmp_path: Path
) -> None:
    (whole,) = write_logs(tmp_path, 1, Workload(60, files=4), Log(version))
    paths = [whole]
    for i, content in enumerate(seeds(whole.read_bytes(), kind, range(12))):
        paths.append(tmp_path / f"{i}.darshan")
        paths[-1].write_bytes(content)
    assert_together_as_alone(paths)


def test_impossible_operations_are_left_out_of_many_logs(tmp_path: Path) -> None:
    rows = [(0, 5, 1.0, 0.5, 7), (0, 5, 1.0, 2.0, 7)]
    odd = Log(names={5: b"/a"}, dxt={"DXT_POSIX": [[Record(5, 0, "n", [], rows)]]})
    (tmp_path / "odd.darshan").write_bytes(log_bytes(odd))
    paths = [tmp_path / "odd.darshan", *write_logs(tmp_path, 2, Workload(60, files=4))]
    assert_together_as_alone(paths)
    (found, *_) = read_logs(paths)
    assert isinstance(found, TracerLog)
    assert "1 of 2 operations" in found.losses[0]


def test_logs_of_machines_of_both_orders_of_bytes_at_once(tmp_path: Path) -> None:
    paths = []
    for name, order in (("a", "<"), ("b", ">"), ("c", "<"), ("d", ">")):
        record = Record(int.from_bytes(name.encode()), 0, f"node-{name}", [], [(0, 8, 1.0, 2.0, 3)])
        other = Record(77, 0, f"node-{name}", [(8, 16, 2.0, 3.0, 3)], [])
        log = Log(byte_order=order, dxt={"DXT_POSIX": [[record, other]]})
        paths.append(tmp_path / f"{name}.darshan")
        paths[-1].write_bytes(log_bytes(log))
    assert_together_as_alone(paths)
    for path, found in zip(paths, read_logs(paths), strict=True):
        assert isinstance(found, TracerLog)
        (table,) = found.operations
        assert table.record_host == (f"node-{path.stem}",) * 2
        assert table.record_file.tolist() == [ord(path.stem), 77]
        assert table.nbytes.tolist() == [8, 16]


def test_cosmictagger_runs_988_seconds(shared: Path) -> None:
    folder = shared / "data/public/vanidl_cosmictagger"
    read = read_log(folder / "cosmictagger_8ranks.darshan")
    assert (read.end_ns - read.start_ns) / 1e9 == 988.0
    assert read.start_resolution_ns == 10**9
    assert sum(len(table.start_ns) for table in read.operations) == 313_872
