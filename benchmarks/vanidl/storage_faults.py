"""Faults of storage and rights: each is named in one line, nothing hangs, programs end as ever.

`vanidl_loaders`' emulated storage fails as it is told while it holds RUN, a program's data, or what
a command reads and writes; where this runs as root, commands are run without any right of root's
against folders of others, and with a /proc that shows only one's own processes; with btrfs-progs
user nobody has a home whose quota is used up, and a control group runs out of memory. The program
under test prints a digest of what it has read and ends with status 3; with a fault of its own data
it is run without the recorder first, on a mount that fails in the same way.

    python -m benchmarks.vanidl.storage_faults [WORD ...]     cases whose name has one of the words

Exit status 1 where a case takes longer than 10 s beyond what the program takes, has a traceback, no
line that names the fault, or another result of the program.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage

PROGRAM = ROOT / "benchmarks" / "programs" / "reading_loop.py"
LIMIT_S = 10.0
LONGEST_S = 60.0
STATUS = 3
_NOBODY = 65534
_POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
_VANIDL = [sys.executable, "-m", "vanidl"]
_QUOTA, _FULL, _BROKEN, _STALE, _DENIED, _READ_ONLY = (
    os.strerror(number)
    for number in (errno.EDQUOT, errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EACCES, errno.EROFS)
)

_SILENT = "expected storage that answers, found none at"
_MOVED = "the run could not be moved to"


@dataclass(frozen=True)
class Done:
    """How one command ended."""

    status: int | None  # None: it hung
    out: str
    err: str
    seconds: float


def run(words: Sequence[str]) -> Done:
    """Runs a command; one that hangs is killed."""
    begin = time.monotonic()
    # Not through pipes: what is left behind on storage that hangs would hold them open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        try:
            status: int | None = child.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            status = None
        seconds = time.monotonic() - begin
        out.seek(0)
        err.seek(0)
        return Done(status, out.read(), err.read(), seconds)


@dataclass(frozen=True)
class Place:
    """Folders of one case: data and a RUN that are sound, and room for a mount."""

    root: Path
    data: Path
    sound: Path  # a RUN


def program(data: Path, seconds: float = 2.0) -> list[str]:
    """The words of the program."""
    return [sys.executable, str(PROGRAM), str(data), str(seconds)]


def recorded(run_folder: Path, command: Sequence[str], *more: str) -> list[str]:
    """The words that record it."""
    return [*_VANIDL, "record", "--tracer", "none", *more, "-o", str(run_folder), "--", *command]


@contextmanager
def mounted(place: Place, source: Path, *faults: str) -> Iterator[Path]:
    """A folder on storage that fails so."""
    target = place.root / f"mount-{len(list(place.root.iterdir()))}"
    with EmulatedStorage(source, target, cost=Cost(), faults=faults):
        yield target


Case = Callable[[Place], str]
"""What is wrong with the case, "" for nothing."""


def judged(done: Done, named: str, *, status: int | None, beyond_s: float = 0.0) -> str:
    """What is wrong with how a command ended, "" for nothing.

    Args:
        done: how it ended.
        named: what a line of it has to name; "" where there is nothing to say.
        status: what its exit status has to be; None: any but 0.
        beyond_s: what the program takes by itself.
    """
    if done.status is None:
        return "hung"
    lines = [line for line in done.err.splitlines() if line.startswith("vanidl")]
    if "Traceback" in done.err:
        return f"traceback: {done.err.strip().splitlines()[-1]}"
    if done.status != status and (status is not None or not done.status):
        return f"exit status {done.status}: {(lines or ['-'])[-1][:90]}"
    if done.seconds > beyond_s + LIMIT_S:
        return f"took {done.seconds:.1f} s"
    if named and not any(named in line for line in done.err.splitlines()):
        return f"does not name it: {' / '.join(line[:90] for line in lines) or 'nothing said'}"
    return ""


def run_on(
    *faults: str,
    named: str = "",
    options: Sequence[str] = ("--in-place",),
    beyond_s: float = 4,
    user: Sequence[str] = (),
) -> Case:
    """RUN lies on failing storage: the program ends as ever."""

    def case(place: Place) -> str:
        (place.root / "below").mkdir()
        with mounted(place, place.root / "below", *faults) as folder:
            done = run([*user, *recorded(folder / "RUN", program(place.data), *options)])
        wrong = judged(done, named, status=STATUS, beyond_s=beyond_s)
        return wrong or ("" if done.out == plain(place) else f"another result: {done.out!r}")

    return case


def refused(*faults: str) -> Case:
    """RUN lies on storage that does not answer: the program is not started."""

    def case(place: Place) -> str:
        (place.root / "below").mkdir()
        with mounted(place, place.root / "below", *faults) as folder:
            done = run(recorded(folder / "RUN", program(place.data)))
        return judged(done, _SILENT, status=1) or ("it was started" if done.out else "")

    return case


def plain(place: Place) -> str:
    """What the program prints on sound storage."""
    return run(program(place.data, 0.1)).out


def data_on(*faults: str) -> Case:
    """The program's data lie on failing storage: recorded, it gets what it gets without."""

    def case(place: Place) -> str:
        with mounted(place, place.data, *faults) as folder:
            alone = run(program(folder))
        with mounted(place, place.data, *faults) as folder:
            done = run(recorded(place.root / "RUN", program(folder)))
        wrong = judged(done, "", status=alone.status, beyond_s=alone.seconds + 2)
        return wrong or ("" if done.out == alone.out else f"{alone.out!r}, recorded {done.out!r}")

    return case


