"""The mount's own log of reads: one JSON line a request, written before the reader gets it.

It is the independent recount of what loaders claim: what arrived, not what was asked for.
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
    """One read request as the kernel sent it.

    Attributes:
        pid: Process that reads (of its threads, the process).
        path: File, relative to the mount, without a leading slash.
        offset: First byte.
        size: Bytes returned; fewer than asked for at the end of a file.
        start_ns: Arrival, nanoseconds since the Unix epoch.
        end_ns: When the answer was handed back; half-open with `start_ns`.
    """

    pid: int
    path: str
    offset: int
    size: int
    start_ns: int
    end_ns: int


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


def read_requests(path: str | Path) -> list[Request]:
    """The requests in a log, in the order in which they were done.

    Raises:
        InputError: No log there, or a line is damaged.
    """
    try:
        lines = Path(path).read_text().splitlines()
        return [Request(**json.loads(line)) for line in lines]
    except (FileNotFoundError, ValueError, TypeError) as error:
        raise InputError(
            f"expected a log of requests in {path}, found: {error}; "
            "it is written by python -m vanidl_loaders mount --log"
        ) from error


def total_bytes(requests: Iterable[Request]) -> int:
    """Bytes that the requests returned."""
    return sum(request.size for request in requests)
