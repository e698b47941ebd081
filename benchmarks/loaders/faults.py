"""How each rank ends when something breaks: exit status, seconds until all have ended, lines.

    python -m benchmarks.loaders.faults [--only NAME ...] [--launchers torchrun mpiexec]

Two ranks train from the emulated file system (20 MB/s), and the fault strikes in mid-epoch, once a
third of the samples was read; seconds count from there. What is refused before anything is read
counts from the start of the command, with the imports. A status below 0 is the signal that ended
the rank; "killed" is a rank that its launcher killed. `said` is when the last rank had spoken,
`lines` are those of each rank on stderr.

Storage that stops answers again after 40 s: Linux lets no process end while a server of FUSE that
has its request does not answer, SIGKILL or not.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage
from vanidl_loaders.workloads.making import make

RANKS, SAMPLES, WITHIN_S, STOPPED_S = 2, 96, 150, 40
LIMITS = ["--read-timeout-s", "4", "--exchange-timeout-s", "10"]


@dataclass(frozen=True)
class Job:
    """A training that runs.

    Attributes:
        folder: Where its ranks note what became of them.
        storage: What it reads from.
    """

    folder: Path
    storage: EmulatedStorage

    def rank(self, number: int) -> int:
        """The process of a rank."""
        return int((self.folder / f"rank{number}.pid").read_text())

    @property
    def server(self) -> int:
        """The process of the storage."""
        return self.storage.server_pid


Strike = Callable[[Job], None]


@dataclass(frozen=True)
class Fault:
    """What breaks, and under which loaders.

    Attributes:
        name: In the table.
        loaders: That it is tried with.
        strike: Done in mid-epoch; None: it is there from the start.
        damage: Done to the data before the start.
        options: Of the command.
        samples: Of the data.
        ranks: Of the job.
    """

    name: str
    loaders: Sequence[str] = ("baseline", "scheduled", "pls")
    strike: Strike | None = None
    damage: Callable[[Path], None] = lambda _data: None
    options: Sequence[str] = ()
    samples: int = SAMPLES
    ranks: int = RANKS


def kill_rank(job: Job) -> None:
    """SIGKILL to rank 1."""
    os.kill(job.rank(1), signal.SIGKILL)


def stop_storage(job: Job) -> None:
    """Its server answers no more."""
    os.kill(job.server, signal.SIGSTOP)


def end_storage(job: Job) -> None:
    """The mount loses its server, as when it is unmounted by force."""
    os.kill(job.server, signal.SIGKILL)


def break_storage(job: Job) -> None:
    """Every read ends with EIO."""
    job.storage.fail_reads(errno.EIO)


def interrupt_launcher(job: Job) -> None:
    """SIGINT to the launcher alone, as a batch system or `kill -INT` sends it."""
    os.kill(int((job.folder / "launcher.pid").read_text()), signal.SIGINT)


def interrupt(job: Job) -> None:
    """Ctrl-C to the launcher's process group."""
    os.killpg(int((job.folder / "launcher.pid").read_text()), signal.SIGINT)