def reads(
    command: str, *faults: str, named: str, status: int | None = None, beyond_s: float = 0.0
) -> Case:
    """A command reads a RUN from failing storage."""

    def case(place: Place) -> str:
        with mounted(place, place.sound, *faults) as folder:
            done = run([*_VANIDL, *command.split(), str(folder)])
        return judged(done, named, status=status, beyond_s=beyond_s)

    return case


def same_summary(*faults: str) -> Case:
    """Faults that no reader should notice."""

    def case(place: Place) -> str:
        with mounted(place, place.sound, *faults) as folder:
            done = run([*_VANIDL, "summary", "--full", str(folder)])
        sound = run([*_VANIDL, "summary", "--full", str(place.sound)]).out
        wrong = judged(done, "", status=0)
        theirs = done.out.replace(str(folder), str(place.sound)).replace(folder.name, "RUN")
        return wrong or ("" if theirs.split() == sound.split() else "another summary")

    return case


def writes(command: str, *faults: str, named: str) -> Case:
    """A command writes to failing storage."""

    def case(place: Place) -> str:
        (place.root / "below").mkdir()
        with mounted(place, place.root / "below", *faults) as folder:
            words = [word.format(run=place.sound, to=folder / "out") for word in command.split()]
            return judged(run([*_VANIDL, *words]), named, status=None)

    return case


