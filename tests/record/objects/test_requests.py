"""One request on the server is one operation recorded, its bytes those that the server counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.makers.object_server import BODY, Served, Store, object_server
from tests.record.objects.conftest import ACCESS_KEY, SECRET, Recorded
from vanidl.readers.objects.operations import LIST, OTHER, READ, STAT, WRITE, OperationsFile

S3TORCH = f"""
import os, sys
os.environ |= dict(AWS_ACCESS_KEY_ID="{ACCESS_KEY}", AWS_SECRET_ACCESS_KEY="{SECRET}")
from s3torchconnector._s3client import S3Client, S3ClientConfig
client = S3Client("us-east-1", endpoint=sys.argv[1], s3client_config=S3ClientConfig(
    force_path_style=True, max_attempts=1))
assert len(client.get_object("data", "a").read()) == 102_400
client.head_object("data", "a")
try:
    client.get_object("data", "none").read()
except Exception as error:
    print(type(error).__name__)
"""

Counted = Counter[tuple[int, str, int]]
KIND = {"GET": READ, "HEAD": STAT, "PUT": WRITE, "DELETE": OTHER}

URLLIB3 = """
import sys, urllib3
pool = urllib3.PoolManager()
signed = "?X-Amz-Credential=CANARY%2F2026%2Fus%2Fs3%2Faws4_request&X-Amz-Signature=CANARY"
def get(key, **options):
    return pool.request("GET", sys.argv[1] + "/data/" + key + signed, **options)
assert len(get("a b.bin").data) == 102_400
assert len(get("a", headers={"Range": "bytes=1000-2999"}).data) == 2000
streamed = get("a", preload_content=False)
while streamed.read(7000):
    pass
for _ in get("chunked", preload_content=False).stream(3000):
    pass
assert len(get("chunked").data) == 102_400
assert get("none").status == 404
first = get("a", preload_content=False)
first.read(100)
first.close()
pool.request("PUT", sys.argv[1] + "/data/new" + signed, body=b"x" * 5000)
pool.request("HEAD", sys.argv[1] + "/data/a" + signed)
pool.request("DELETE", sys.argv[1] + "/data/a" + signed)
for key in ("reset", "reset"):
    try:
        get(key, retries=False).data
    except urllib3.exceptions.HTTPError as error:
        print(type(error).__name__)
try:
    pool.request("GET", "http://127.0.0.1:9/data/a" + signed, retries=False)
except urllib3.exceptions.HTTPError as error:
    print(type(error).__name__)
pool.request("GET", sys.argv[1] + "/not/storage")
"""

BOTO3 = f"""
import sys, boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
client = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1",
    aws_access_key_id="{ACCESS_KEY}", aws_secret_access_key="{SECRET}",
    config=Config(retries=dict(max_attempts=2, mode="standard"),
                  request_checksum_calculation="when_required"))
client.put_object(Bucket="data", Key="new", Body=b"x" * 50_000)
assert len(client.get_object(Bucket="data", Key="new", Range="bytes=10-19")["Body"].read()) == 10
for _ in client.get_object(Bucket="data", Key="a b/c")["Body"].iter_chunks(7000):
    pass
client.head_object(Bucket="data", Key="new")
client.list_objects_v2(Bucket="data")
client.delete_object(Bucket="data", Key="new")
try:
    client.get_object(Bucket="data", Key="none")
except client.exceptions.NoSuchKey:
    print("none")
small = TransferConfig(multipart_threshold=1, multipart_chunksize=30_000, max_concurrency=3)
client.download_file("data", "large", sys.argv[2], Config=small)
"""

S3FS = f"""
import sys, s3fs
fs = s3fs.S3FileSystem(endpoint_url=sys.argv[1], key="{ACCESS_KEY}", secret="{SECRET}")
assert len(fs.cat_file("data/a b/c")) == 102_400
fs.cat_ranges(["data/a"] * 20, list(range(0, 2000, 100)), list(range(50, 2050, 100)))
fs.pipe_file("data/new", b"x" * 50_000)
with fs.open("data/a", block_size=10_000) as file:
    file.seek(50_000)
    file.read(10)
try:
    fs.cat_file("data/none")
except FileNotFoundError:
    print("none")
"""

HTTP = """
import sys, fsspec
fs = fsspec.filesystem("http")
url = sys.argv[1].replace("://", "://user:CANARY@") + "/files/"
assert len(fs.cat_file(url + "a?token=CANARY")) == 102_400
assert len(fs.cat_file(url + "a", start=5, end=9)) == 4
assert len(fs.cat_file(url + "chunked")) == 102_400
with fs.open(url + "a", block_size=4096) as file:
    file.seek(50_000)
    file.read(10)
try:
    fs.cat_file(url + "reset")
except Exception as error:
    print(type(error).__name__)
"""

GOOGLE = """
import sys
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
client = storage.Client(project="p", credentials=AnonymousCredentials(),
    client_options={"api_endpoint": sys.argv[1]})
