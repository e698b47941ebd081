from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl_loaders.emulated_fs import mount
from vanidl_loaders.emulated_fs.faults import OPERATIONS
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import (
    EmulatedStorage,
    Request,
    RequestLog,
    check_available,
    is_stale,
    measure_served_s,
    read_requests,
    sum_nbytes,
)
from vanidl_loaders.errors import InputError, MissingError, UsageError

NBYTES = 3_000_001
STARTER = """
import sys, time
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage
with EmulatedStorage(sys.argv[1], sys.argv[2], cost=Cost()) as storage:
    print(storage.server_pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.bin").write_bytes(os.urandom(NBYTES))
    (folder / "deep" / "b.bin").write_bytes(os.urandom(1000))
    (folder / "empty").write_bytes(b"")
    return folder


@pytest.fixture
def available():
    try:
        check_available()
    except MissingError as error:
        pytest.skip(str(error))


def until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)


def gone(target):
    return not is_stale(target) and not os.path.ismount(target)


@pytest.mark.usefixtures("available")
class TestMounted:
    def test_reads_fail_from_when_it_is_told_until_it_is_told(self, source, tmp_path):
        with EmulatedStorage(source, tmp_path / "mount", cost=Cost()) as storage:
            path = storage.target / "deep" / "b.bin"

            def fails() -> bool:
                try:
                    return path.read_bytes() != (source / "deep" / "b.bin").read_bytes()
                except OSError as error:
                    return error.errno == errno.EIO

            assert not fails()
            storage.fail_reads(errno.EIO)
            until(fails)
            storage.fail_reads(0)
            until(lambda: not fails())

    def test_bytes_are_identical_and_the_log_counts_them(self, source, tmp_path):
        log = tmp_path / "requests.jsonl"
        with EmulatedStorage(source, tmp_path / "m", cost=Cost(), log=log) as storage:
            for name in ("a.bin", "deep/b.bin", "empty"):
                assert (storage.target / name).read_bytes() == (source / name).read_bytes()
            requests = storage.requests()
        assert sum_nbytes(requests) == NBYTES + 1000
        assert {r.path for r in requests} <= {"a.bin", "deep/b.bin", "empty"}
        assert {r.pid for r in requests} == {os.getpid()}
        assert all(r.start_ns <= r.end_ns for r in requests)
        covered = sorted((r.offset, r.offset + r.size) for r in requests if r.path == "a.bin")
        ends = [0, *(end for _, end in covered)]
        assert all(start == end for (start, _), end in zip(covered, ends, strict=False))

    def test_the_page_cache_hides_nothing(self, source, tmp_path):
        log = tmp_path / "requests.jsonl"
        with EmulatedStorage(source, tmp_path / "m", cost=Cost(), log=log) as storage:
            descriptor = os.open(storage.target / "a.bin", os.O_RDONLY)
            for _ in range(5):
                os.pread(descriptor, 4096, 8192)
            os.close(descriptor)
            found = [(r.offset, r.size) for r in storage.requests()]
        assert found == [(8192, 4096)] * 5

    @pytest.mark.parametrize("page_cache", [True, False])
    def test_the_page_cache_serves_what_it_holds(self, source, tmp_path, page_cache):
        log = tmp_path / "requests.jsonl"
        with EmulatedStorage(
            source, tmp_path / "m", cost=Cost(), log=log, page_cache=page_cache
        ) as storage:
            assert storage.overhead_s > 0
            path, content = storage.target / "a.bin", (source / "a.bin").read_bytes()
            assert path.read_bytes() == content
            first = storage.requests()
            assert path.read_bytes() == content
            again = storage.requests()[len(first) :]
        assert sum_nbytes(first) == NBYTES
        assert sum_nbytes(again) == (0 if page_cache else NBYTES)

    def test_page_faults_are_reads_of_the_process(self, source, tmp_path):
        log = tmp_path / "requests.jsonl"
        with EmulatedStorage(
            source, tmp_path / "m", cost=Cost(), log=log, page_cache=True
        ) as storage:
            with (storage.target / "a.bin").open("r+b") as file:
                shared = mmap.mmap(file.fileno(), 0)
                assert (
                    shared[2_000_000:2_000_100]
                    == (source / "a.bin").read_bytes()[2_000_000:2_000_100]
                )
                requests = storage.requests()
                shared[:5] = b"12345"
                shared.close()
            written = storage.requests(["write"])
        assert {r.pid for r in requests} == {os.getpid()}
        assert any(r.offset <= 2_000_000 < r.offset + r.size for r in requests)
        assert sum_nbytes(requests) < NBYTES
        assert sum_nbytes(written) > 0
        assert (source / "a.bin").read_bytes()[:5] == b"12345"

    def test_what_changes_below_is_read_anew(self, source, tmp_path):
        with EmulatedStorage(source, tmp_path / "m", cost=Cost(), page_cache=True) as storage:
            path = storage.target / "deep" / "b.bin"
            assert len(path.read_bytes()) == 1000
            (source / "deep" / "b.bin").write_bytes(b"others")
            until(lambda: path.read_bytes() == b"others")  # attributes are kept 1 s

    def test_what_has_a_cost_takes_it(self, source, tmp_path):
        log = tmp_path / "requests.jsonl"
        cost = Cost(write_s=0.03, sync_s=0.04, metadata_s=0.02)
        with EmulatedStorage(source, tmp_path / "m", cost=cost, log=log) as storage:
            assert not (storage.target / "none").exists()
            assert not (storage.target / "none").exists()
            with (storage.target / "new").open("wb", buffering=0) as file:
                file.write(b"x" * 100)
                os.fsync(file.fileno())
            (storage.target / "new").unlink()
            requests = storage.requests(OPERATIONS)
        taken = {r.operation: [] for r in requests}
        for request in requests:
            taken[request.operation].append((request.end_ns - request.start_ns) / 1e9)
        assert len([r for r in requests if (r.path, r.operation) == ("none", "stat")]) == 2
        assert {"stat", "make", "write", "sync", "remove"} <= set(taken)
        assert min(taken["stat"] + taken["make"] + taken["remove"]) >= 0.0199
        assert min(taken["write"]) >= 0.0299
        assert min(taken["sync"]) >= 0.0399

    def test_reads_past_the_cache_need_no_aligned_buffer(self, source, tmp_path):
        with EmulatedStorage(source, tmp_path / "m", cost=Cost(), page_cache=True) as storage:
            descriptor = os.open(storage.target / "a.bin", os.O_RDONLY | os.O_DIRECT)
            content = os.pread(descriptor, 4096, 0)
            os.close(descriptor)
        assert content == (source / "a.bin").read_bytes()[:4096]

    @pytest.mark.parametrize("request_bytes", [65_536, 131_072, 1 << 19])
    def test_long_reads_are_cut_into_requests(self, source, tmp_path, request_bytes):
        log = tmp_path / "requests.jsonl"
        with EmulatedStorage(
            source, tmp_path / "m", cost=Cost(), log=log, request_bytes=request_bytes
        ) as storage:
            descriptor = os.open(storage.target / "a.bin", os.O_RDONLY)
            assert len(os.pread(descriptor, 2 << 20, 0)) == 2 << 20
            os.close(descriptor)
            sizes = [r.size for r in storage.requests()]
        assert sizes == [request_bytes] * ((2 << 20) // request_bytes)

    def test_threads_and_forked_processes_are_told_apart(self, source, tmp_path):
        log = tmp_path / "requests.jsonl"
        code = (
            "import threading, sys; t = threading.Thread(target=open(sys.argv[1],'rb').read);"
            "t.start(); t.join()"
        )
        with EmulatedStorage(source, tmp_path / "m", cost=Cost(), log=log) as storage:
            child = subprocess.Popen([sys.executable, "-c", code, storage.target / "deep/b.bin"])
            assert child.wait() == 0
            pids = {r.pid for r in storage.requests()}
        assert pids == {child.pid}

    def test_reads_take_at_least_what_the_model_says(self, source, tmp_path):
        log = tmp_path / "requests.jsonl"
        cost = Cost(latency_s=0.02, total_bytes_per_s=50e6)
        with EmulatedStorage(source, tmp_path / "m", cost=cost, log=log) as storage:
            (storage.target / "a.bin").read_bytes()
            requests = storage.requests()
        taken = (max(r.end_ns for r in requests) - min(r.start_ns for r in requests)) / 1e9
        assert taken >= sum(0.0199 + r.size / 50e6 for r in requests)

    def test_files_can_be_written_renamed_and_removed(self, source, tmp_path):
        with EmulatedStorage(source, tmp_path / "m", cost=Cost()) as storage:
            folder = storage.target / "new"
            folder.mkdir()
            (folder / "x").write_bytes(b"12345")
            (folder / "x").rename(folder / "y")
            with (folder / "y").open("r+b") as file:
                file.truncate(3)
            os.utime(folder / "y", ns=(10**18, 2 * 10**18))
            assert (folder / "y").stat().st_mtime_ns == 2 * 10**18
            assert (source / "new" / "y").read_bytes() == b"123"
            assert sorted(p.name for p in storage.target.iterdir()) == [
                "a.bin",
                "deep",
                "empty",
                "new",
            ]
            assert os.statvfs(storage.target).f_bsize > 0
            (folder / "y").unlink()
            folder.rmdir()
        assert not (source / "new").exists()

    def test_errors_are_those_of_the_folder(self, source, tmp_path):
        with EmulatedStorage(source, tmp_path / "m", cost=Cost()) as storage:
            with pytest.raises(FileNotFoundError):
                (storage.target / "none").read_bytes()
            with pytest.raises(FileExistsError):
                (storage.target / "deep").mkdir()

    def test_an_exception_unmounts(self, source, tmp_path):
        storage = EmulatedStorage(source, tmp_path / "m", cost=Cost())
        pids = []

        def fail():
            with storage:
                pids.append(storage.server_pid)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert gone(tmp_path / "m")
        assert not Path(f"/proc/{pids[0]}").exists()

    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
    @pytest.mark.parametrize("whom", ["starter", "server"])
    def test_a_signal_unmounts(self, source, tmp_path, how, whom):
        target = tmp_path / "m"
        starter = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(source), str(target)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert starter.stdout is not None
        server = int(starter.stdout.readline())
        assert os.path.ismount(target)
        os.kill(starter.pid if whom == "starter" else server, how)
        until(lambda: gone(target))
        starter.kill()
        starter.communicate()
        until(lambda: not Path(f"/proc/{server}").exists())

    def test_the_command_unmounts_with_its_child_and_on_sigterm(self, source, tmp_path):
        target = tmp_path / "m"
        line = [sys.executable, "-m", "vanidl_loaders", "mount", str(source), str(target)]
        code = f"import sys; sys.exit(len(open({str(target / 'a.bin')!r}, 'rb').read()) % 256)"
        done = subprocess.run(
            [
                *line,
                *("--latency-ms", "1", "--metadata-ms", "2", "--write-ms", "0", "--sync-ms", "1"),
                *("--page-cache", "--log", str(tmp_path / "log")),
                *("--", sys.executable, "-c", code),
            ],
            check=False,
        )
        assert done.returncode == NBYTES % 256
        opened = read_requests(tmp_path / "log", ["open"])
        assert [r.path for r in opened] == ["a.bin"]
        assert opened[0].end_ns - opened[0].start_ns >= 1_990_000
        assert gone(target)
        waiting = subprocess.Popen(line, stderr=subprocess.PIPE)
        until(lambda: os.path.ismount(target))
        waiting.terminate()
        waiting.communicate()
        assert gone(target)

    def test_a_target_in_use_is_refused(self, source, tmp_path):
        with pytest.raises(InputError, match="empty folder"):
            EmulatedStorage(source, source / "deep", cost=Cost()).__enter__()
        with (
            EmulatedStorage(source, tmp_path / "m", cost=Cost()),
            pytest.raises(InputError, match="empty folder"),
        ):
            EmulatedStorage(source, tmp_path / "m", cost=Cost()).__enter__()

    def test_a_temporary_target_is_removed(self, source):
        with EmulatedStorage(source, cost=Cost()) as storage:
            assert (storage.target / "empty").read_bytes() == b""
        assert not storage.target.exists()

    def test_clients_can_be_told_apart_by_environment(self, source, tmp_path):
        """Two processes of one client share its link: the second waits for the first."""
        code = "import sys; open(sys.argv[1], 'rb').read()"
        log = tmp_path / "requests.jsonl"
        cost = Cost(client_bytes_per_s=10e6)
        with EmulatedStorage(
            source, tmp_path / "m", cost=cost, log=log, client_env="NODE"
        ) as storage:
            line = [sys.executable, "-c", code, str(storage.target / "a.bin")]
            both = [subprocess.Popen(line, env=os.environ | {"NODE": "0"}) for _ in range(2)]
            assert [p.wait() for p in both] == [0, 0]
            requests = storage.requests()
        assert len({r.pid for r in requests}) == 2
        taken = (max(r.end_ns for r in requests) - min(r.start_ns for r in requests)) / 1e9
        assert taken >= 2 * NBYTES / 10e6 - 0.01


def test_absent_devices_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(mount, "DEVICE", tmp_path / "fuse")
    with pytest.raises(MissingError, match="modprobe fuse"):
        check_available()


def test_an_absent_libfuse_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(mount, "DEVICE", tmp_path)
    monkeypatch.setattr(mount.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(MissingError, match="libfuse"):
        check_available()


@pytest.mark.parametrize("request_bytes", [0, 1 << 20])
def test_requests_that_the_kernel_would_cut_are_refused(source, available, request_bytes):
    with pytest.raises(UsageError, match="expected requests"):
        EmulatedStorage(source, cost=Cost(), request_bytes=request_bytes).__enter__()


def test_an_absent_source_is_named(tmp_path, available):
    with pytest.raises(InputError, match="expected a folder"):
        EmulatedStorage(tmp_path / "none", tmp_path / "m", cost=Cost()).__enter__()


def test_a_log_comes_back_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "log"
    requests = [Request(1, "a", 0, 10, 5, 9), Request(2, "b/c", 7, 0, 6, 8, "write")]
    log = RequestLog(path)
    for request in requests:
        log.add(request)
    log.close()
    assert read_requests(path, OPERATIONS) == requests
    assert read_requests(path) == requests[:1]
    assert sum_nbytes(requests) == 10
    path.write_text('{"pid": 1}\n')
    with pytest.raises(InputError, match="log of requests"):
        read_requests(path)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12),
    st.integers(0, 80),
    st.integers(0, 80),
)
def test_time_served_is_that_of_the_instants_with_a_request(spans, start, length):
    requests = [Request(1, "a", 0, 0, begin, begin + taken) for begin, taken in spans]
    covered = {k for begin, taken in spans for k in range(begin, begin + taken)}
    assert measure_served_s(requests) == pytest.approx(len(covered) / 1e9)
    window = set(range(start, start + length))
    assert measure_served_s(requests, start, start + length) == pytest.approx(
        len(covered & window) / 1e9
    )