def of_others(command: str, named: str, *, mode: int = 0o700, inner: str = "") -> Case:
    """A command of a user against a folder of another's: {dir}, with a RUN in it, {run}."""

    def case(place: Place) -> str:
        if os.getuid():
            return "skipped: needs root, to make files of another's"
        theirs = place.root / "theirs"
        shutil.copytree(place.sound, theirs / "RUN")
        for path in (theirs, *theirs.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.chown(path, _NOBODY, _NOBODY)
        for path in theirs.rglob(inner) if inner else ():
            if path.is_file():
                path.chmod(0)
        theirs.chmod(mode)
        words = [word.format(dir=theirs, run=theirs / "RUN") for word in command.split()]
        end = program(place.data, 0.1) if words[0] == "record" else []
        return judged(run([*_POWERLESS, *_VANIDL, *words, *end]), named, status=None)

    return case


def locked_down(prepare: str) -> Case:
    """A user records where the machine is locked down; {dir} in the shell's lines is the folder."""

    def case(place: Place) -> str:
        if os.getuid():
            return "skipped: needs root, to lock the machine down"
        folder = place.root / "own"
        folder.mkdir()
        words = recorded(folder / "RUN", program(place.data))
        shell = f'{prepare.format(dir=folder)}\nexec "$@"'
        done = run(["unshare", "--mount", "sh", "-ec", shell, "sh", *_POWERLESS, *words])
        wrong = judged(done, "", status=STATUS, beyond_s=4)
        return wrong or ("" if done.out == plain(place) else f"another result: {done.out!r}")

    return case


_AS_NOBODY = [
    "setpriv",
    f"--reuid={_NOBODY}",
    f"--regid={_NOBODY}",
    "--clear-groups",
    *_POWERLESS[1:],
]
_HOME = """
truncate -s 2G {root}/image; mkfs.btrfs -q {root}/image > /dev/null; mkdir {root}/quota
mount -o loop {root}/image {root}/quota
btrfs -q subvolume create {home}; btrfs quota enable {root}/quota
btrfs qgroup limit 4M {home}; chown {user} {home}
"""
_FILL = "dd if=/dev/zero of={home}/filler bs=4k 2> /dev/null || true; chown {user} {home}/filler"
_MANY_READS = """
import hashlib, os, sys
digest, fd = hashlib.sha256(), os.open(sys.argv[1], os.O_RDONLY)
for i in range(400_000): digest.update(os.pread(fd, 1 + i % 499, i % 200_000))
print(digest.hexdigest()[:16]); sys.exit(3)
"""


def _shell_that_opens_python(held: Path) -> str:
    """Lines of a shell, in a mount namespace of its own, that let everybody reach Python."""
    wanted = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT}
    closed: dict[Path, list[Path]] = {}
    for path in wanted:
        for above in reversed(path.parents):
            if not above.stat().st_mode & 1:
                closed.setdefault(above, []).append(path)
                break
    lines = []
    for above, paths in closed.items():
        for i, path in enumerate(paths):
            lines += [f"mkdir -p {held}/{i}", f"mount --bind {path} {held}/{i}"]
        lines.append(f"mount -t tmpfs -o mode=755 none {above}")
        for i, path in enumerate(paths):
            lines += [f"mkdir -p {path}", f"mount --bind {held}/{i} {path}"]
    return "\n".join(lines)


def over_quota(command: str, *, filled: bool = True, status: int | None = None) -> Case:
    """User nobody runs a command where a quota is used up, or will be by it; {home} is theirs."""

    def case(place: Place) -> str:
        if os.getuid() or not shutil.which("mkfs.btrfs"):
            return "skipped: needs root and btrfs-progs, for a file system with quotas"
        home = place.root / "quota" / "home"
        (place.root / "many.py").write_text(_MANY_READS)
        reading = [sys.executable, str(place.root / "many.py"), str(place.data / "1.bin")]
        names = {"root": place.root, "home": home, "user": f"{_NOBODY}:{_NOBODY}"}
        fill = f"{shlex.join(_AS_NOBODY)} {_FILL}" if filled else ""
        shell = "\n".join(
            [(_HOME + fill).format(**names), _shell_that_opens_python(place.root / "held"),
             f"export HOME={home} TMPDIR={home}", 'exec "$@"']
        )  # fmt: skip
        words = [word.format(home=home, run=place.sound) for word in command.split()]
        if words[0] == "record":
            words += reading
        done = run(["unshare", "--mount", "sh", "-ec", shell, "sh", *_AS_NOBODY, *_VANIDL, *words])
        alone = run(reading) if status == STATUS else Done(None, "", "", 0.0)
        wrong = judged(done, _QUOTA, status=status, beyond_s=5 + 3 * alone.seconds)
        same = status != STATUS or done.out == alone.out
        return wrong or ("" if same else f"another result: {done.out!r}")

    return case