def truncate(data: Path) -> None:
    """Files of half their length."""
    for path in data.glob("*.h5"):
        os.truncate(path, path.stat().st_size // 2)


def damage_plan(data: Path) -> None:
    """A saved plan that is none."""
    (data / "plan.npz").write_bytes(b"PK\x03\x04 not a plan")


def encode(data: Path) -> None:
    """Containers, each cut."""
    line = [sys.executable, "-m", "vanidl_loaders", "encode", str(data), str(data / "encoded")]
    subprocess.run(line, check=True, capture_output=True)
    for path in (data / "encoded").rglob("*.vdl"):
        os.truncate(path, path.stat().st_size // 2)


def empty(data: Path) -> None:
    """A folder with nothing in it."""
    for path in data.iterdir():
        path.unlink()


_ONE = ("scheduled",)
FAULTS = (
    Fault("kill -9 of rank 1", strike=kill_rank),
    Fault("Ctrl-C", strike=interrupt),
    Fault("SIGINT to the launcher", strike=interrupt_launcher),
    Fault("EIO from the storage", strike=break_storage),
    Fault("storage stops answering", strike=stop_storage),
    Fault("storage unmounted by force", strike=end_storage),
    Fault("truncated file", damage=truncate),
    Fault("full --local-folder", ("pls",), options=["--local-folder", "{full}"]),
    Fault("3 ranks, 97 samples", _ONE, samples=97, ranks=3, options=["--epochs", "2"]),
    Fault("batch above the samples", _ONE, samples=8, options=["--batch", "64", "--epochs", "2"]),
    Fault("the same with --drop-last", _ONE, samples=8, options=["--batch", "64", "--drop-last"]),
    Fault("1 sample for 2 ranks", _ONE, samples=1, options=["--epochs", "2"]),
    Fault("empty folder", _ONE, damage=empty),
    Fault("buffer above memory", ("scheduled",), options=["--buffer", "90", "--staging-bytes",
                                                          "1000000000000000"]),
    Fault("a value of the wrong type", _ONE, options=["--seed", "one"]),
    Fault("damaged plan", ("scheduled",), damage=damage_plan,
          options=["--plan", "{data}/plan.npz"]),
    Fault("damaged containers", ("decoded",), damage=encode),
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        launcher: Exit status of it; None: it hung.
        ranks: Exit status of each rank; None: its launcher killed it.
        seconds: From the fault till launcher and ranks were gone.
        spoke_s: From the fault till the last rank had said its last line; None: no rank said any.
        said: What each rank said last, and how many lines.
    """

    launcher: int | None
    ranks: list[int | None]
    seconds: float
    spoke_s: float | None
    said: list[tuple[int, str]]


def main() -> None:
    """Prints a Markdown table; exit status 1 where something hung."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", default=[], help="words of names")
    parser.add_argument("--launchers", nargs="+", default=["torchrun", "mpiexec"])
    options = parser.parse_args()
    print(
        "| fault | launcher | loader | launcher's status | ranks' | s | said | lines | the last |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    hung = False
    for fault in FAULTS:
        if options.only and not any(word in fault.name for word in options.only):
            continue
        for loader in fault.loaders:
            for launcher in options.launchers:
                ended = run(fault, loader, launcher)
                print(row(fault, loader, launcher, ended), flush=True)
                hung |= ended.launcher is None
    sys.exit(hung)


def row(fault: Fault, loader: str, launcher: str, ended: Ended) -> str:
    """A line of the table."""
    statuses = ", ".join("killed" if each is None else str(each) for each in ended.ranks)
    lines = ", ".join(str(count) for count, _ in ended.said)
    said = next((text for _, text in ended.said if text), "")
    status = "hung" if ended.launcher is None else ended.launcher
    spoke = "-" if ended.spoke_s is None else f"{ended.spoke_s:.1f}"
    return (
        f"| {fault.name} | {launcher} | {loader} | {status} | {statuses} | {ended.seconds:.1f} | "
        f"{spoke} | {lines} | {said[:160]} |"
    )


def run(fault: Fault, loader: str, launcher: str) -> Ended:
    """Trains until the fault ends it, or it is through."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data, folder, full = work / "data", work / "ranks", work / "full"
        make("ptycho", data, samples=fault.samples)
        fault.damage(data)
        folder.mkdir()
        full.mkdir()
        if any("{full}" in option for option in fault.options):
            mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(full)]
            subprocess.run(mount, check=True)
            stack.callback(subprocess.run, ["umount", "-l", str(full)], check=False)
        cost = Cost(0.002, float("inf"), 20e6)
        storage = EmulatedStorage(data, work / "mount", cost=cost, log=work / "log")
        job = Job(folder, stack.enter_context(storage))
        places = {"{data}": str(storage.target), "{full}": str(full)}
        return ended(job, fault, started(job, fault, loader, launcher, places))


def started(
    job: Job, fault: Fault, loader: str, launcher: str, places: dict[str, str]
) -> subprocess.Popen[bytes]:
    """The launcher with its ranks."""
    beside = Path(sys.executable).parent
    launch = {
        "torchrun": [str(beside / "torchrun"), "--nproc-per-node", str(fault.ranks), "-m"],
        "mpiexec": [str(beside / "mpiexec"), "-n", str(fault.ranks), sys.executable, "-m"],
    }[launcher]
    train = [sys.executable, "-m", "vanidl_loaders", "train", "--data", "{data}", "--threads", "1"]
    train += ["--epochs", "5000", "--batch", "4", "--loader", loader, *LIMITS, *fault.options]
    command = train
    for name, place in places.items():
        command = [part.replace(name, place) for part in command]
    program = ["benchmarks.programs.fault_rank", str(job.folder)]
    with (job.folder / "launcher.err").open("wb") as said:
        process = subprocess.Popen(
            [*launch, *program, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said,
            start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    (job.folder / "launcher.pid").write_text(str(process.pid))
    return process


def ended(job: Job, fault: Fault, process: subprocess.Popen[bytes]) -> Ended:
    """Strikes, waits for the end, and reads what the ranks noted."""
    begin = time.time()
    if fault.strike is not None:
        wait_for_reads(job, process)
        begin = time.time()
        fault.strike(job)
    status = waited(process, STOPPED_S if fault.strike is stop_storage else WITHIN_S)
    with suppress(ProcessLookupError):
        os.kill(job.server, signal.SIGCONT)
    status = waited(process, WITHIN_S) if status is None else status
    gone = time.time()
    if status is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    found: list[int | None] = []
    for rank in range(fault.ranks):
        path = job.folder / f"rank{rank}.json"
        found.append(json.loads(path.read_text())["status"] if path.exists() else None)
    spoke = [p.stat().st_mtime - begin for p in job.folder.glob("rank*.err") if p.stat().st_size]
    said = [spoken(job, rank) for rank in range(fault.ranks)]
    return Ended(status, found, gone - begin, max(spoke, default=None), said)


def waited(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    """Its exit status; None: it has not ended."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(within_s)
    return None


def wait_for_reads(job: Job, process: subprocess.Popen[bytes]) -> None:
    """Until the ranks read a third of the samples."""
    log, most = job.storage.log, time.time() + WITHIN_S
    assert log is not None
    wanted = sum(path.stat().st_size for path in job.storage.target.glob("*.h5")) // 3
    while process.poll() is None and time.time() < most:
        rows = [json.loads(line) for line in log.read_text().splitlines(keepends=True)[:-1]]
        if sum(each["size"] for each in rows) > wanted:
            return
        time.sleep(0.1)


def spoken(job: Job, rank: int) -> tuple[int, str]:
    """How many lines a rank said, and the last."""
    path = job.folder / f"rank{rank}.err"
    lines = path.read_text().splitlines() if path.exists() else []
    return len(lines), lines[-1] if lines else ""


if __name__ == "__main__":
    main()
