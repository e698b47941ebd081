"""The file system itself: `python -m vanidl_loaders.emulated_fs.server`, a process of its own.

A process of its own, so that the reading program's interpreter lock is not shared with it. It
unmounts and ends on SIGTERM, SIGINT, SIGHUP, and when its standard input closes: that is when
the program that started it is gone, however it went. A watcher, forked before the mount, unmounts
when the server itself is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import mfusepy

from .faults import OPERATIONS, plant
from .model import Cost, Links
from .mount import PROBE, PROBE_S, Request, RequestLog, unmount

_PR_SET_TIMERSLACK = 29  # linux/prctl.h
_ATTRIBUTES = {  # libfuse's name -> os.stat_result's
    "st_atime": "st_atime_ns",
    "st_ctime": "st_ctime_ns",
    "st_mtime": "st_mtime_ns",
} | {
    name: name
    for name in ("st_gid", "st_ino", "st_mode", "st_nlink", "st_size", "st_uid", "st_blocks")
}
_SPACE = (
    "f_bavail",
    "f_bfree",
    "f_blocks",
    "f_bsize",
    "f_favail",
    "f_ffree",
    "f_files",
    "f_frsize",
)
TRUSTED_S = 1.0
"""How long an answer is kept: numbers of dead threads come back only much later."""
MOST_LATE_S = 0.02
"""Longest delay that is made up for: after a longer stall the model is simply late."""
_METADATA = {
    method: operation
    for operation in ("stat", "open", "list", "make", "remove", "space")
    for method in OPERATIONS[operation]
} | {"readlink": "stat"}


class PassThrough(mfusepy.Operations):
    """Operations on `source`. The names of the methods are libfuse's."""

    use_ns = True

    def __init__(self, source: Path) -> None:
        self._source = source.resolve()

    def _at(self, path: str) -> Path:
        return self._source / path.lstrip("/")

    def getattr(self, path: str, _fh: int | None = None) -> dict[str, int]:
        """Attributes of a file."""
        status = self._at(path).lstat()
        return {name: getattr(status, source) for name, source in _ATTRIBUTES.items()}

    def readdir(self, path: str, _fh: int) -> Iterable[str]:
        """Names in a folder."""
        return [".", "..", *(entry.name for entry in self._at(path).iterdir())]

    def readlink(self, path: str) -> str:
        """Where a link points."""
        return os.fspath(self._at(path).readlink())

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the file below, whose reads need no aligned buffer."""
        return os.open(self._at(path), flags & ~os.O_DIRECT)

    def create(self, path: str, mode: int, _fi: object = None) -> int:
        """A descriptor of a new file."""
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def write(self, _path: str, data: bytes, offset: int, fh: int) -> int:
        """Bytes written."""
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, _fh: int | None = None) -> int:
        """Cuts or extends a file."""
        os.truncate(self._at(path), length)
        return 0

    def flush(self, _path: str, _fh: int) -> int:
        """Nothing is held back."""
        return 0

    def fsync(self, _path: str, _datasync: int, fh: int) -> int:
        """Brings a file to the disk below."""
        os.fsync(fh)
        return 0

    def release(self, _path: str, fh: int) -> int:
        """Closes the descriptor."""
        os.close(fh)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        """Makes a folder."""
        self._at(path).mkdir(mode)
        return 0

    def rmdir(self, path: str) -> int:
        """Removes a folder."""
        self._at(path).rmdir()
        return 0

    def unlink(self, path: str) -> int:
        """Removes a file."""
        self._at(path).unlink()
        return 0

    def rename(self, old: str, new: str) -> int:
        """Moves a file, over another if there is one."""
        self._at(old).replace(self._at(new))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        """Sets the permissions of a file."""
        self._at(path).chmod(mode)
        return 0

    def utimens(self, path: str, times: tuple[int, int]) -> int:
        """Sets the times of a file, nanoseconds."""
        os.utime(self._at(path), ns=times)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Space on the file system below."""
        status = os.statvfs(self._at(path))
        return {name: getattr(status, name) for name in _SPACE}


