"""A Dask cluster of nodes that share a folder and nothing else: the same bytes, and how it scales.

    python -m benchmarks.vanidl.dask_nodes              results, while a node dies in the middle
    python -m benchmarks.vanidl.dask_nodes --unplug     the same, its cable taken
    python -m benchmarks.vanidl.dask_nodes --scaling    jobs per second of 1 and of 2 nodes

Nodes are namespaces of Linux (`benchmarks/nodes.py`; needs root). Scheduler and workers speak TLS
with a certificate made as docs/dask.md says. Each result is compared byte by byte with that of one
process: `summary --json` of a run of many logs; of one whose operations lie in a temporary file
that the nodes share, and that they do not; `survey`. Weak scaling: a survey of n jobs on one node
with one processor, of 2 n on two; twice the work in the same time would be 2.0, the limit is 1.7.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import interleaved
from benchmarks.nodes import Nodes, why_not
from benchmarks.vanidl.survey import write_jobs
from tests.makers.large_logs import Workload, write_logs
from vanidl.analyses import reducing
from vanidl.model import parts
from vanidl.parallel.executors import ExecutorOptions
from vanidl.report.summary import summary_json
from vanidl.run import open_run
from vanidl.survey import survey

PORT = 8786
LIMIT = 1.7
PROCESSORS = 2
REPEATS = 3
CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 30 "
    "-subj /CN=dask"
)
DASK_YAML = """
distributed:
  comm:
    require-encryption: true
    tls:
      ca-file: TLS/cert.pem
      scheduler: {cert: TLS/cert.pem, key: TLS/key.pem}
      worker: {cert: TLS/cert.pem, key: TLS/key.pem}
      client: {cert: TLS/cert.pem, key: TLS/key.pem}
  scheduler: {http: {routes: []}}
  worker: {http: {routes: []}}
"""


@dataclass(frozen=True)
class Place:
    """Folders: what all nodes share, and what is another one on each."""

    shared: Path
    private: Path

    def folder(self, name: str) -> Path:
        """A shared folder."""
        path = self.shared / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def main() -> None:
    """Prints a line for each comparison, or the figures of scaling."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--unplug", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--jobs", type=int, default=200, help="of one node, for --scaling")
    options = parser.parse_args()
    if (why := why_not()) is not None:
        sys.exit(f"not measured: {why}")
    with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
        place = Place(Path(folder) / "shared", Path(folder) / "private")
        place.private.mkdir()
        secure(place.folder("tls"))
        if options.scaling:
            scaling(place, options.jobs)
        else:
            same_bytes(place, Nodes.unplug if options.unplug else Nodes.kill)


def secure(folder: Path) -> None:
    """A certificate, and settings of Dask that use it: what docs/dask.md says."""
    subprocess.run(CERTIFICATE.split(), cwd=folder, check=True, capture_output=True)
    settings = folder / "dask.yaml"
    settings.write_text(DASK_YAML.replace("TLS", str(folder)))
    os.environ["DASK_CONFIG"] = str(settings)  # read when Dask is imported, which was not yet


@contextmanager
def cluster(place: Place, workers: int) -> Iterator[tuple[str, Nodes]]:
    """(address, nodes): the scheduler on node 0, a worker of one thread on each of the others."""
    import distributed

    with Nodes(place.private) as nodes:
        listen = f"tls://{nodes.address(nodes.add())}"
        address, dask = f"{listen}:{PORT}", [sys.executable, "-m", "dask"]
        server = [*dask, "scheduler", "--no-dashboard", "--host", listen, "--port", str(PORT)]
        nodes.start(0, server)
        for i in range(workers):
            node = nodes.add()
            host = ["--host", f"tls://{nodes.address(node)}", "--local-directory", place.private]
            worker = [*dask, "worker", address, "--nthreads", "1", "--no-dashboard", *host]
            nodes.start(node, [str(word) for word in worker], cpu=i % PROCESSORS)
        with distributed.Client(address, timeout=120) as client:
            client.wait_for_workers(workers, timeout=120)
        yield address, nodes


# ------------------------------------------------------------------------------ the same bytes
@dataclass(frozen=True)
class Case:
    """What is worked out, and the function during which a node ends."""

    result: Callable[[Place, ExecutorOptions], bytes]
    during: str
    client_folder: Callable[[Place], Path]  # TMPDIR of who asks


