"""`EmulatedStorage`: the mount as a context; and the checks that say what is missing."""

from __future__ import annotations

import ctypes.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from ..errors import InputError, MissingError, UsageError
from .faults import parse_fault
from .model import Cost

DEVICE = Path("/dev/fuse")
REQUEST_BYTES = 1 << 19
"""Longest read request unless told otherwise."""
MOST_REQUEST_BYTES = (1 << 20) - 4096
"""The kernel sends up to 256 pages, and a buffer that is not aligned touches one page more."""
PROBE, PROBE_S = ".loaders-probe", 0.002
"""A file that is there while the mount is being set up; a read of it takes `PROBE_S`."""
_PROBES = 25  # reads that are timed; the first quartile counts
_STARTED_WITHIN_S = 20.0  # the server imports libfuse first
_ENDED_WITHIN_S = 10.0  # where no operation hangs on purpose
_HUNG_FOR_S = 1.0  # where operations may be meant to hang


class EmulatedStorage:
    """A mount of `source` on `target` whose operations cost what `cost` says.

    Use it in a `with` statement; it is unmounted at the end of it, and also when this process
    ends or is killed.

    Args:
        source: The folder that holds the files.
        target: Where they appear, slow; an empty folder, made if absent. None: a new temporary
            folder, removed afterwards.
        cost: Latency and bandwidths.
        log: File that requests are appended to; None: none is written.
        client_env: Name of the environment variable that tells clients apart; None: processes.
        request_bytes: Longest read request that the kernel sends.
        faults: Errors, hangs and short reads, as `faults.parse_fault` reads them.
        page_cache: Whether the kernel keeps pages and reads ahead, as it does of a file system of
            its own; files can be mapped shared then. Otherwise every read is a request.
    """

    def __init__(
        self,
        source: str | Path,
        target: str | Path | None = None,
        *,
        cost: Cost,
        log: str | Path | None = None,
        client_env: str | None = None,
        request_bytes: int = REQUEST_BYTES,
        faults: Sequence[str] = (),
        page_cache: bool = False,
    ) -> None:
        self._source, self._cost = Path(source), cost

        # A folder of its own is removed at the end.
        self._own_target = target is None
        self.target = Path(tempfile.mkdtemp(prefix="storage-")) if target is None else Path(target)
        self.log = None if log is None else Path(log)
        self._client_env, self._request_bytes = client_env, request_bytes
        self._faults, self._page_cache = tuple(faults), page_cache
        self._server: subprocess.Popen[bytes] | None = None
        self.overhead_s = 0.0
        """Seconds that FUSE itself adds to a request; requests are answered earlier by it."""

    def __enter__(self) -> EmulatedStorage:
        """Mounts.

        Raises:
            MissingError: No /dev/fuse, no libfuse, or no mfusepy here.
            UsageError: Requests longer than the kernel sends.
            InputError: No such source, the target is not an empty folder, or the mount failed.
        """
        check_available()
        self._check()
        # In a session of its own: Ctrl-C reaches the program, and the mount outlives it.
        self._server = subprocess.Popen(
            self._make_command(),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            # What FUSE itself takes is measured on the mount, and taken off every request.
            server = self._server
            give_up = time.monotonic() + _STARTED_WITHIN_S
            while not os.path.ismount(self.target):
                if server.poll() is not None or time.monotonic() > give_up:
                    server.kill()
                    why = server.communicate()[1].decode(errors="replace").strip()
                    self._server = None
                    raise InputError(
                        f"expected a mount on {self.target}, found none: {why or 'no message'}; "
                        "mounting needs /dev/fuse and the right to mount (root, or fusermount3)"
                    )
                time.sleep(0.01)
            # Measures what a request costs beside the model, and has the server allow for it.
            probes = [_probe_mount(self.target / PROBE) for _ in range(_PROBES)]
            self.overhead_s = statistics.quantiles(probes, n=4)[0]  # rather too slow than too fast
            self._tell(self._server, self.overhead_s)
            while (self.target / PROBE).exists():
                time.sleep(0.001)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Unmounts, and waits until the server has ended."""
        self.close()

    def close(self) -> None:
        """Unmounts, and waits until the server has ended. Again: nothing."""
        server, self._server = self._server, None
        if server is None:
            return
        # Unmounting ends the server, unless an operation hangs in it.
        unmount(self.target)
        try:
            server.communicate(timeout=_HUNG_FOR_S if self._faults else _ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()
        if self._own_target:
            self.target.rmdir()

    def wait(self) -> None:
        """Waits until the mount is taken away from outside."""
        if self._server is not None:
            self._server.wait()

    @property
    def server_pid(self) -> int:
        """Process number of the server.

        Raises:
            InputError: It is not mounted.
        """
        if self._server is None:
            raise InputError(
                "expected a mount, found none: use EmulatedStorage in a with statement"
            )
        return self._server.pid

    def fail_reads(self, error: int) -> None:
        """Has every read from now on end with an error, as a broken disk does.

        Args:
            error: Its number, such as `errno.EIO`; 0: reads succeed again.
        """
        assert self._server is not None
        self._tell(self._server, error)

    def requests(self, operations: Iterable[str] = ("read",)) -> list[Request]:
        """What was served so far of these operations.

        Raises:
            InputError: No log was asked for.
        """
        if self.log is None:
            raise InputError("expected a log of requests, found none: give log=PATH")
        return read_requests(self.log, operations)

    def _make_command(self) -> list[str]:
        line = [
            sys.executable,
            "-m",
            "vanidl_loaders.emulated_fs.server",
            str(self._source),
            str(self.target),
        ]
        # repr keeps every digit of a float, and says inf.
        line += ["--latency-s", repr(self._cost.latency_s)]
        line += ["--client-bytes-per-s", repr(self._cost.client_bytes_per_s)]
        line += ["--total-bytes-per-s", repr(self._cost.total_bytes_per_s)]
        if self._cost.write_s is not None:
            line += ["--write-s", repr(self._cost.write_s)]
        line += ["--sync-s", repr(self._cost.sync_s), "--metadata-s", repr(self._cost.metadata_s)]
        line += ["--request-bytes", str(self._request_bytes)]
        line += ["--page-cache"] * self._page_cache
        line += [word for fault in self._faults for word in ("--fault", fault)]
        if self._client_env:
            line += ["--client-env", self._client_env]
        # There from the beginning, so that a run without requests has an empty log, and not none.
        if self.log:
            self.log.touch()
            line += ["--log", str(self.log.resolve())]
        return line

    def _check(self) -> None:
        # Before anything is mounted: a slip in an option, or a folder that cannot be used.
        for fault in self._faults:
            parse_fault(fault)
        if not 4096 <= self._request_bytes <= MOST_REQUEST_BYTES:
            raise UsageError(
                f"expected requests of 4096 to {MOST_REQUEST_BYTES} bytes, found "
                f"{self._request_bytes}: choose a size between"
            )
        if not self._source.is_dir():
            raise InputError(f"expected a folder to mount, found none at {self._source}: name one")
        if is_stale(self.target):  # left by a server and watcher that were killed together
            unmount(self.target)
        self.target.mkdir(parents=True, exist_ok=True)
        if os.path.ismount(self.target) or any(self.target.iterdir()):
            raise InputError(
                f"expected an empty folder to mount on, found a mount or files in {self.target}: "
                "name another"
            )

    def _tell(self, server: subprocess.Popen[bytes], number: float) -> None:
        assert server.stdin is not None
        server.stdin.write(f"{number!r}\n".encode())
        server.stdin.flush()


def _probe_mount(path: Path) -> float:
    """Seconds that a read takes beyond those spent in the server's own method, which it returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)  # past the page cache, if there is one
    try:
        begin = time.monotonic()
        inside = float(os.pread(descriptor, 4096, 0))
        return max(0.0, time.monotonic() - begin - inside)
    finally:
        os.close(descriptor)


def check_available() -> None:
    """Checks that a FUSE mount can work.

    Raises:
        MissingError: It says what is missing and how to get it.
    """
    if not DEVICE.exists():
        raise MissingError(
            f"expected {DEVICE}, found none: load the kernel module (modprobe fuse), or start "
            f"the container with --device {DEVICE} --cap-add SYS_ADMIN"
        )
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        raise MissingError(f"expected to read and write {DEVICE}, found no right to: ask for it")
    if ctypes.util.find_library("fuse3") is None:
        raise MissingError("expected libfuse 3, found none: apt-get install fuse3")
    try:
        import mfusepy  # noqa: F401
    except ImportError as error:
        raise MissingError(
            f"expected mfusepy, found: {error}; pip install 'vanidl-io[storage]'"
        ) from error


def is_stale(target: Path) -> bool:
    """True for a mount whose server is gone."""
    try:
        target.stat()
    except FileNotFoundError:
        return False
    except OSError:  # ENOTCONN: transport endpoint is not connected
        return True
    return False


def unmount(target: Path) -> None:
    """Detaches the mount, if there is one; open files on it fail from then on."""
    for line in (["fusermount3", "-u", "-z", str(target)], ["umount", "-l", str(target)]):
        try:
            done = subprocess.run(line, check=False, capture_output=True)
        except FileNotFoundError:  # that tool is not installed: the other may be
            continue
        if done.returncode == 0:
            return


# The mount's own log of requests: one JSON line each, written before the asker gets its answer.
#
# It is the independent recount of what others claim: what was served, not what was asked for. What
# the kernel answers from its cache is not in it.


@dataclass(frozen=True)
class Request:
    """One request as the kernel sent it.

    Attributes:
        pid: Process that asks (of its threads, the process); 0: the kernel, which writes back.
        path: File, relative to the mount, without a leading slash.
        offset: First byte; 0 where no bytes are asked for.
        size: Bytes moved; fewer than asked for at the end of a file.
        start_ns: When the asker sent it, nanoseconds since the Unix epoch: its arrival, less half
            of what FUSE itself takes (measured while mounting).
        end_ns: When the asker has its answer, likewise; half-open with `start_ns`.
        operation: read, write, sync, stat, open, list, make, remove or space.
    """

    pid: int
    path: str
    offset: int
    size: int
    start_ns: int
    end_ns: int
    operation: str = "read"


class RequestLog:
    """Appends requests to a file; each one is on disk (page cache) before `add` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, request: Request) -> None:
        """Writes one line with a single call, so that threads cannot mix lines."""
        os.write(self._descriptor, (json.dumps(asdict(request)) + "\n").encode())

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def read_requests(path: str | Path, operations: Iterable[str] = ("read",)) -> list[Request]:
    """The requests in a log, in the order in which they were done.

    Args:
        path: The log.
        operations: Those to return.

    Raises:
        InputError: No log there, or a line is damaged.
    """
    wanted = frozenset(operations)
    try:
        lines = Path(path).read_text().splitlines()
        requests = [Request(**json.loads(line)) for line in lines]
    except (FileNotFoundError, ValueError, TypeError) as error:
        raise InputError(
            f"expected a log of requests in {path}, found: {error}; "
            "it is written by python -m vanidl_loaders mount --log"
        ) from error
    return [request for request in requests if request.operation in wanted]


def sum_nbytes(requests: Iterable[Request]) -> int:
    """Bytes that the requests moved."""
    return sum(request.size for request in requests)


def measure_served_s(
    requests: Iterable[Request], start_ns: int = 0, end_ns: int | None = None
) -> float:
    """Seconds in which at least one request was being served, from `start_ns` until `end_ns`.

    Readahead has several under way at once, so their lengths must not be added.
    """
    # How far time is covered already: what lies before that counts once.
    total_ns, reached_ns = 0, start_ns
    for request in sorted(requests, key=lambda request: request.start_ns):
        end = request.end_ns if end_ns is None else min(request.end_ns, end_ns)
        total_ns += max(0, end - max(request.start_ns, reached_ns))
        reached_ns = max(reached_ns, end)
    return total_ns / 1e9