class Clients:
    """Looks up the client of a thread.

    A client is a process, or, with `variable`, all processes whose environment (at their start)
    holds the same value of it: `RANK` makes a torchrun rank and its forked DataLoader workers
    one client, any other name an emulated node of several ranks.
    """

    def __init__(self, variable: str | None = None) -> None:
        self._variable = variable
        self._known: dict[int, tuple[float, int, str]] = {}

    def find(self, thread: int) -> tuple[int, str]:
        """Process number and name of the client of a thread number."""
        now = time.monotonic()
        cached = self._known.get(thread)
        # Looking into /proc costs more than a read: trusted for a while, as numbers are given
        # again.
        if cached is None or now - cached[0] > TRUSTED_S:
            process = _find_process(thread)
            cached = self._known[thread] = (now, process, self._find_client(process))
        return cached[1], cached[2]

    def _find_client(self, process: int) -> str:
        if self._variable is None:
            return str(process)
        prefix = f"{self._variable}=".encode()
        # The environment as the process was started with it.
        for entry in _read_proc(Path(f"/proc/{process}/environ")).split(b"\0"):
            if entry.startswith(prefix):
                return entry.decode(errors="replace")
        return str(process)


class SlowStorage(PassThrough):
    """A folder passed through, whose operations take the time of the model and are logged."""

    def __init__(
        self,
        source: Path,
        *,
        cost: Cost,
        clients: Clients,
        log: RequestLog | None,
        request_bytes: int,
    ) -> None:
        super().__init__(source)
        self._request_bytes = request_bytes
        self.overhead_s: float | None = None
        """Time of a request outside this method, as the starter measured it; None: not yet."""
        self.error = 0
        """Number of the error that reads end with; 0: they succeed."""
        self._cost, self._links, self._lock = cost, Links(cost), threading.Lock()
        self._clients, self._log = clients, log
        self._late: dict[str, float] = {}
        # Calls that only touch metadata are wrapped here, all alike.
        for method, operation in _METADATA.items():
            setattr(self, method, self._slow_down(operation, getattr(self, method)))

    def init_with_config(self, conn_info: mfusepy.fuse_conn_info, _config: object) -> None:
        """Tells libfuse the longest read; the mount option max_read tells the kernel."""
        conn_info.max_read = self._request_bytes

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        """Attributes of a file; the probe exists until the overhead is known."""
        if path == f"/{PROBE}" and self.overhead_s is None:
            return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": 1 << 30}
        return super().getattr(path, fh)

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the file below."""
        return (
            os.open(os.devnull, os.O_RDONLY) if path == f"/{PROBE}" else super().open(path, flags)
        )

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """The bytes, once the links have carried them."""
        start_ns, arrival = time.time_ns(), time.monotonic()
        # The starter times reads of the probe, and knows what FUSE itself takes.
        if self.overhead_s is None and path == f"/{PROBE}":
            time.sleep(PROBE_S)
            return repr(time.monotonic() - arrival).encode().ljust(size)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        content = os.pread(fh, size, offset)
        self._serve("read", path, start_ns, arrival, offset, len(content))
        return content

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        """Bytes written, once the links have carried them if writes cost anything."""
        start_ns, arrival = time.time_ns(), time.monotonic()
        nbytes = super().write(path, data, offset, fh)
        self._serve("write", path, start_ns, arrival, offset, nbytes)
        return nbytes

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        """Brings a file to the disk below, and takes the time of a sync beside."""
        start_ns = time.time_ns()
        super().fsync(path, datasync, fh)
        self._serve("sync", path, start_ns, time.monotonic())
        return 0

    def _slow_down(self, operation: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """An operation on metadata that takes its time, whether it succeeds or not."""

        def slowed(path: str, *arguments: Any) -> Any:  # noqa: ANN401
            start_ns, arrival = time.time_ns(), time.monotonic()
            try:
                return original(path, *arguments)
            finally:
                # The probe measures the time of FUSE itself, and is no request of a program.
                if self.overhead_s is not None and path != f"/{PROBE}":
                    self._serve(operation, path, start_ns, arrival)

        return slowed

    def _serve(
        self,
        operation: str,
        path: str,
        start_ns: int,
        arrival: float,
        offset: int = 0,
        nbytes: int = 0,
    ) -> None:
        """Waits as long as the model says, and logs the request."""
        # FUSE has taken its time before this method: the request arrived earlier by as much.
        overhead_s = self.overhead_s or 0.0
        process, client = self._clients.find(mfusepy.fuse_get_context()[2])
        if operation == "read":
            self._wait(client, nbytes, arrival - overhead_s, self._cost.latency_s)
        elif operation == "write":
            if self._cost.write_s is not None:
                self._wait(client, nbytes, arrival - overhead_s, self._cost.write_s)
        else:
            cost_s = self._cost.sync_s if operation == "sync" else self._cost.metadata_s
            time.sleep(max(0.0, arrival - overhead_s + cost_s - time.monotonic()))
        # The log has the request as the client saw it: half of FUSE's time on each side.
        if self._log:
            half_ns = round(overhead_s * 5e8)
            start_ns, end_ns = start_ns - half_ns, time.time_ns() + half_ns
            name = path.lstrip("/")
            self._log.add(Request(process, name, offset, nbytes, start_ns, end_ns, operation))

    def _wait(self, client: str, nbytes: int, arrival: float, latency_s: float) -> None:
        """Sleeps until the links have carried the bytes.

        A sleep that ends late (the machine is busy) lets the client's next request count as
        arrived earlier by as much, so that the delays of a busy machine do not add up.
        """
        with self._lock:
            late = self._late.get(client, 0.0)
            done = self._links.finish(client, nbytes, arrival - late, latency_s)
        time.sleep(max(0.0, done - time.monotonic()))
        self._late[client] = min(time.monotonic() - done, MOST_LATE_S)


def main() -> None:
    """Serves until it is told to end; the mount is gone afterwards."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--latency-s", type=float, required=True)
    parser.add_argument("--client-bytes-per-s", type=float, required=True)
    parser.add_argument("--total-bytes-per-s", type=float, required=True)
    parser.add_argument("--write-s", type=float)
    parser.add_argument("--sync-s", type=float, default=0.0)
    parser.add_argument("--metadata-s", type=float, default=0.0)
    parser.add_argument("--request-bytes", type=int, required=True)
    parser.add_argument("--page-cache", action="store_true")
    parser.add_argument("--client-env")
    parser.add_argument("--log")
    parser.add_argument("--fault", action="append", default=[])
    options = parser.parse_args()
    target = Path(options.target)
    _watch(target)
    # Sleeps end within microseconds, not within the default 50: threads inherit this.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with suppress(PermissionError):  # real storage does not wait for this machine's cores
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    log = RequestLog(Path(options.log)) if options.log else None
    cost = Cost(
        options.latency_s,
        options.client_bytes_per_s,
        options.total_bytes_per_s,
        options.write_s,
        options.sync_s,
        options.metadata_s,
    )
    operations = SlowStorage(
        Path(options.source),
        cost=cost,
        clients=Clients(options.client_env),
        log=log,
        request_bytes=options.request_bytes,
    )
    # Faults and the overhead come from the starter, once the mount can be seen.
    threading.Thread(target=_listen, args=(operations, target, options.fault), daemon=True).start()
    mfusepy.FUSE(operations, str(target), **_join_mount_options(options))


