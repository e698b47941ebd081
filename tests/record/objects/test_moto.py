"""The same law against moto's S3, a server that knows nothing of these tests."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.makers.needed import needed
from tests.record.objects.conftest import ACCESS_KEY, SECRET, Recorded
from tests.record.objects.test_requests import clean
from vanidl.model.trace import OBJECT
from vanidl.readers.objects.operations import LIST, OTHER, READ, STAT, WRITE
from vanidl.record import record
from vanidl.run import open_run

needed("moto", reason="moto is not installed")
needed("flask_cors", reason="flask-cors is not installed")
needed("s3fs", reason="s3fs is not installed")

Row = tuple[str, str, str, int]
"""Method, path, query, bytes of both bodies."""

PROGRAM = f"""
import sys, boto3, s3fs
from boto3.s3.transfer import TransferConfig
key, secret, region = "{ACCESS_KEY}", "{SECRET}", "us-east-1"
client = boto3.client("s3", endpoint_url=sys.argv[1], region_name=region,
    aws_access_key_id=key, aws_secret_access_key=secret)
client.create_bucket(Bucket="data")
parts = TransferConfig(multipart_threshold=1, multipart_chunksize=5 << 20)
client.upload_file(sys.argv[2], "data", "large", Config=parts)
client.download_file("data", "large", sys.argv[2], Config=parts)
fs = s3fs.S3FileSystem(endpoint_url=sys.argv[1], key=key, secret=secret)
fs.pipe_file("data/a/b c", bytes(300_000))
assert fs.ls("data") and len(fs.cat_file("data/a/b c", start=10, end=20)) == 10
starts = [k * 10**6 for k in range(8)]
fs.cat_ranges(["data/large"] * 8, starts, [start + 999 for start in starts])
with fs.open("data/written", "wb", block_size=5 << 20) as file:
    file.write(bytes(11 << 20))
fs.rm("data/written")
"""

SAMPLES, NBYTES, LATENCY_S = 24, 20_000, 0.05
TRAINING = f"""
import os, sys
sys.path.append({str(Path(__file__).parents[1])!r})
import light_torch, s3fs, torch
from torch.utils.data import DataLoader, Dataset
class Objects(Dataset):
    fs = None
    def __len__(self):
        return {SAMPLES}
    def __getitem__(self, k):
        self.fs = self.fs or s3fs.S3FileSystem(endpoint_url=sys.argv[1], anon=False)
        content = bytearray(self.fs.cat_file(f"train/samples/{{k:03}}.bin"))
        return torch.frombuffer(content, dtype=torch.uint8).float()
model = torch.nn.Linear({NBYTES}, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Objects(), batch_size=4, num_workers=2):
    model(batch).sum().backward()
    optimizer.step()
"""


class Counting:
    """A WSGI application that logs what another one answers."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self.inner = inner
        self.log: list[Row] = []
        self.latency_s = 0.0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        time.sleep(self.latency_s)
        body = list(self.inner(environ, start))
        came = int(
            environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or environ.get("CONTENT_LENGTH") or 0
        )
        where = (environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"])
        self.log.append((*where, came + sum(map(len, body))))
        return body


def stored(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples, in a bucket."""
    import boto3

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = boto3.client("s3", endpoint_url=url)
    client.create_bucket(Bucket="train")
    for k in range(SAMPLES):
        client.put_object(Bucket="train", Key=f"samples/{k:03}.bin", Body=bytes(NBYTES))


@pytest.fixture
def moto() -> Iterator[tuple[str, Counting]]:
    from moto import server as moto_server
    from werkzeug import serving

    application = Counting(moto_server.DomainDispatcherApplication(moto_server.create_backend_app))

    class Quiet(serving.WSGIRequestHandler):  # type: ignore[misc,name-defined]
        protocol_version = "HTTP/1.1"

        def log(self, *_: object) -> None:
            pass

    server = serving.make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}", application
    server.shutdown()
    thread.join()


def kind_of(method: str, path: str, query: str) -> int:
    if path.count("/") == 1 or path.endswith("/"):
        return LIST if method == "GET" else STAT if method == "HEAD" else OTHER
    return {"GET": READ, "HEAD": STAT, "PUT": WRITE}.get(method, OTHER)


def test_moto_counts_what_was_recorded(
    recorded: Recorded, moto: tuple[str, Counting], tmp_path: Path
) -> None:
    url, log = moto[0], moto[1].log
    large = tmp_path / "large"
    large.write_bytes(bytes(12 << 20))
    file = recorded(PROGRAM, url, str(large))
    kinds = Counter(kind_of(*row[:3]) for row in log)
    assert Counter(file.requests.kind.tolist()) == kinds
    assert kinds[WRITE] >= 3 + 1 + 1
    for kind in (READ, WRITE):
        moved = sorted(row[3] for row in log if kind_of(*row[:3]) == kind)
        assert sorted(file.requests.nbytes[file.requests.kind == kind].tolist()) == moved
    names = {file.names[n] for n in file.requests.name.tolist()}
    assert {"s3://data/large", "s3://data/a/b c", "s3://data/written"} <= names
    clean(tmp_path)


def test_training_over_s3fs_agrees_with_the_servers_log(
    moto: tuple[str, Counting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    url, server = moto
    stored(url, monkeypatch)
    server.log.clear()
    server.latency_s = LATENCY_S
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    done = record([sys.executable, str(program), url], tmp_path / "RUN", tracer="none")
    assert done.exit_status == 0
    run = open_run(tmp_path / "RUN")
    gets = [row for row in server.log if row[0] == "GET"]
    heads = [row for row in server.log if row[0] == "HEAD"]
    assert (run.summary.layer, run.summary.reads, run.summary.writes) == (OBJECT, len(gets), 0)
    assert run.summary.bytes_read == sum(row[3] for row in gets) == SAMPLES * NBYTES
    counters = run.trace.counters[OBJECT].counters
    assert int(counters["OBJECT_STATS"].sum()) == len(heads)
    assert run.summary.time.sum_s >= len(gets) * LATENCY_S
    assert run.overlap is not None
    mean = run.overlap.mean
    exposed_s = mean.in_wait_s + mean.other_s
    assert exposed_s + mean.hidden_s >= len(gets) * LATENCY_S / 2  # of two workers
    assert [p.role for p in run.trace.processes] == ["trainer", "worker", "worker"]
    clean(tmp_path / "RUN")
