from __future__ import annotations

import http.client
import logging
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.makers.large_logs import Workload, write_log
from tests.makers.sameness import same
from tests.parallel.work import squares, within_limits
from vanidl.analyses import reducing
from vanidl.analyses.results import analyse
from vanidl.cli import main
from vanidl.merge.pipeline import Inputs, read_trace
from vanidl.parallel.executors import (
    ExecutorOptions,
    dask_executor,
    open_executor,
    run_batches,
    warn_about,
)
from vanidl.report.summary import summary_object
from vanidl.run import open_run
from vanidl.survey import survey
from vanidl.survey.rows import COLUMNS

pytestmark = [  # Dask's processes end when they like; what they leave open is not under test
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_worker_that_dies_takes_nothing_along() -> None:
    batches = [[1, 2], [3, 4], [5, 6, 7, 8], [9]]
    with open_executor(ExecutorOptions()) as executor:
        done = list(run_batches(squares, batches, executor, lambda item: -item))
    results = {i: r for items, found in done for i, r in zip(items, found, strict=True)}
    assert results == {i: i * i for i in range(1, 10) if i != 7} | {7: -7}


def test_an_item_that_is_stuck_in_c_takes_nothing_along() -> None:
    with open_executor(ExecutorOptions()) as executor:
        done = list(run_batches(within_limits, [[5, 6, 7, 8], [9]], executor, lambda item: -item))
    results = {i: r for items, found in done for i, r in zip(items, found, strict=True)}
    assert results == {5: 25, 6: 36, 7: -7, 8: 64, 9: 81}


def test_a_large_cluster_is_kept_at_work() -> None:
    """However few processors the machine has that asks."""

    class Cluster(ThreadPoolExecutor):
        count, submitted = 50, 0

        def submit(self, *call: Any, **named: Any) -> Any:
            self.submitted += 1
            return super().submit(*call, **named)

    with Cluster(2) as executor:
        found = run_batches(squares, [[1]] * 1000, executor, lambda item: -item)
        next(found)
        assert executor.count < executor.submitted < 1000
        assert len(list(found)) == 999


def test_batches_are_taken_as_workers_become_free() -> None:
    taken: list[int] = []

    def batches() -> Iterator[list[int]]:
        for i in range(100, 1100):
            taken.append(i)
            yield [i]

    with ThreadPoolExecutor(2) as executor:
        found = run_batches(squares, batches(), executor, lambda item: -item)
        next(found)
        assert 0 < len(taken) < 1000
        assert [result for _, result in found] == [[i * i] for i in range(101, 1100)]


def test_a_worker_that_is_dead_before_it_is_asked_takes_nothing_along() -> None:
    class Dies(ThreadPoolExecutor):
        dead = False

        def submit(self, *call: Any, **named: Any) -> Any:
            if call[1] == [14] and not self.dead:
                self.dead = True
                raise BrokenExecutor
            return super().submit(*call, **named)

    with Dies(2) as executor:
        found = list(run_batches(squares, [[i] for i in range(10, 40)], executor, lambda i: -i))
    assert executor.dead
    assert sorted(found) == [([i], [i * i]) for i in range(10, 40)]


def test_nothing_to_do() -> None:
    with open_executor(ExecutorOptions()) as executor:
        assert list(run_batches(squares, [], executor, lambda item: -item)) == []


@pytest.mark.parametrize("rows", [100, 1 << 20])
def test_an_executor_reduces_to_the_same(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reducing, "MOST_ROWS", rows)
    path = tmp_path / "me_x_id1-2_1-1-1-1_1.darshan"
    write_log(path, Workload(3000, ranks=3, files=5))
    trace = read_trace(path, Inputs())
    with ThreadPoolExecutor(2) as executor:
        assert same(analyse(trace), analyse(trace, executor=executor))


def vanidl(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "vanidl", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr  # Dask may complain of a busy machine
    return done.stdout


def test_dask_gives_the_same_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="an optional extra")
    path = tmp_path / "me_x_id1-2_1-1-1-1_1.darshan"
    write_log(path, Workload(3000, ranks=3, files=5))
    on_dask = vanidl("summary", str(path), "--json", "--workers", "2")
    assert main(["summary", str(path), "--json"]) == 0
    assert on_dask == capsys.readouterr().out


@pytest.fixture(scope="module")
def scheduler_address() -> Iterator[str]:
    """A Dask scheduler with one worker process, which commands reach by its address alone."""
    distributed = pytest.importorskip("distributed", reason="an optional extra")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster.scheduler_address


def test_a_scheduler_at_an_address_gives_the_same_results(
    scheduler_address: str, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "me_x_id1-2_1-1-1-1_1.darshan"
    path.parent.mkdir()
    write_log(path, Workload(3000, ranks=3, files=5))
    options = ExecutorOptions(dask=scheduler_address)
    there, here = open_run(path, executor_options=options), open_run(path)
    content = summary_object(there)
    assert content == summary_object(here)
    pytest.importorskip("pyarrow", reason="the table of a survey is Parquet")
    (row,) = survey(path.parent, tmp_path / "out", executor_options=options).rows
    assert row["problem"] is None
    for name, _, place in COLUMNS:
        value = content
        for key in place:
            value = None if value is None else value[key]
        assert row[name] == value, name


def test_no_scheduler_at_the_address_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed", reason="an optional extra")
    client = distributed.Client  # which tries for seconds
    monkeypatch.setattr(distributed, "Client", lambda address, timeout: client(address, timeout=1))
    path = tmp_path / "me_x_id1-2_1-1-1-1_1.darshan"
    write_log(path, Workload(100))
    assert main(["summary", str(path), "--dask", "tcp://127.0.0.1:9"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "expected the address of a Dask scheduler" in said


def spoken_to(address: str, context: ssl.SSLContext | None = None, hello: bytes = b"") -> bool:
    """Whether what listens there says anything to a stranger: Dask greets whom it lets in."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            if context is None:
                connection.sendall(hello)
                return bool(connection.recv(1))
            with context.wrap_socket(connection) as wrapped:
                return bool(wrapped.recv(1))
    except OSError:  # those of TLS among them
        return False


def page_status(port: int, path: str) -> int:
    """How a web server here answers: 200, where it has such a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def unsuspecting(context: ssl.SSLContext) -> ssl.SSLContext:
    """A client that does not care whom it speaks to."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_nobody_else_gets_into_the_cluster_here(scheduler_address: str) -> None:
    distributed = pytest.importorskip("distributed", reason="an optional extra")
    assert spoken_to(scheduler_address), "the attempt would not notice an open port"
    own = distributed.Security.temporary().get_connection_args("client")["ssl_context"]
    strangers = (None, unsuspecting(ssl.create_default_context()), unsuspecting(own))
    with dask_executor(ExecutorOptions(workers=1)) as executor:
        assert executor.submit(os.getpid).result() != os.getpid()
        info = distributed.get_client().scheduler_info()
        workers = info["workers"]
        addresses = [info["address"], *workers, *(w["nanny"] for w in workers.values())]
        assert len(addresses) == 3
        for address in addresses:
            assert address.startswith("tls://127.0.0.1:")
            said = [spoken_to(address, context, bytes(64)) for context in strangers]
            assert said == [False] * 3
        pages = [port for each in (info, *workers.values()) for port in each["services"].values()]
        assert len(pages) == 2
        assert [page_status(port, "/info/main/workers.html") for port in pages] == [404, 404]
        assert [page_status(port, "/json/counts.json") for port in pages] == [404, 404]


def test_a_scheduler_without_tls_is_warned_about() -> None:
    assert "run code as its user" in str(warn_about(ExecutorOptions(dask="tcp://h:8786")))
    assert "run code as its user" in str(warn_about(ExecutorOptions(dask="h:8786")))
    assert warn_about(ExecutorOptions(dask="tls://h:8786")) is None
    assert warn_about(ExecutorOptions(workers=2)) is None