def _join_mount_options(options: argparse.Namespace) -> dict[str, Any]:
    """Foreground, many threads, the kernel's read requests at most that long.

    With the page cache, pages stay over opens until the file below changes. Without it, nothing
    is kept: attributes and names neither, where they cost time.
    """
    chosen: dict[str, Any] = {
        "foreground": True,
        "fsname": "loaders",
        "max_read": options.request_bytes,
        "max_threads": 64,
    }
    if options.page_cache:
        return chosen | {"auto_cache": True}
    chosen["direct_io"] = True
    # Where metadata takes time, the kernel has to ask each time.
    if options.metadata_s:
        chosen |= {"attr_timeout": 0, "entry_timeout": 0}
    return chosen


def _listen(operations: SlowStorage, target: Path, faults: Sequence[str]) -> None:
    """The starter's first line says the overhead, each later one what error reads end with.

    The end of its pipe says that it is gone.
    """
    line = sys.stdin.readline()
    if line:
        plant(operations, faults, f"/{PROBE}")  # not before: the mount is set up without
        operations.overhead_s = float(line)
        for number in sys.stdin:
            operations.error = int(number)
    unmount(target)


def _watch(target: Path) -> None:
    """Forks a process that unmounts when this one has ended, in whatever way."""
    kept_open, ours = os.pipe()
    if os.fork():
        os.close(kept_open)
        return  # `ours` stays open as long as this process lives
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.close(ours)
    os.dup2(os.open(os.devnull, os.O_RDWR), sys.stdin.fileno())
    os.read(kept_open, 1)
    unmount(target)
    os._exit(0)


def _find_process(thread: int) -> int:
    for line in _read_proc(Path(f"/proc/{thread}/status")).splitlines():
        if line.startswith(b"Tgid:"):
            return int(line.split()[1])
    return thread


def _read_proc(path: Path) -> bytes:
    """Content, or nothing where the process is gone or not ours to see."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
