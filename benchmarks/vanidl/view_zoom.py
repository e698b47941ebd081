"""How fast `vanidl view` shows a large run that was opened once, and zooms in it.

Makes a synthetic run, leaves its page and slices in a cache folder, as the first `vanidl view`
does, then takes them from there as every later one does: the time until page and slices of the
whole run have come over HTTP, and until those of random windows have, from the whole run down to
a few operations. Prints both with their limits; exit status 1 where one is exceeded.

    python -m benchmarks.vanidl.view_zoom [--operations 50000000] [--zooms 200]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from benchmarks.vanidl.made_traces import made_trace
from vanidl.analyses.results import analyse
from vanidl.report.html import page_of, page_with
from vanidl.report.page import render_page
from vanidl.run import Run
from vanidl.serve import server
from vanidl.serve.server import open_server
from vanidl.serve.store import write_store
from vanidl.viewer.content import SERVED

FIRST_LIMIT_S = 3.0
ZOOM_LIMIT_MS = 200.0
WIDTH = 2400  # pixels of the picture and of what is fetched beside it


def prepare(operations: int, folder: Path, workers: int) -> None:
    """What the first `vanidl view` of the run leaves."""
    began = time.perf_counter()
    trace = made_trace(operations, workers=workers, spilled=True)
    made = time.perf_counter()
    run = Run(trace, analyse(trace))
    analysed = time.perf_counter()
    page = render_page(page_with(page_of(run), run, SERVED)).encode()
    drawn = time.perf_counter()
    server.keep(folder, "run", page, lambda place: write_store(run, place))
    size = sum(path.stat().st_size for path in (folder / "run").iterdir())
    print(
        f"{operations:,} operations: made {made - began:.1f} s, analysed {analysed - made:.1f} s, "
        f"page {drawn - analysed:.1f} s ({len(page) / 1e6:.1f} MB), slices written "
        f"{time.perf_counter() - drawn:.1f} s ({size / 1e9:.2f} GB)",
        flush=True,
    )


def get(connection: HTTPConnection, path: str) -> bytes:
    """The body of an answer, which must be 200."""
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise AssertionError(f"{path}: {answer.status} {body[:200]!r}")
    return body


def measure(folder: Path, zooms: int) -> tuple[float, list[float], int]:
    """Seconds to the first picture, milliseconds of each zoom, bytes of the largest answer."""
    began = time.perf_counter()
    found = server.open_kept(folder, "run")
    assert found is not None
    page, store = found
    lanes = ".".join(str(i) for i in range(len(store.labels.lanes.lanes)))
    low, high = (at - store.labels.since_ns for at in (store.low_ns, store.high_ns))
    with open_server(page, store) as (answering, address):
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        where = urlsplit(address)
        connection = HTTPConnection(str(where.hostname), where.port)
        query = "{}slices?t0={}&t1={}&width={}&lanes={}"
        get(connection, where.path)
        get(connection, query.format(where.path, low, high, WIDTH, lanes))
        first = time.perf_counter() - began
        random, taken, largest = np.random.default_rng(0), [], 0
        for _ in range(zooms):
            length = max(int((high - low) * 10 ** random.uniform(-7, 0)), 1000)
            start = int(random.integers(low, max(high - length, low + 1)))
            before = time.perf_counter()
            body = get(connection, query.format(where.path, start, start + length, WIDTH, lanes))
            taken.append(1000 * (time.perf_counter() - before))
            largest = max(largest, len(body))
        answering.shutdown()
    return first, taken, largest


def main() -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=50_000_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--zooms", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        folder.chmod(0o700)
        prepare(options.operations, folder, options.workers)
        first, taken, largest = measure(folder, options.zooms)
    median, p95 = np.percentile(taken, [50, 95])
    print(f"first picture {first:.2f} s (limit {FIRST_LIMIT_S} s)")
    print(
        f"zoom median {median:.0f} ms, p95 {p95:.0f} ms, longest {max(taken):.0f} ms "
        f"(limit {ZOOM_LIMIT_MS:.0f} ms); largest answer {largest / 1e6:.2f} MB"
    )
    return 0 if first <= FIRST_LIMIT_S and p95 <= ZOOM_LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