blob = client.bucket("data").blob("a b/c")
assert len(blob.download_as_bytes(checksum=None, raw_download=True)) == 102_400
assert len(blob.download_as_bytes(start=10, end=19, checksum=None, raw_download=True)) == 10
"""


def asked(file: OperationsFile) -> Counted:
    """How often each (kind, name, bytes) was recorded."""
    requests = file.requests
    names = [file.names[code] for code in requests.name.tolist()]
    return Counter(zip(requests.kind.tolist(), names, requests.nbytes.tolist(), strict=True))


def served(log: list[Served], scheme: str = "s3:/") -> Counted:
    """The same as the server has it."""
    return Counter((_kind(row), f"{scheme}{row.path}", row.sent + row.received) for row in log)


def _kind(row: Served) -> int:
    return LIST if row.method == "GET" and row.path.count("/") == 1 else KIND[row.method]


def without(counted: Counted, *words: str) -> Counted:
    return Counter({k: n for k, n in counted.items() if not any(w in k[1] for w in words)})


def clean(path: Path) -> None:
    """No secret is in any byte of what was recorded."""
    for file in path.rglob("*"):
        assert b"CANARY" not in (file.read_bytes() if file.is_file() else b"")


@pytest.fixture
def server() -> object:
    with object_server() as (url, store):
        yield url, store


def test_urllib3(recorded: Recorded, server: tuple[str, Store], tmp_path: Path) -> None:
    url, store = server
    ends = "ProtocolError\nProtocolError\nNewConnectionError\n"
    file = recorded(URLLIB3, url, prints=ends)
    rows = [row for row in store.log if row.path != "/not/storage"]
    mine, theirs = asked(file), served(rows)
    closed = (READ, "s3://data/a", 100)  # the server had sent all of what the program then left
    assert mine[closed] == 1
    mine -= Counter([closed])
    mine[READ, "s3://data/a", len(BODY)] += 1
    assert without(mine, "reset", "127.0.0.1:9") - theirs == Counter(
        {(READ, "s3://data/a", 0): 1}  # for which there was no server
    )
    assert theirs - without(mine, "reset") == Counter({(READ, "s3://data/reset", len(BODY)): 2})
    failed = Counter(file.names[n] for n in file.requests.name[file.requests.failed].tolist())
    assert failed == {"s3://data/none": 1, "s3://data/reset": 2, "s3://data/a": 1}
    assert 1000 in file.requests.offset.tolist()
    clean(tmp_path)


def test_boto3(recorded: Recorded, server: tuple[str, Store], tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    url, store = server
    file = recorded(BOTO3, url, str(tmp_path / "large"), prints="none\n")
    assert asked(file) == _with_folder(served(store.log))
    large = file.requests.name == file.names.index("s3://data/large")
    reads = large & file.requests.of_kind(READ)
    assert sorted(file.requests.offset[reads].tolist()) == [0, 30_000, 60_000, 90_000]
    clean(tmp_path)


def test_s3fs(recorded: Recorded, server: tuple[str, Store], tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    pytest.importorskip("aiobotocore")
    url, store = server
    file = recorded(S3FS, url, prints="none\n")
    assert asked(file) == _with_folder(served(store.log))
    assert file.requests.failed.sum() == 1
    clean(tmp_path)


def test_files_over_http(recorded: Recorded, server: tuple[str, Store], tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    url, store = server
    file = recorded(HTTP, url, prints="ClientPayloadError\n")
    theirs = served(store.log, url)
    reset = {(READ, f"{url}/files/reset", len(BODY)): 1}
    assert without(asked(file), "reset") == theirs - Counter(reset)
    assert file.requests.failed.sum() == 1
    clean(tmp_path)


def test_google_cloud_storage(recorded: Recorded, server: tuple[str, Store]) -> None:
    pytest.importorskip("google.cloud.storage")
    url, store = server
    file = recorded(GOOGLE, url)
    assert len(file.requests) == len(store.log)
    media = [row.sent for row in store.log if row.path.startswith("/download/")]
    reads = file.requests.of_kind(READ)
    assert sorted(file.requests.nbytes[reads].tolist()) == sorted(media) == [10, len(BODY)]
    assert {file.names[n] for n in file.requests.name[reads].tolist()} == {"gs://data/a b/c"}


def test_s3torchconnector(recorded: Recorded, server: tuple[str, Store], tmp_path: Path) -> None:
    pytest.importorskip("s3torchconnector")
    url, store = server
    file = recorded(S3TORCH, url, prints="S3Exception\n")
    whole = [row.sent for row in store.log if row.path == "/data/a" and row.method == "GET"]
    assert int(file.requests.nbytes.sum()) == sum(whole) == len(BODY)
    clean(tmp_path)


def _with_folder(counted: Counted) -> Counted:
    """A listing is recorded on `s3://bucket/`."""
    return Counter(
        {(kind, n if n.count("/") > 2 else f"{n}/", b): c for (kind, n, b), c in counted.items()}
    )
