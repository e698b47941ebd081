"""Real commands under real tracers: every read of the data must be there, with its bytes."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import unittest.mock
from pathlib import Path

import pytest

import vanidl
from tests.record.conftest import LOOKED_AT, Recorder, whole
from vanidl.errors import CommandError, InputError, UsageError
from vanidl.readers.run_folder import read_record
from vanidl.record import Recorded, record, recording
from vanidl.record.recorder import Recorder as Tracing
from vanidl.record.recorder import Tracer
from vanidl.record.recording import time_call_ns

READS = 120
NBYTES = 1000

READER = f"""
import atexit, gc, os, sys
atexit.register(gc.freeze)  # what imports made is not looked through at exit
def read(n={READS}):
    fd = os.open({{data!r}}, os.O_RDONLY)
    for i in range(n):
        os.pread(fd, {NBYTES}, i * 7)
    os.close(fd)
"""


def script(folder: Path, data: Path, text: str) -> Path:
    path = folder / "job.py"
    path.write_text(READER.format(data=str(data)) + LOOKED_AT + text)
    return path


def run_of(recorded: Recorded, data: Path) -> vanidl.Run:
    return vanidl.open_run(recorded.folder, selection=vanidl.Selection(include=(str(data),)))


def reads_of(recorded: Recorded, data: Path) -> tuple[int | None, int | None]:
    summary = run_of(recorded, data).summary
    return summary.reads, summary.bytes_read


def test_one_process(recorded: Recorder, tmp_path: Path, data: Path) -> None:
    done = recorded(sys.executable, script(tmp_path, data, "read()"))
    assert done.exit_status == 0
    assert reads_of(done, data) == (READS, READS * NBYTES)
    run = run_of(done, data)
    assert run.trace.job.tracer == done.tracer
    assert run.trace.job.id == done.run.id
    assert not {w.code for w in run.coverage.warnings} & {"damaged", "processes_missing"}
    assert done.cpu_s > 0


def test_reads_of_the_loaders_are_seen(recorded: Recorder, tmp_path: Path, data: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    text = (
        "from vanidl_loaders.data.pread import read_into\n"
        f"file = os.open({str(data)!r}, os.O_RDONLY)\n"
        f"for i in range({READS}): read_into(file, memoryview(bytearray({NBYTES})), i * 7)\n"
    )
    done = recorded(sys.executable, script(tmp_path, data, text))
    assert reads_of(done, data) == (READS, READS * NBYTES)
    access = run_of(done, data).access
    assert access is not None  # offsets are recorded, too
    assert access.read.forward + access.read.backward == READS - 1


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing(
    recorded: Recorder, tmp_path: Path, data: Path, method: str
) -> None:
    # A process that ends before the recorder looks has no command, and only that tells its role.
    text = f"""
def work():
    read()
    looked_at()
