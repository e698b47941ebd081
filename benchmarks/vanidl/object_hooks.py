"""What recording a request to object storage costs: taking it in, its answer, and writing it.

Timed around nothing, with the headers that boto3, s3fs, presigned URLs and fsspec's HTTP send.
A request itself takes milliseconds. A row alone may cost 2 us.

    python benchmarks/vanidl/object_hooks.py [REQUESTS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from urllib3 import HTTPHeaderDict

from vanidl.record.injected.vanidl_steps import operations
from vanidl.record.injected.vanidl_steps.operations import (
    READ,
    STATUS_SHIFT,
    Operations,
    Request,
)

LIMIT_NS = 2000
ROUNDS = 7
HOST = "s3.us-east-1.amazonaws.com"
SIGNED = "X-Amz-Credential=A%2F2026%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=" + 64 * "a"
HEADERS = HTTPHeaderDict({"Range": "bytes=0-1048575", "Host": HOST, "User-Agent": "x"})
ANSWER = {"Content-Range": "bytes 0-1048575/9999999", "Content-Length": "1048576"}


def best_ns(call: Callable[[int], object], count: int) -> float:
    """The least CPU time of a call, over rounds of so many; each is told its number."""

    def one_round() -> float:
        begin = time.thread_time_ns()
        for k in range(count):
            call(k)
        return (time.thread_time_ns() - begin) / count

    return min(one_round() for _ in range(ROUNDS))


def request(log: Operations, target: str) -> None:
    """One GET from its beginning to the end of its body."""
    sent = Request("GET", "https", HOST, target, HEADERS)
    operation = operations.begun(log, sent, time.time_ns())
    assert operation is not None
    operations.answered(operation, 206, ANSWER.get)
    operation.end(1_048_576)


def main() -> int:
    """Prints what each kind of request costs; 1 where a row is above the limit."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as folder:
        log = Operations(folder)
        code = READ | 206 << STATUS_SHIFT
        row_ns = best_ns(lambda _: log.add(code, "s3://b/k", 0, 1, 1, time.time_ns()), count)
        signed_ns = best_ns(lambda k: request(log, f"/b/{k % 1000}?{SIGNED}"), count)
        operations.known.set(("b", "k"))
        boto_ns = best_ns(lambda _: request(log, "/b/k"), count)
        operations.known.set(operations.PLAIN)
        plain_ns = best_ns(lambda k: request(log, f"/b/{k}"), count)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    rows = 4 * ROUNDS * count
    print(f"row alone                      {row_ns:6.0f} ns (limit {LIMIT_NS} ns)")
    print(f"botocore, aiobotocore          {boto_ns:6.0f} ns a request")
    print(f"presigned URL, 1,000 objects   {signed_ns:6.0f} ns a request")
    print(f"fsspec http, an object each    {plain_ns:6.0f} ns a request")
    print(f"file                           {size / rows:6.1f} bytes a request")
    return int(row_ns > LIMIT_NS)


if __name__ == "__main__":
    raise SystemExit(main())