def _summary(place: Place, options: ExecutorOptions) -> bytes:
    return summary_json(open_run(place.shared / "run", executor_options=options)).encode()


def _survey(place: Place, options: ExecutorOptions) -> bytes:
    with tempfile.TemporaryDirectory() as out:
        done = survey(place.shared / "jobs", out, executor_options=options)
        return done.file.read_bytes() + done.page.read_bytes()


CASES = {
    "summary, reading": Case(_summary, "read_logs", lambda place: place.private),
    "summary, operations in a shared file": Case(_summary, "reduce_parts", lambda p: p.shared),
    "summary, operations in a file here": Case(_summary, "reduce_parts", lambda p: p.private),
    "survey": Case(_survey, "rows", lambda place: place.private),
}


def same_bytes(place: Place, end: Callable[[Nodes, int], None]) -> None:
    """Compares every result with that of one process, while a node ends in the middle."""
    write_logs(place.folder("run"), 128, Workload(10_000, files=20))
    write_jobs(place.shared / "jobs", Workload(5_000, ranks=4, files=25), 0, 192)
    for name, case in CASES.items():
        parts.MOST_ROWS = 1 if "file" in name else 32_000_000
        reducing.MOST_ROWS = 1 << 14
        tempfile.tempdir = str(case.client_folder(place))
        alone = case.result(place, ExecutorOptions())
        with cluster(place, 2) as (address, nodes):
            ending = Ending(nodes, end, case.during)
            ending.start()
            start = time.perf_counter()
            there = case.result(place, ExecutorOptions(dask=address))
            took_s = time.perf_counter() - start
        equal = "the same bytes" if there == alone else "DIFFERENT BYTES"
        print(f"{name}: {equal} ({len(alone):,}); {ending.what}; {took_s:.1f} s", flush=True)
        if there != alone or not ending.what:
            sys.exit(1)


@dataclass
class Ending(threading.Thread):
    """Ends the first node that works on a function, once it has done some of it."""

    nodes: Nodes
    end: Callable[[Nodes, int], None]
    function: str
    what: str = field(default="", init=False)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Looks until there is such a node: for two minutes."""
        import distributed

        last = time.monotonic() + 120
        while time.monotonic() < last:
            try:
                busy = distributed.default_client().processing()
            except (ValueError, OSError):  # no client yet, or no longer
                time.sleep(0.01)
                continue
            for address, tasks in busy.items():
                at_work = [str(key) for key in tasks if str(key).startswith(self.function)]
                if at_work:
                    node = self.nodes.node_at(address)
                    self.end(self.nodes, node)
                    self.what = f"node {node} ended with {len(at_work)} calls of {self.function}"
                    return
            time.sleep(0.005)


# ------------------------------------------------------------------------------------ scaling
def scaling(place: Place, jobs: int) -> None:
    """Jobs per second of a survey of n jobs on one node, and of 2 n on two."""
    work = Workload(10_000, ranks=4, files=25)
    folders = {1: place.shared / "n", 2: place.shared / "2n"}
    for nodes, folder in folders.items():
        write_jobs(folder, work, 0, nodes * jobs)
    with cluster(place, 1) as one, cluster(place, 2) as two:
        addresses = {1: one[0], 2: two[0]}

        def run(nodes: int) -> float:
            options = ExecutorOptions(dask=addresses[nodes])
            with tempfile.TemporaryDirectory() as out:
                start = time.perf_counter()
                done = survey(folders[nodes], out, executor_options=options)
                took_s = time.perf_counter() - start
            assert not any(row["problem"] for row in done.rows)
            return len(done.rows) / took_s

        runs = {nodes: lambda nodes=nodes: run(nodes) for nodes in folders}
        for warm in runs.values():
            warm()
        found = interleaved(runs, REPEATS)
    rates = {nodes: statistics.median(values) for nodes, values in found.items()}
    ratios = [two / one for one, two in zip(found[1], found[2], strict=True)]
    print(
        f"survey of {jobs} and {2 * jobs} jobs of 10,000 operations: {rates[1]:.1f} jobs/s on one "
        f"node, {rates[2]:.1f} on two: {rates[2] / rates[1]:.2f} times (limit {LIMIT}; of single "
        f"pairs {min(ratios):.2f} to {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main()