if __name__ == "__main__":
    import multiprocessing
    context = multiprocessing.get_context({method!r})
    read(30)
    workers = [context.Process(target=work) for _ in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
"""
    done = whole(recorded, sys.executable, script(tmp_path, data, text))
    run = run_of(done, data)
    expected = 30 + 2 * READS
    assert (run.summary.reads, run.summary.bytes_read) == (expected, expected * NBYTES)
    roles = [p.role for p in run.trace.processes]
    assert roles.count("trainer") == 1
    assert roles.count("worker") >= 2
    readers = [p for p in done.run.processes if "resource_tracker" not in p.command]
    assert {p.state for p in readers} == {"recorded"}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(
    recorded: Recorder, tmp_path: Path, data: Path, method: str
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    workers = 1 + (method == "fork")  # a spawned one costs an import of PyTorch
    text = f"""
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        read(3)
        return torch.zeros(1)
if __name__ == "__main__":
    for _ in torch.utils.data.DataLoader(
        Rows(), batch_size=4, num_workers={workers}, multiprocessing_context={method!r}
    ):
        pass
"""
    done = whole(recorded, sys.executable, script(tmp_path, data, text))
    assert done.exit_status == 0
    assert reads_of(done, data) == (120, 120 * NBYTES)


def test_logs_with_commands_in_clear_are_of_their_owner(
    recorded: Recorder, tmp_path: Path, data: Path
) -> None:
    job = script(tmp_path, data, "read(3)")
    done = whole(recorded, sys.executable, job, "--password", "Zq7vB2kzW9pLm4Xt8RcY1nHs")
    logs = [path for path in done.folder.rglob("*") if path.is_file()]
    clear = [path for path in logs if b"Zq7vB2kzW9pLm4Xt8RcY1nHs" in unpacked(path)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in clear)
    assert done.folder / "run.json" not in clear


def unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


@pytest.mark.mpi
@pytest.mark.usefixtures("looks")
def test_ranks_of_mpiexec(recorded: Recorder, tmp_path: Path, data: Path) -> None:
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mpiexec is None:
        pytest.skip("no mpiexec")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    text = "from mpi4py import MPI\nread(10 + MPI.COMM_WORLD.rank)\nMPI.COMM_WORLD.Barrier()\n"
    job = script(tmp_path, data, text + "looked_at()")
    done = whole(recorded, mpiexec, "-n", "2", sys.executable, job)
    run = run_of(done, data)
    assert (run.summary.reads, run.summary.bytes_read) == (21, 21 * NBYTES)
    assert done.run.ranks == 2
    assert [run.trace.processes[i].rank for i in run.trace.ranks] == [0, 1]
    assert run.balance is not None


@pytest.mark.usefixtures("looks")
def test_ranks_of_torchrun(recorded: Recorder, tmp_path: Path, data: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    text = 'read(10 + int(os.environ["RANK"]))\nlooked_at()\n'
    job = script(tmp_path, data, text)
    done = whole(
        recorded, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
        "--standalone", job,
    )  # fmt: skip
    run = run_of(done, data)
    assert (run.summary.reads, run.summary.bytes_read) == (21, 21 * NBYTES)
    assert [run.trace.processes[i].rank for i in run.trace.ranks] == [0, 1]


def test_a_shell_between_is_no_rank(with_dftracer: Recorder, tmp_path: Path, data: Path) -> None:
    job = script(tmp_path, data, "read()")
    done = with_dftracer("sh", "-c", f"{sys.executable} {job}; cat {data} > /dev/null")
    run = run_of(done, data)
    assert run.summary.reads is not None
    assert run.summary.reads > READS
    trainers = [p.command for p in run.trace.processes if p.role == "trainer"]
    assert not any(command.startswith("sh ") for command in trainers)


def test_dftracer_keeps_what_a_killed_process_had_flushed(
    with_dftracer: Recorder, tmp_path: Path, data: Path
) -> None:
    text = "import signal\nread(300)\nos.kill(os.getpid(), signal.SIGKILL)"
    done = with_dftracer(sys.executable, script(tmp_path, data, text))
    assert done.exit_status == 137
    reads, nbytes = reads_of(done, data)
    lost = 4096 // 150 + 1  # a read takes more than 150 bytes of trace
    assert reads is not None
    assert 300 - lost <= reads <= 300
    assert nbytes == reads * NBYTES
    coverage = run_of(done, data).coverage
    assert not coverage.complete
    assert {"processes_unfinished", "damaged"} <= {w.code for w in coverage.warnings}
    assert [p.state for p in done.run.processes] == ["unfinished"]


def test_a_program_that_starts_and_ends_dftracer_itself_is_traced_to_its_end(
    with_dftracer: Recorder, tmp_path: Path, data: Path
) -> None:
    own = str(tmp_path / "own")
    text = f"""
import dftracer.dftracer as tracer  # what dftracer.python calls, which takes seconds to import
tracer.initialize(log_file={own!r}, data_dirs="all", process_id=0)
read()
tracer.finalize()
os.listdir(os.sep)  # the next call: a tracer that was ended had no buffer for it
read()
"""
    done = with_dftracer(sys.executable, script(tmp_path, data, text))
    assert done.exit_status == 0
    assert reads_of(done, data) == (2 * READS, 2 * READS * NBYTES)
    assert not list(tmp_path.glob("*.pfw*"))


@pytest.mark.usefixtures("looks")
def test_darshan_keeps_the_processes_that_had_ended(
    with_darshan: Recorder, tmp_path: Path, data: Path
) -> None:
    text = """
import signal
child = os.fork()
if not child:
    read(50)
    sys.exit()
os.waitpid(child, 0)
read()
looked_at()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = with_darshan(sys.executable, script(tmp_path, data, text))
    assert done.exit_status == 137
    assert reads_of(done, data) == (50, 50 * NBYTES)
    states = {p.pid: p.state for p in done.run.processes}
    assert states[done.run.processes[0].pid] == "missing"
    warnings = run_of(done, data).coverage.warnings
    assert any(w.code == "processes_missing" for w in warnings)


def test_a_run_of_which_nothing_was_recorded_says_why(
    with_darshan: Recorder, tmp_path: Path, data: Path
) -> None:
    text = "import signal\nread()\nos.kill(os.getpid(), signal.SIGKILL)"
    done = with_darshan(sys.executable, script(tmp_path, data, text))
    with pytest.raises(vanidl.InputError, match="1 of at least 1 processes left no log"):
        vanidl.open_run(done.folder)


def test_imports_do_not_use_up_the_records(
    with_darshan: Recorder, tmp_path: Path, data: Path
) -> None:
    library = tmp_path / "lib" / "python3" / "site-packages"
    library.mkdir(parents=True)
    text = f"""
for i in range(1500):
    path = {str(library)!r} + f"/module{{i}}.py"
    with open(path, "w") as file:
        file.write("pass")
    with open(path) as file:
        file.read()
read()
"""
    done = with_darshan(sys.executable, script(tmp_path, data, text))
    assert reads_of(done, data) == (READS, READS * NBYTES)
    run = run_of(done, data)
    codes = {w.code for w in run.coverage.warnings}
    assert not codes & {"records_exhausted", "partial", "truncated"}
    assert any(w.code == "recording" and "leave out" in w.message for w in run.coverage.warnings)


def test_many_operations_of_many_files_are_all_traced(
    with_darshan: Recorder, tmp_path: Path, data: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    text = f"""
for i in range(3000):
    fd = os.open({str(folder)!r} + f"/{{i}}.dat", os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, b"x" * 10, 0)
    os.close(fd)
read(30_000)
"""
    done = with_darshan(sys.executable, script(tmp_path, data, text))
    run = vanidl.open_run(done.folder)
    written = run.select(vanidl.Selection(include=(f"{folder}/*",))).summary
    assert (written.writes, written.bytes_written) == (3000, 30_000)
    assert reads_of(done, data) == (30_000, 30_000 * NBYTES)
    assert run.coverage.complete


def test_a_program_can_put_its_profiles_into_the_run(
    recorded: Recorder, tmp_path: Path, data: Path
) -> None:
    text = 'open(os.environ["VANIDL_RUN"] + "/note.txt", "w").write("here")'
    done = recorded(sys.executable, script(tmp_path, data, text))
    assert (done.folder / "note.txt").read_text() == "here"


def test_the_record_says_what_was_run(recorded: Recorder, tmp_path: Path, data: Path) -> None:
    job = script(tmp_path, data, "read()")
    done = recorded(sys.executable, job)
    back = read_record(done.folder / "run.json")
    assert back == done.run
    assert back.command == (sys.executable, str(job))
    assert back.host == os.uname().nodename
    assert back.ranks is None
    assert back.start_ns < back.end_ns
    assert back.tracer_version
    assert any(point == "/" for point, _ in back.mounts)
    assert back.tracer_call_ns is not None
    assert run_of(done, data).trace.tracer_call_ns == back.tracer_call_ns


def test_a_call_is_timed_apart_from_the_run_and_nothing_stays_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    library = tmp_path / "slow.so"
    source = "#include <time.h>\n#include <sys/types.h>\n#include <dlfcn.h>\n" + (
        "ssize_t pread64(int f, void *b, size_t n, off_t o) {"
        " struct timespec t = {0, 20000}; nanosleep(&t, 0);"
        ' ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");'
        " return real(f, b, n, o); }\n"
    )
    subprocess.run(
        ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-xc", "-", "-o", library, "-ldl"],
        input=source.encode(), check=True,
    )  # fmt: skip
    slow = Tracer("slow", "", {"LD_PRELOAD": str(library)}, lambda pids: {})
    took_ns = time_call_ns(Tracing("slow", lambda _: True, lambda *_: slow))
    assert took_ns is not None
    assert took_ns >= 10_000  # each call slept for 20,000
    assert list(tmp_path.iterdir()) == [library]


def test_a_tracer_that_cannot_be_tried_is_not_timed() -> None:
    def refuse(*_: object) -> Tracer:
        raise InputError("expected a library, found none; give one")

    assert time_call_ns(Tracing("lost", lambda _: True, refuse)) is None
    broken = Tracer("broken", "", {"PATH": None}, lambda pids: {})
    code = Tracing("broken", lambda _: True, lambda *_: broken)
    with unittest.mock.patch.object(recording, "_READS", "raise SystemExit(3)"):
        assert time_call_ns(code) is None


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="expected a new or empty folder"):
        record([sys.executable, "-c", ""], tmp_path)


def test_no_command_and_unknown_tracers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a command"):
        record([], tmp_path / "r")
    with pytest.raises(UsageError, match="expected one of auto"):
        record(["true"], tmp_path / "r", tracer="strace")
    with pytest.raises(UsageError, match="makes no sense"):
        record(["true"], tmp_path / "s", tracer="dftracer", darshan_lib="libdarshan.so")


def test_a_command_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    run = tmp_path / "RUN"
    for _ in range(2):  # the name is free again
        with pytest.raises(CommandError, match="expected a program to run"):
            record(["no-such-program-here"], run)
        assert not run.exists()
