"""Does a tracer change a program? Each program alone and under each tracer, everything compared.

Exit status, stdout (descriptors' numbers and errno among it), stderr, and the contents of all files
that it leaves. A program that differs from itself when it runs alone twice is not counted.

    python -m benchmarks.truth.harm [--tracer vanidl recorded sampled dftracer darshan]
                                    [--darshan-lib PATH]

`vanidl` is our tracer's library alone, `recorded` all of `vanidl record` (the tracer, the hooks in
Python, states and memory looked at from outside), `sampled` the same with `--tracer none`; what the
recorder itself says on stderr does not count.

The table holds the number of programs that each tracer changed, and which. `programs/harm.c` needs
a C compiler; chroot, setuid and the small file systems need root, and are left out without it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from vanidl.record import darshan, dftracer
from vanidl.record import tracer as own

HERE = Path(__file__).parent
BASE = Path(tempfile.gettempdir()) / "vanidl-harm"
LIMIT_S = 60
_OWN = ("filler", "darshan.conf")
RECORDED = {"recorded": "vanidl", "sampled": "none"}  # `vanidl record` with this tracer
_SAID = re.compile(rb"^vanidl: .*\n", re.MULTILINE)

C_PROGRAMS = (
    "failing calls", "errno kept", "stream errors", "numbers", "close all", "close_range",
    "dup2 over all", "passed descriptor", "pipes, memfd, popen", "fork", "fork among threads",
    "vfork", "clone", "posix_spawn", "exec", "daemon", "random signals", "small signal stack",
    "signal masks", "cancelled threads", "many reads", "removed folder", "RLIMIT_NOFILE",
    "RLIMIT_FSIZE", "RLIMIT_AS", "512 threads", "short threads", "mapped file", "streams",
    "wide streams", "folders", "copies", "long names", "seccomp strict", "seccomp filter",
)  # fmt: skip
OF_ROOT = ("chroot", "setuid")
SIGNALS = {"SIGTERM": "15", "SIGSEGV": "11", "SIGPIPE": "13", "SIGABRT": "6"}

PYTHON = {
    "closerange, then write": """
import os
fd = os.open("log.txt", os.O_CREAT | os.O_WRONLY); os.closerange(3, 4096)
f = open("checkpoint.bin", "wb")
for i in range(2000):
    f.write(b"%06d" % i * 30); os.stat(".")
    try: os.open("nothing", os.O_RDONLY)
    except FileNotFoundError: pass
f.close(); print(f.closed)
""",
    "subprocesses": """
import subprocess, sys
print(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True))
print(subprocess.check_output(["cat"], input=b"text"))
print(subprocess.run([sys.executable, "-I", "-c", "import os; print(os.path.exists('nothing'))"],
                     capture_output=True, close_fds=True, preexec_fn=lambda: None).stdout)
with open("log", "w") as f: subprocess.run(["sh", "-c", "for i in 1 2; do echo $i; done"], stdout=f)
print(open("log").read())
""",
    "multiprocessing": """
import multiprocessing, os
def work(i):
    with open(f"part{i}", "wb") as f: f.write(bytes([i]) * 1000)
    with open(f"part{i}", "rb") as f: return sum(f.read())
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(how).Pool(2) as pool: print(how, pool.map(work, range(6)))
""",
    "os._exit and statuses": """
import os, signal
for i in range(20):
    pid = os.fork()
    if not pid:
        open("a", "a").write("x"); os._exit(i)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ")
pid = os.fork()
if not pid: os.kill(os.getpid(), signal.SIGKILL)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
raise SystemExit(7)
""",
    "copies of trees": """
import os, shutil, hashlib
os.makedirs("t/a/b")
for i in range(50): open(f"t/a/b/{i}", "wb").write(os.path.basename(str(i)).encode() * 5000)
shutil.copytree("t", "u"); shutil.make_archive("packed", "gztar", "u"); os.unlink("packed.tar.gz")
shutil.move("u", "v"); print(sorted(os.listdir("v/a/b"))[:5]); shutil.rmtree("t")
os.symlink("v", "w"); print(os.path.realpath("w/a").endswith("v/a"), os.stat("w/a/b/7").st_size)
""",
    "SQLite": """
import sqlite3
c = sqlite3.connect("d.sqlite"); c.execute("pragma journal_mode=wal")
c.execute("create table t(a integer, b text)")
for i in range(200):
    c.execute("insert into t values(?, ?)", (i, "x" * i)); c.commit()
