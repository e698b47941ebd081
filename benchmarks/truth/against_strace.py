# ruff: noqa: E501 - the programs below are lines of code
"""The tracer's record of a program beside strace's, of the same run.

    python -m benchmarks.truth.against_strace

Six programs run under both. Compared, thread by thread and in order: the call, the file, the bytes
that it returned and the offset where it lies (of read and write: counted from strace's own opens,
seeks and results). Left out: what ld.so and the recorder do, which is not on files of the program's
folder. Of programs that use stdio the system calls are libc's own, so there it is the bytes by file.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from tests.makers.recorded_calls import RecordedCalls, all_calls, library

CALLS = {
    "read": "read", "pread64": "pread", "readv": "readv", "preadv": "preadv", "preadv2": "preadv",
    "write": "write", "pwrite64": "pwrite", "writev": "writev", "pwritev": "pwritev",
    "pwritev2": "pwritev", "openat": "open", "open": "open", "fsync": "fsync",
    "fdatasync": "fdatasync", "ftruncate": "truncate",
}  # fmt: skip
POSITIONED = ("read", "readv", "write", "writev")
LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x\w+)(?:<([^>]*)>)?(?: (\w+) \(.*\))?$")
CUT = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>$")
REST = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)$")
DESCRIPTOR = re.compile(r"(\d+)<([^>]*)>")

ARRAYS = "import numpy as np, os\n"
PROGRAMS = {
    "calls of os": """
import os
fd = os.open('a', os.O_CREAT | os.O_RDWR)
for i in range(200): os.write(fd, bytes(i * 10))
os.lseek(fd, 100, 0)
for i in range(100): os.read(fd, i * 3)
os.pread(fd, 50, 1000); os.pwrite(fd, b'x' * 9, 77); b = bytearray(30)
os.readv(fd, [b, bytearray(5)]); os.preadv(fd, [b], 12); os.pwritev(fd, [b], 500)
copy = os.dup(fd); os.read(copy, 10); os.lseek(copy, -20, 2); os.read(fd, 100); os.read(fd, 1)
os.fsync(fd); os.fdatasync(fd); os.ftruncate(fd, 5000)
for name in ('none', 'a/b', 'a'):
    try: os.close(os.open(name, os.O_RDONLY))
    except OSError: pass
""",
    "threads": """
import os, threading
open('a', 'wb').write(bytes(1 << 20))
def work(k):
    fd = os.open('a', os.O_RDONLY)
    for i in range(300): os.pread(fd, 1 + (i * 37 + k) % 4000, i * 1000 + k)
    for i in range(50): os.read(fd, 10 + k)
    os.close(fd)
for t in (ts := [threading.Thread(target=work, args=(k,)) for k in range(8)]): t.start()
for t in ts: t.join()
""",
    "forked workers": """
import os, multiprocessing
for k in range(6): open(f'{k}', 'wb').write(bytes(1000 * (k + 1)))
def work(k):
    with open(f'{k}', 'rb', buffering=0) as f:
        f.seek(10); return len(f.read(500)) + len(f.readall())
with multiprocessing.get_context('fork').Pool(3) as pool: print(pool.map(work, range(6)))
""",
    "SQLite": """
import sqlite3
c = sqlite3.connect('d.sqlite'); c.execute('create table t(a integer, b text)')
for i in range(60): c.execute('insert into t values(?, ?)', (i, 'x' * i)); c.commit()
print(c.execute('select sum(a) from t').fetchone())
""",
    "HDF5": """
