"""What a loop waits for, by its account of time, against the log of the mount that it reads from.

    python -m benchmarks.truth.states [--tracer none vanidl dftracer] [--only WAY...]

Each way to read runs in a process of its own that marks its waits (`vanidl.wait`), on files of a
mount that serves every request late, with the page cache on and emptied between the waits. The
truth of storage is the kernel's own log of the calls and page faults of its threads, where that may
be had (`kernel_log`); a call takes at most what a short one took beyond what the kernel saw.
Elsewhere it is what the program measures around each wait, as these block on nothing else: at least
wall time less all CPU and all time in the run queue, of the threads of the library as well (zarr
decodes in one), and at most wall time less the CPU of its thread outside of the kernel. Beside it
stands how long the mount was at requests meanwhile, in union: the way to it and back is not in
that, and long on a busy machine. Controls wait for something else, with one cached read in each
wait: their storage must leave that out, and what they wait for must be named. The exit status is 1
where a cell does not hold the truth by more than 3 % of the waits, or a control is not named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import vanidl
from benchmarks.truth.kernel_log import bound_storage, can_log, log_kernel, read_threads
from benchmarks.truth.ways import PRELUDE, READS
from vanidl.model import intervals
from vanidl.record import record

LATENCY_MS, METADATA_MS, SECONDS = 25, 8, 6.0
CLOSE = 0.03  # of the waits
SHORT_CALLS = 300
LEFT_OUT = ("stdio: getline, fgets, getc", "sendfile, copy_file_range", "readinto with O_DIRECT")
STATS = "4 stats"
CONTROLS = {
    "a lock between threads": (
        "lock.acquire(); threading.Timer(0.02, lock.release).start()\nwith lock: pass",
        "lock = threading.Lock()", "lock"),
    "sleep in a transform": ("time.sleep(0.02)", "", "sleep"),
    "a socket": (
        "threading.Timer(0.02, there.send, (b'x',)).start(); here.recv(1)",
        "import socket; here, there = socket.socketpair()", "network"),
    "a child process": ("subprocess.run(['sleep', '0.02'])", "import subprocess", "child"),
    "the interpreter's lock": (
        "for _ in range(4): time.sleep(0)",
        "def spin():\n    while True: sum(range(1000))\n"
        "sys.setswitchinterval(0.02)\n"
        "for _ in range(2): threading.Thread(target=spin, daemon=True).start()", "lock"),
    "a pipe from a child": (
        "child.stdin.write(b'x\\n'); child.stdin.flush(); child.stdout.readline()",
        "import subprocess; child = subprocess.Popen(['sh', '-c', 'while read x; do sleep 0.02; "
        "echo; done'], stdin=-1, stdout=-1)", "child"),
}  # fmt: skip
PROGRAM = """
import json, resource, time, vanidl
def act():
{act}
def forget():
    for folder, _, names in os.walk("."):
        for name in names:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
def queued(thread):
    try:
        with open(f"/proc/self/task/{{thread}}/schedstat") as file:
            return int(file.read().split()[1])
    except OSError:  # it has ended
        return 0
def account():
    of_all = sum(queued(thread) for thread in os.listdir("/proc/self/task"))
    in_calls = int(1e9 * resource.getrusage(resource.RUSAGE_THREAD).ru_stime)
    return time.thread_time_ns() - in_calls, of_all + time.process_time_ns()
act()
short_calls, _ = [], open({said!r}, "w").close()
for _ in range({calls}):
    time.sleep(0.002)
    started = time.monotonic_ns()
    os.stat({said!r})
    short_calls.append((started, time.monotonic_ns()))
waits = []
while sum(end - begin for begin, end, *_ in waits) < {seconds} * 1e9:
    if {cold}: forget()
    before = account()
    begin, start = time.time_ns(), time.monotonic_ns()
    with vanidl.wait("load"):
        act()
    stop, end = time.monotonic_ns(), time.time_ns()
    most, least = (end - begin - (now - then) for now, then in zip(account(), before))
    waits.append((begin, end, most, max(min(least, most), 0), start, stop))
    with vanidl.step():
        time.sleep(0.001)
json.dump([os.getpid(), short_calls, waits], open({said!r}, "w"))
os._exit(0) if {at_once} else None
"""


@contextmanager
def mounted(source: Path, target: Path, log: Path) -> Iterator[None]:
    """The files of a folder, served late."""
    target.mkdir()
    words = ["mount", source, target, "--latency-ms", LATENCY_MS, "--metadata-ms", METADATA_MS]
    words += ["--page-cache", "--log", log]
    command = [sys.executable, "-m", "vanidl_loaders", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as mount:
        if mount.stderr is None or "mounted" not in mount.stderr.readline():
            raise SystemExit("the mount could not be made: FUSE is needed")
        try:
            yield
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(target)], check=False)
            mount.terminate()
            mount.wait()


@dataclass(frozen=True)
class Told:
    """What a program says of itself.

    A row of `waits` is begin and end, the most and the least of storage by its own count, then
    begin and end on CLOCK_MONOTONIC: ns. `short_calls` are begin and end of calls that wait for
    nothing, each after a nap: caches are then as cold as after a wait.
    """

    process: int
    short_calls: np.ndarray
    waits: np.ndarray

    @property
    def waited_s(self) -> float:
        """Seconds of all waits."""
        return float((self.waits[:, 1] - self.waits[:, 0]).sum()) / 1e9


def run(folder: Path, script: str, work: Path, tracer: str) -> tuple[vanidl.Run, Told]:
    """The recorded run, and what its program says of itself."""
    program = folder / "program.py"
    program.write_text(script)
    before = Path.cwd()
    os.chdir(work)
    try:
        done = record([sys.executable, str(program)], folder / f"RUN-{tracer}", tracer=tracer)
    finally:
        os.chdir(before)
    if done.exit_status:
        raise SystemExit(f"{program} failed under {tracer}")
    process, short_calls, waits = json.loads((folder / "said").read_text())
    return vanidl.open_run(done.folder), Told(process, np.array(short_calls), np.array(waits))


def served_within(log: Path, waits: np.ndarray) -> float:
    """Seconds within waits in which the mount was at a request."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    start, end = (
        np.array([row[name] for row in rows], np.int64) for name in ("start_ns", "end_ns")
    )
    union = intervals.union(start, end)
    covered = intervals.covered_within(union, waits[:, 0].copy(), waits[:, 1].copy())
    return float(covered.sum()) / 1e9


