"""The same law against moto's S3, a server that knows nothing of these tests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.record.objects.conftest import ACCESS_KEY, SECRET, Recorded
from tests.record.objects.test_requests import clean
from vanidl.readers.objects.operations import LIST, OTHER, READ, STAT, WRITE

moto_server = pytest.importorskip("moto.server")
pytest.importorskip("flask_cors")
pytest.importorskip("s3fs")

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


class Counting:
    """A WSGI application that logs what another one answers."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self.inner = inner
        self.log: list[Row] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        body = list(self.inner(environ, start))
        came = int(
            environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or environ.get("CONTENT_LENGTH") or 0
        )
        where = (environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"])
        self.log.append((*where, came + sum(map(len, body))))
        return body


@pytest.fixture
def moto() -> Iterator[tuple[str, list[Row]]]:
    serving = pytest.importorskip("werkzeug.serving")
    application = Counting(moto_server.DomainDispatcherApplication(moto_server.create_backend_app))

    class Quiet(serving.WSGIRequestHandler):  # type: ignore[misc,name-defined]
        protocol_version = "HTTP/1.1"

        def log(self, *_: object) -> None:
            pass

    server = serving.make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}", application.log
    server.shutdown()
    thread.join()


def kind_of(method: str, path: str, query: str) -> int:
    if path.count("/") == 1 or path.endswith("/"):
        return LIST if method == "GET" else STAT if method == "HEAD" else OTHER
    return {"GET": READ, "HEAD": STAT, "PUT": WRITE}.get(method, OTHER)


def test_moto_counts_what_was_recorded(
    recorded: Recorded, moto: tuple[str, list[Row]], tmp_path: Path
) -> None:
    url, log = moto
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
