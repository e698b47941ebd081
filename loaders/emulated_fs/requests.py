"""The mount's own log of requests: one JSON line each, written before the asker gets its answer.

It is the independent recount of what others claim: what was served, not what was asked for. What
the kernel answers from its cache is not in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import InputError


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


def total_bytes(requests: Iterable[Request]) -> int:
    """Bytes that the requests moved."""
    return sum(request.size for request in requests)


def served_s(requests: Iterable[Request], start_ns: int = 0, end_ns: int | None = None) -> float:
    """Seconds in which at least one request was being served, from `start_ns` until `end_ns`.

    Readahead has several under way at once, so their lengths must not be added.
    """
    total_ns, reached_ns = 0, start_ns
    for request in sorted(requests, key=lambda request: request.start_ns):
        end = request.end_ns if end_ns is None else min(request.end_ns, end_ns)
        total_ns += max(0, end - max(request.start_ns, reached_ns))
        reached_ns = max(reached_ns, end)
    return total_ns / 1e9