def make_program(folder: Path, act: str, imports: str, *, cold: bool) -> str:
    """A loop that waits for `act`; with the page cache emptied before each wait where `cold`.

    What is not cold are controls, whose threads and children may outlive them: they end at once.
    """
    body = "".join(f"    {line}\n" for line in act.split("\n"))
    return f"{PRELUDE}{imports}\n" + PROGRAM.format(
        act=body,
        seconds=SECONDS,
        said=str(folder / "said"),
        calls=SHORT_CALLS,
        cold=cold,
        at_once=not cold,
    )


def try_way(name: str, tracer: str) -> tuple[float, float, float, float, float, float]:
    """Low and high of storage, the least and most of its truth, what was served, waits: seconds."""
    way = READS.get(name)
    act = way.act if way else "for k in range(4): os.path.exists('a%d' % k)"
    with tempfile.TemporaryDirectory(prefix="states-") as made:
        folder = Path(made)
        source, work, log = folder / "source", folder / "work", folder / "log"
        source.mkdir()
        make = f"{PRELUDE}{way.imports if way else ''}\n{way.make if way else ''}\n"
        subprocess.run([sys.executable, "-c", make], cwd=source, check=True, capture_output=True)
        script = make_program(folder, act, way.imports if way else "", cold=True)
        kernel = folder / "kernel"
        with mounted(source, work, log):
            with log_kernel(kernel) if can_log() else nullcontext():
                recorded, told = run(folder, script, work, tracer)
            low, high = recorded.breakdown.cell("mean/input_wait/storage").range_s
        if kernel.exists():
            least, most = bound_by_kernel(kernel, told)
        else:
            most, least = (float(told.waits[:, column].sum()) / 1e9 for column in (2, 3))
        return low, high, least, most, served_within(log, told.waits), told.waited_s


def bound_by_kernel(log: Path, told: Told) -> tuple[float, float]:
    """Seconds of the waits in calls on files by the kernel's log, at least and at most.

    What a call takes outside of the kernel, its tracer's part with it, is what short calls
    took by the program's clock beyond what the kernel saw.
    """
    threads = read_threads(log, told.process)
    seen_s = bound_storage(threads, told.process, told.short_calls, 0)[0]
    took_ns = float((told.short_calls[:, 1] - told.short_calls[:, 0]).sum())
    call_ns = (took_ns - 1e9 * seen_s) / SHORT_CALLS
    return bound_storage(threads, told.process, told.waits[:, 4:], call_ns)


def try_control(name: str, tracer: str) -> tuple[float, float, float, float]:
    """Low and high of storage, the least of what it waits for, and the waits, seconds."""
    act, imports, part = CONTROLS[name]
    with tempfile.TemporaryDirectory(prefix="states-") as made:
        folder = Path(made)
        (folder / "cached").write_bytes(bytes(100_000))
        act = f"open('cached', 'rb').read()\n{act}"
        script = make_program(folder, act, f"import time\n{imports}", cold=False)
        recorded, told = run(folder, script, folder, tracer)
        low, high = recorded.breakdown.cell("mean/input_wait/storage").range_s
        named = recorded.breakdown.cell(f"mean/input_wait/blocked.{part}").range_s[0]
        return low, high, named, told.waited_s


def main() -> int:
    """A line a way and tracer, then one a control and tracer."""
    parser = argparse.ArgumentParser(description=__doc__)
    tracers = ["none", "vanidl", *(["dftracer"] if find_spec("dftracer") else [])]
    parser.add_argument("--tracer", nargs="*", default=tracers)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    wrong = held = tried = 0
    ways = [STATS, *(n for n in READS if n not in LEFT_OUT)]
    heads = ("low", "high", "truth", "at most", "served", "waits")
    print(f"{'':28} {'tracer':9} {' '.join(f'{each:>7}' for each in heads)} {'off':>8}")
    for name in ways:
        if (options.only and name not in options.only) or (name in READS and READS[name].missing()):
            continue
        for tracer in options.tracer:
            low, high, least, most, served, waited = try_way(name, tracer)
            off = max(low - most, least - high, 0.0) / waited
            held += off == 0
            tried += 1
            wrong += off > CLOSE
            times = " ".join(f"{each:7.3f}" for each in (low, high, least, most, served, waited))
            print(f"{name:28} {tracer:9} {times} {off:8.3%}", flush=True)
    print(f"{held} of {tried} hold the truth")
    print(f"{'control':28} {'tracer':9} {'low':>7} {'high':>7} {'named':>7} {'waits':>7}")
    for name in CONTROLS:
        if options.only and name not in options.only:
            continue
        for tracer in options.tracer:
            low, high, named, waited = try_control(name, tracer)
            excluded = high < 0.5 * waited and named > 0.5 * waited
            wrong += not excluded
            times = " ".join(f"{each:7.2f}" for each in (low, high, named, waited))
            print(f"{name:28} {tracer:9} {times} {'' if excluded else 'NOT NAMED'}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