print(c.execute("select sum(a), sum(length(b)) from t").fetchone()); c.close()
""",
    "threads and asyncio": """
import asyncio, concurrent.futures, os
open("a", "wb").write(bytes(range(256)) * 400)
def read(i):
    with open("a", "rb") as f:
        f.seek(i * 100); return sum(f.read(1000))
with concurrent.futures.ThreadPoolExecutor(16) as pool: print(sum(pool.map(read, range(900))))
async def main():
    p = await asyncio.create_subprocess_exec("cat", "a", stdout=asyncio.subprocess.PIPE)
    return len((await p.communicate())[0]), await asyncio.to_thread(read, 3)
print(asyncio.run(main()))
""",
    "NumPy files": """
import numpy as np
a = np.arange(100000.0); np.save("a.npy", a); np.savez("a.npz", a=a, b=a[:10]); a.tofile("a.bin")
print(np.load("a.npy").sum(), np.load("a.npz")["b"].sum(), np.fromfile("a.bin").sum())
m = np.memmap("a.bin", mode="r+", dtype=float); m[:10] = 5; m.flush(); print(m.sum())
import os; os.unlink("a.npz")
""",
}
TORCH = """
import torch, torch.utils.data as d
class Rows(d.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        with open("rows", "rb") as f:
            f.seek(i * 100); return torch.tensor(list(f.read(100)))
if __name__ == "__main__":
    open("rows", "wb").write(bytes(i % 251 for i in range(6400)))
    for how in ("fork", "spawn"):
        loader = d.DataLoader(Rows(), 8, num_workers=2, multiprocessing_context=how)
        print(sum(int(b.sum()) for b in loader))
    torch.save({"a": torch.arange(1000)}, "c.pt"); print(torch.load("c.pt")["a"].sum())
"""
SHELL = {
    "pipes of a shell": "for i in 1 2 3; do echo $i; done > a; cat a | tr 1 x | wc; cat < a; "
    "(echo sub; exit 4); echo $?; cat nothing; exit 3",
    "tar and sort": "mkdir d; for i in 1 2 3 4; do seq $i 1000 > d/$i; done; tar cf - d | "
    "(mkdir e; cd e; tar xf -); cat e/d/* | sort -n | uniq -c | tail -2; "
    "dd if=d/1 of=f bs=7 count=100 2>&1 | head -2",
    "file size limit from outside": "ulimit -f 4; echo text > a; cat a; echo $?",
    "descriptor limit from outside": "ulimit -n 12; echo text > a; cat a; ls | wc -l",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One program and where it runs."""

    name: str
    command: tuple[str, ...]
    small_folder: bool = False  # it runs on a file system of 2 MB
    small_run: bool = False  # the tracer writes to one
    preload: str = ""  # a library beside the tracer's


@dataclass(frozen=True)
class Outcome:
    """What can be seen of a program."""

    status: int | str
    out: bytes
    error: bytes
    files: Mapping[str, str]
    traced: bool  # the tracer left something

    def differences(self, other: Outcome) -> list[str]:
        """In words."""
        found = [f"status {self.status} -> {other.status}"] if self.status != other.status else []
        found += ["stdout"] if self.out != other.out else []
        found += ["stderr"] if self.error != other.error else []
        changed = sorted(set(self.files.items()) ^ set(other.files.items()))
        return found + [f"files {sorted({name for name, _ in changed})[:3]}"] * bool(changed)


def cases(built: Path) -> list[Case]:
    """Every program that can run here."""
    root = os.geteuid() == 0
    harm = str(built / "harm")
    found = [Case(name, (harm, name)) for name in (*C_PROGRAMS, *(OF_ROOT if root else ()))]
    found += [Case(name, (harm, "signal", number)) for name, number in SIGNALS.items()]
    if root:
        found += [
            Case("full disk", (harm, "full disk"), small_folder=True),
            Case("RUN on a full disk", (harm, "many reads"), small_run=True),
            Case("RUN on a full disk, errors", (harm, "failing calls"), small_run=True),
        ]
    beside = str(built / "allocator.so")
    found += [Case(f"own allocator, {n}", (harm, n), preload=beside) for n in ("streams", "fork")]
    python = dict(PYTHON)
    if find_spec("torch"):
        python["PyTorch"] = TORCH
    for name, code in python.items():
        (built / f"{name}.py").write_text(code)
        found.append(Case(name, (sys.executable, str(built / f"{name}.py"))))
    return found + [Case(name, ("sh", "-c", line)) for name, line in SHELL.items()]


def environment(tracer: str, run: Path, library: str | None, case: Case) -> dict[str, str]:
    """The variables of a program under a tracer, or under none."""
    added: Mapping[str, str | None] = {}
    if tracer == "vanidl":
        added = own.make_tracer(run).environment
    elif tracer == "dftracer":
        added = dftracer.make_tracer(run).environment
    elif tracer == "darshan":
        added = darshan.make_tracer(run, library).environment
    merged = {k: v for k, v in {**os.environ, **added}.items() if v is not None}
    if case.preload:
        merged["LD_PRELOAD"] = ":".join(filter(None, (merged.get("LD_PRELOAD"), case.preload)))
    return {**merged, "OMP_NUM_THREADS": "1"}


def run_case(case: Case, tracer: str, library: str | None, base: Path = BASE) -> Outcome:
    """One program in a new folder `base`, its files read afterwards."""
    with tempfile.TemporaryDirectory(prefix="harm-") as made:
        # The folders of all runs have one name, so that what programs print of them is the same.
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir()
        folder, run = base / "work", Path(made) / "run"
        folder.mkdir()
        run.mkdir()
        small = [folder] * case.small_folder + [run] * case.small_run
        for place in small:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], check=True)
        try:
            variables = environment(tracer, run, library, case)
            if case.small_run:
                (run / "filler").write_bytes(bytes((2 << 20) - 65536))
            command = list(case.command)
            if kind := RECORDED.get(tracer):
                words = ["-m", "vanidl", "record", "--tracer", kind, "-o", str(run / "RUN"), "--"]
                command = [sys.executable, *words, *command]
            process = subprocess.Popen(
                command, cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            try:
                out, error = process.communicate(timeout=LIMIT_S)
                code = process.returncode  # of a signal as a shell and the recorder say it
                status: int | str = code if code >= 0 else 128 - code
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                out, error = process.communicate()
                status = "hangs"
            traced = any(
                p.is_file() and p.stat().st_size and p.name not in _OWN for p in run.rglob("*")
            )
            if tracer in RECORDED:
                error = _SAID.sub(b"", error)
            return Outcome(status, out, error, _contents(folder), traced)
        finally:
            for place in small:
                subprocess.run(["umount", "-l", place], check=True)


def _contents(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder"
    return found


def build(folder: Path) -> None:
    """Compiles the programs."""
    subprocess.run(
        ["cc", "-O1", "-o", str(folder / "harm"), str(HERE / "programs" / "harm.c"), "-pthread"],
        check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(
        ["cc", "-O1", "-w", "-shared", "-fPIC", "-fno-builtin", "-o", str(folder / "allocator.so"),
         str(HERE / "programs" / "allocator.c")], check=True,
    )  # fmt: skip


def compare(
    tracers: Sequence[str], library: str | None, only: Sequence[str], built: Path
) -> dict[str, dict[str, list[str]]]:
    """Differences by program and tracer."""
    table: dict[str, dict[str, list[str]]] = {}
    for case in cases(built):
        if only and case.name not in only:
            continue
        alone = run_case(replace(case, small_run=False), "none", library)
        if again := alone.differences(run_case(replace(case, small_run=False), "none", library)):
            print(f"{case.name}: differs from itself ({', '.join(again)}), left out")
            continue
        table[case.name] = {}
        said = []
        for tracer in tracers:
            outcome = run_case(case, tracer, library)
            found = table[case.name][tracer] = alone.differences(outcome)
            unseen = "" if outcome.traced else " (nothing recorded)"
            said.append(f"{tracer}: {', '.join(found) or 'same'}{unseen}")
        print(f"{case.name:32} {'; '.join(said)}", flush=True)
    return table


def main() -> int:
    """Prints a line a program, then the table; 1 where ours changed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracer", nargs="*", default=["vanidl"])
    parser.add_argument("--darshan-lib")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="harm-built-") as built:
        build(Path(built))
        table = compare(options.tracer, options.darshan_lib, options.only, Path(built))
    for tracer in options.tracer:
        changed = [name for name, found in table.items() if found[tracer]]
        print(f"{tracer}: {len(changed)} of {len(table)} programs differ: {', '.join(changed)}")
    ours = ("vanidl", *RECORDED)
    return int(any(found.get(name) for found in table.values() for name in ours))


if __name__ == "__main__":
    sys.exit(main())