def out_of_memory(*named: str) -> Case:
    """The kernel kills the program as its control group has no memory left: all outputs say so."""

    def case(place: Place) -> str:
        groups = Path("/sys/fs/cgroup")
        kind = "memory" if (groups / "memory").is_dir() else ""
        group = groups / kind / f"vanidl-{os.getpid()}"
        limit = "memory.limit_in_bytes" if kind else "memory.max"
        try:
            group.mkdir()
            (group / limit).write_text(str(400 << 20))
        except OSError as error:
            with suppress(OSError):
                group.rmdir()
            return f"skipped: no control group of memory can be made ({error.strerror})"
        try:
            code = (
                "import time, vanidl\nheld = []\nwhile True:\n with vanidl.step(): "
                "held.append(bytearray(8 << 20)); time.sleep(0.02)"
            )
            words = recorded(place.root / "RUN", [sys.executable, "-c", code])
            done = run(["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *words])
        finally:
            time.sleep(0.2)
            group.rmdir()
        wrong = judged(done, "the kernel killed 1 process", status=137, beyond_s=10)
        page = place.root / "page.html"
        for command in (f"summary {place.root}/RUN", f"report {place.root}/RUN -o {page}"):
            done = run([*_VANIDL, *command.split()])
            text = page.read_text() if page.exists() else done.out + done.err
            missing = [word for word in named if word not in text]
            wrong = wrong or (f"{command.split()[0]} does not name {missing}" if missing else "")
        return wrong

    return case


CASES: dict[str, Case] = {
    "RUN over quota": run_on("write=EDQUOT", named=_QUOTA),
    "RUN over quota later": run_on("write=EDQUOT+3", named=_QUOTA),
    "RUN's disk full": run_on("write=ENOSPC", named=_FULL),
    "RUN's disk broken": run_on("write=EIO+2", named=_BROKEN),
    "RUN stale after a while": run_on("any=ESTALE+40", named=_STALE),
    "RUN takes no more files": run_on("open=EACCES+2", named=_DENIED),
    "RUN read-only for renames": run_on("make=EROFS+3", named=_READ_ONLY),
    "RUN's attributes fail": run_on("stat=EIO+60"),
    "RUN cannot be listed": run_on("list=EIO"),
    "writes to RUN interrupted": run_on("write=EINTR@0.3"),
    "writes to RUN short": run_on("write=short@0.5"),
    "writes to RUN take 2 s": run_on("write=hang2@0.2"),
    "RUN's free space unknown": run_on("space=EIO"),
    "asking for RUN's free space takes 3 s": run_on("space=hang3"),
    "RUN below --keep-free": run_on(
        named="--keep-free", options=("--in-place", "--keep-free", "1000T")
    ),
    "RUN never answers": refused("any=hang"),
    "RUN takes no write": refused("write=hang"),
    "RUN answers no more once the program runs": run_on(
        "any=hang+12", named=_MOVED, options=(), beyond_s=6
    ),
    "RUN answers no more as the run is moved": run_on(
        "write=hang+3", named=_MOVED, options=(), beyond_s=6
    ),
    "RUN over quota as the run is moved": run_on(
        "write=EDQUOT+2", named=_QUOTA, options=(), beyond_s=6
    ),
    "RUN over quota, without any right of root's": run_on(
        "write=EDQUOT+2", named=_QUOTA, user=_POWERLESS
    ),
    "the same as the run is moved": run_on(
        "write=EDQUOT+2", named=_QUOTA, options=(), beyond_s=6, user=_POWERLESS
    ),
    "data broken in places": data_on("read=EIO@0.2"),
    "data stale after a while": data_on("read=ESTALE+10"),
    "reads of data short": data_on("read=short@0.5"),
    "reads of data take 0.5 s": data_on("read=hang0.5@0.1"),
    "data that may not be opened": data_on("open=EACCES@0.3"),
    "summary of broken storage": reads("summary", "read=EIO", named=_BROKEN),
    "summary without permission": reads("summary", "open=EACCES", named=_DENIED),
    "summary of a stale folder": reads("summary", "any=ESTALE", named=_STALE),
    "summary of a folder that cannot be listed": reads("summary", "list=EIO", named=_BROKEN),
    "summary of storage that never answers": reads("summary", "any=hang", named=_SILENT),
    "summary of reads that never end": reads(
        "summary", "read=hang", named="no answer to a read", beyond_s=25
    ),
    "summary of storage that answers no more": reads(
        "summary", "any=hang+8", named=_SILENT, beyond_s=8
    ),
    "check of storage that never answers": reads("check", "any=hang", named=_SILENT),
    "survey of storage that never answers": reads(
        "survey -o /tmp/none", "any=hang", named=_SILENT
    ),
    "report to storage that never answers": writes(
        "report {run} -o {to}", "any=hang", named=_SILENT
    ),
    "summary by short reads": same_summary("read=short@0.5"),
    "check of broken storage": reads("check", "read=EIO", named=""),
    "survey of a stale folder": reads("survey -o /tmp/none", "any=ESTALE", named=_STALE),
    "report over quota": writes("report {run} -o {to}", "write=EDQUOT", named=_QUOTA),
    "report to a read-only place": writes("report {run} -o {to}", "make=EROFS", named=_READ_ONLY),
    "export on a full disk": writes(
        "export {run} --to csv -o {to}", "write=ENOSPC", named=_FULL
    ),
    "metrics of watch over quota": writes(
        "watch {run} --quiet --openmetrics {to}", "write=EDQUOT", named=_QUOTA
    ),
    "recording into another's folder": of_others(
        "record --tracer none -o {dir}/NEW --", _DENIED, mode=0o755
    ),
    "recording into a folder that one may not see": of_others(
        "record --tracer none -o {dir}/NEW --", _DENIED
    ),
    "summary of another's folder": of_others("summary {run}", _DENIED),
    "summary of another's files": of_others("summary {run}", "ermission", mode=0o755, inner="*.*"),
    "watch of another's folder": of_others("watch {run}", _DENIED),
    "mounted noexec": locked_down(
        "mount -t tmpfs -o noexec,nosuid,mode=777 none {dir}"
    ),
    "home of nobody over quota: calls fill it": over_quota(
        "record --tracer vanidl -o {home}/RUN --", filled=False, status=STATUS
    ),
    "home of nobody over quota: record": over_quota("record -o {home}/RUN --"),
    "home of nobody over quota: report": over_quota("report {run} -o {home}/page.html"),
    "home of nobody over quota: export, csv": over_quota("export {run} --to csv -o {home}/csv"),
    "home of nobody over quota: export, parquet": over_quota(
        "export {run} --to parquet -o {home}/tables"
    ),
    "home of nobody over quota: export, chrome": over_quota(
        "export {run} --to chrome -o {home}/trace.json"
    ),
    "home of nobody over quota: demo": over_quota("demo -o {home}/demo.html"),
    "home of nobody over quota: metrics of watch": over_quota(
        "watch {run} --quiet --openmetrics {home}/metrics"
    ),
    "memory of a control group used up": out_of_memory("SIGKILL", "memory"),
    "hidepid": locked_down("chmod 777 {dir}; mount -o remount,hidepid=2 /proc"),
}  # fmt: skip


def main() -> int:
    """Prints a line a case; exit status 1 where one is wrong."""
    wanted = sys.argv[1:]
    names = [name for name in CASES if not wanted or any(word in name for word in wanted)]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        data = root / "data"
        data.mkdir()
        for number in range(5):
            (data / f"{number}.bin").write_bytes(bytes([number]) * 300_000)
        sound = root / "RUN"
        run(recorded(sound, program(data, 0.5)))
        for number, name in enumerate(names):
            place = Place(root / str(number), data, sound)
            place.root.mkdir()
            begin = time.monotonic()
            said = CASES[name](place)
            wrong += bool(said) and not said.startswith("skipped")
            print(f"{name:<46}{time.monotonic() - begin:>6.1f} s  {said or 'right'}", flush=True)
    print(f"{len(names)} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