import h5py, numpy as np
with h5py.File('a.h5', 'w') as f: f.create_dataset('x', data=np.arange(100000.), chunks=(1000,))
with h5py.File('a.h5') as f: [f['x'][i : i + 700] for i in range(0, 90000, 3000)]
""",
    "cp, cat, tail, dd": "",
}
OF_PROCESSES = ("forked workers", "cp, cat, tail, dd")
SHELL = "dd if=/dev/zero of=a bs=999 count=99 2>/dev/null; cp a b; cat a > c; tail -c 300 a >/dev/null; dd if=a of=d bs=512 2>/dev/null"
STDIO = """
import ctypes
open('a', 'w').write('a line of text\\n' * 5000)
c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p; p = ctypes.c_void_p
f = p(c.fopen(b'a', b'r')); t = p(c.fopen(b'b', b'w')); b = ctypes.create_string_buffer(200)
while c.fgets(b, 200, f): c.fputs(b, t)
c.fclose(f); c.fclose(t)
"""

Row = tuple[str, str, int, int]  # call, file, offset, result


@dataclass
class Seen:
    """What strace said, and where descriptors stand by that."""

    folder: str
    forks: bool  # each thread is a process, with descriptors of its own
    rows: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))
    position: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # copies share one

    def holds(self, path: str) -> bool:
        """Whether it is of the folder of the program."""
        return path == self.folder or path.startswith(f"{self.folder}/")

    def add(self, thread: int, call: str, words: str, result: int, path: str, error: int) -> None:
        """One whole line."""
        process = thread if self.forks else 0
        if call in ("open", "openat"):
            named = re.search(r'"([^"]*)"', words)
            place = path or os.path.normpath(os.path.join(self.folder, named[1] if named else ""))  # noqa: PTH118
            if self.holds(place):
                self.rows[thread].append(("open", place, -1, result if result >= 0 else -error))
                self.position[process, result] = [0]
            return
        found = DESCRIPTOR.match(words)
        if not found or not self.holds(found[2]):
            return
        at = self.position.setdefault((process, int(found[1])), [0])
        if call == "lseek" and result >= 0:
            at[0] = result
        elif call.startswith("dup") or (call == "fcntl" and "F_DUPFD" in words):
            self.position[process, result] = at
        elif call in CALLS:
            offset = -1
            if call.startswith("p"):
                offset = int(words.split(", ")[-2 if call.endswith("v2") else -1])
            elif CALLS[call] in POSITIONED:
                offset, at[0] = at[0], at[0] + max(result, 0)
            self.rows[thread].append((CALLS[call], found[2], offset, result))


def lines_of(path: Path) -> Iterator[tuple[int, str, str, int, str, int]]:
    """Whole calls: those that strace cut in two are put together, where they returned."""
    begun: dict[tuple[int, str], str] = {}
    for line in path.read_text(errors="replace").splitlines():
        if cut := CUT.match(line):
            begun[int(cut[1]), cut[2]] = cut[3]
            continue
        if rest := REST.match(line):
            line = f"{rest[1]} {rest[2]}({begun.pop((int(rest[1]), rest[2]), '')}{rest[3]}"
        if whole := LINE.match(line):
            error = getattr(errno, whole[6], 0) if whole[6] else 0
            yield int(whole[1]), whole[2], whole[3], int(whole[4], 0), whole[5] or "", error


def run(command: Sequence[str], folder: Path, forks: bool) -> tuple[Seen, list[RecordedCalls]]:
    """A program under both, in a folder of its own."""
    work, calls, log = folder / "work", folder / "calls", folder / "strace.txt"
    work.mkdir()
    calls.mkdir()
    traced = ",".join((*CALLS, "lseek", "dup", "dup2", "dup3", "fcntl"))
    strace = ["strace", "-f", "-y", "-qq", "-s", "0", "-e", f"trace={traced}", "-o", str(log),
              "-E", f"LD_PRELOAD={library()}", "-E", f"VANIDL_TRACER={calls}"]  # fmt: skip
    subprocess.run([*strace, *command], cwd=work, check=True, capture_output=True)
    seen = Seen(str(work), forks)
    for line in lines_of(log):
        seen.add(*line)
    return seen, list(all_calls(calls))


def compare(seen: Seen, recorded: Sequence[RecordedCalls]) -> tuple[int, list[str]]:
    """How many calls were compared, and what differs."""
    ours: dict[int, list[Row]] = defaultdict(list)
    for process in recorded:
        for call in process.calls:
            if seen.holds(call.path) and call.name in CALLS.values():
                has_offset = call.name in POSITIONED or call.name.startswith("p")
                row = (call.name, call.path, call.offset if has_offset else -1, call.result)
                ours[call.thread].append(row)
    wrong = []
    for thread in set(seen.rows) | set(ours):
        theirs, mine = seen.rows.get(thread, []), ours[thread]
        if theirs != mine:
            pairs = enumerate(zip_longest(theirs, mine))
            k = next(i for i, (a, b) in pairs if a != b)
            wrong.append(f"thread {thread}, call {k}: {theirs[k : k + 1]} and {mine[k : k + 1]}")
    return sum(map(len, seen.rows.values())), wrong


def main() -> int:
    """A line a program; 1 where something differs."""
    failed = 0
    for name, code in PROGRAMS.items():
        with tempfile.TemporaryDirectory(prefix="strace-") as made:
            script = Path(made) / "program.py"
            script.write_text(code)
            command = ["sh", "-c", SHELL] if not code else [sys.executable, str(script)]
            seen, recorded = run(command, Path(made), forks=name in OF_PROCESSES)
            n, wrong = compare(seen, recorded)
            failed += bool(wrong)
            print(f"{name:20} {n:>6,} calls: {'equal' if not wrong else wrong[:3]}", flush=True)
    with tempfile.TemporaryDirectory(prefix="strace-") as made:
        script = Path(made) / "program.py"
        script.write_text(STDIO)
        _, recorded = run([sys.executable, str(script)], Path(made), forks=False)
        work = Path(made) / "work"
        read: Counter[str] = Counter()
        written: Counter[str] = Counter()
        for process in recorded:
            read += Counter(
                {Path(p).name: n for p, n in process.moved((3, 3)).items() if str(work) in p}
            )
            written += Counter(
                {Path(p).name: n for p, n in process.moved((4, 4)).items() if str(work) in p}
            )
        size = (work / "a").stat().st_size
        same = read == {"a": size} and written == {"b": size}
        failed += not same
        print(
            f"{'stdio, by bytes':20} {dict(read)} {dict(written)}: {'equal' if same else 'differ'}"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
