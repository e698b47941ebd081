"""The law of every reader: what a file costs is bounded by its size, whatever it says.

Memory: at most 64 MB + 40 x the file's size + what the result holds. Time is bounded by the same
budgets, as every byte and object takes a bounded number of steps: text inflated and elements parsed
are counted instead of seconds, and calls where parts of a file are decoded one by one.
"""

from __future__ import annotations

import gc
import gzip
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from tests.fuzz.readers import READERS
from tests.makers.darshan_logs import Log, header_length, job_record, log_parts
from tests.makers.event_files import message
from vanidl.errors import InputError
from vanidl.readers import FORMATS, budget
from vanidl.readers.budget import Budget, bounded_name, read_whole, whole_number
from vanidl.readers.one_file import read_one

MB = 1 << 20


def darshan(*regions: tuple[int, int, bytes], names: bytes = b"", job: Log | None = None) -> bytes:
    """A log of version 3.41 with these regions: (number, version, text that is compressed)."""
    log = job or Log()
    size = header_length(log)
    parts = [zlib.compress(job_record(log)), zlib.compress(names, 6) if names else b""]
    table, versions = [0] * 130, [0] * 64
    at = size + len(parts[0])
    table[:2] = (at, len(parts[1])) if names else (0, 0)
    at += len(parts[1])
    for number, version, text in regions:
        packed = zlib.compress(text, 9)
        table[2 * number + 2 : 2 * number + 4] = at, len(packed)
        versions[number] = version
        parts.append(packed)
        at += len(packed)
    head = struct.pack("<8sqB7xQ130Q64I", b"3.41", 6567223, 0, 0, *table, *versions)
    return b"".join([head, *parts])


def kineto(text: bytes) -> bytes:
    return gzip.compress(text, 6)


_HEAD = struct.pack("<Qqq64sqq", 1, 0, -1, b"h", 0, 0)
_LINE = b'{"id":1,"name":"FH","cat":"dftracer","ph":"M","args":{"name":"%d","value":"%d"}}\n'

_CALL = b'{"name":"read","cat":"POSIX","ph":1,"pid":%d,"tid":%d,"ts":1,"dur":1,"args":{"ret":1}}\n'


def one_line(events: bytes) -> bytes:
    """A profile of one plane with one line."""
    return message(1, message(2, b"/host:CPU") + message(3, message(2, b"Steps") + events))


HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "twenty regions": ("darshan", lambda: darshan(*((n, 1, bytes(8 * MB)) for n in range(20, 40)))),
    "counters": ("darshan", lambda: darshan((1, 4, bytes(60 * MB)))),
    "empty names": ("darshan", lambda: darshan(names=b"".join(
        struct.pack("<Q", i) + b"\0" for i in range(MB // 2)))),
    "one long name": ("darshan", lambda: darshan(names=b"12345678" + b"n" * 20 * MB + b"\0")),
    "empty traces": ("darshan", lambda: darshan((10, 1, _HEAD * 200_000))),
    "stripes": ("darshan", lambda: darshan((8, 1, bytes(40 * MB)))),
    "a long command": ("darshan", lambda: darshan(job=Log(command=b"x" * 60 * MB))),
    "a long key": ("kineto gzip", lambda: kineto(b'{"' + b"k" * 60 * MB + b'":1}')),
    "an array of nothing": (
        "kineto gzip", lambda: kineto(b'{"deviceProperties":[' + b"{}," * 4_000_000 + b"{}]}")
    ),
    "nested in one event": (
        "kineto gzip", lambda: kineto(b'{"traceEvents":[{"a":[' + b"[]," * 4_000_000 + b"[]]}]}")
    ),
    "not a number": (
        "kineto gzip", lambda: kineto(b'{"traceEvents":[' + b"nan," * 200_000 + b"1]}")
    ),
    "broken elements": (
        "kineto gzip", lambda: kineto(b'{"traceEvents":[' + b"x," * 100_000 + b"1]}")
    ),
    "a long line": ("dftracer gzip", lambda: gzip.compress(b"[" + b"[]," * 4_000_000 + b"1]")),
    "hashes": (
        "dftracer gzip", lambda: gzip.compress(b"".join(_LINE % (i, i) for i in range(60_000)), 1)
    ),
    "an event of fields": ("xplane", lambda: one_line(message(4, b"\x22\0" * 100_000))),
    "events of nothing": ("xplane", lambda: one_line(b"\x22\0" * 500_000)),
    "planes of nothing": ("xplane", lambda: b"\x0a\0" * 100_000),
    "lines of nothing": ("xplane", lambda: message(1, message(3, b"\x22\0") * 50_000)),
    "empty fields": ("xplane", lambda: b"\x0a\0" * (MB // 8)),
    "empty names of events": ("xplane", lambda: message(1, message(4, b"\x12\0") * 50_000)),
    "processes": ("dftracer", lambda: b"".join(_CALL % (i, i) for i in range(20_000))),
    "rows of nothing": ("steps", lambda: READERS["steps"].content + bytes(4 * MB)),
    "requests of nothing": ("objects", lambda: READERS["objects"].content + bytes(4 * MB)),
    "steps of nothing": ("input pipeline", lambda: b"\x22\0" * (MB // 8)),
    "nested steps": ("dlio", lambda: b'{"1":{"proc":{"a":[' + b"[[]]," * MB + b"1]}}}"),
    "steps of no time": ("dlio", lambda: b'{"1":{"proc":{"a":[' + b"0," * MB + b"1]}}}"),
    "records": ("tfevents", lambda: READERS["tfevents"].content * 300),
    "a step of 5,001 digits": (
        "trace viewer",
        lambda: READERS["trace viewer"].content.replace(b'"4"', b'"%b"' % (b"4" * 5001)),
    ),
}  # fmt: skip
"""What is hostile -> (its reader, the content of the file)."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_costs_no_more_than_its_size_allows(tmp_path: Path, name: str) -> None:
    which, content = HOSTILE[name]
    reader, data = READERS[which], content()
    path = tmp_path / reader.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    size = len(data)
    del data
    gc.collect()
    tracemalloc.start()
    try:
        result: object = read_one(reader.read, path)
    except InputError as error:
        result = str(error)
        assert len(result) < 1000 + len(str(path))
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result is not None
    assert peak - held <= 64 * MB + 40 * size


IN_PIECES = [name for name, (which, _) in HOSTILE.items() if which in ("xplane", "dftracer")]


@pytest.mark.parametrize("name", IN_PIECES)
def test_a_file_takes_no_more_steps_than_its_size_allows(tmp_path: Path, name: str) -> None:
    """Calls of functions, in Python and C, instead of seconds, which no test can rely on."""
    which, content = HOSTILE[name]
    reader, data = READERS[which], content()
    path = tmp_path / reader.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        read_one(reader.read, path)
    except InputError:
        pass
    finally:
        sys.setprofile(before)
    assert calls <= 1_500_000 + 10 * len(data)  # some take 0.1 us, some of NumPy's 5


def test_every_format_has_a_hostile_file() -> None:
    of_format = {
        "darshan": "darshan", "pytorch": "kineto", "tensorboard": "tfevents", "xprof": "xplane",
        "dftracer": "dftracer", "steps": "steps", "objects": "objects", "dlio": "dlio",
    }  # fmt: skip
    tried = {which.split()[0] for which, _ in HOSTILE.values()}
    assert {of_format[known.name] for known in FORMATS} <= tried


def test_the_budget_is_one_for_all_regions_of_a_log(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(budget, "FREE_TEXT_BYTES", 1 * MB)
    monkeypatch.setattr(budget, "TEXT_BYTES_A_BYTE", 0)
    inflated = 0
    keep = Budget.inflate

    def count(self: Budget, nbytes: int) -> bool:
        nonlocal inflated
        inflated += nbytes
        return keep(self, nbytes)

    monkeypatch.setattr(Budget, "inflate", count)
    path = tmp_path / "x.darshan"
    path.write_bytes(darshan(*((n, 1, bytes(MB // 2)) for n in range(20, 60))))
    READERS["darshan"].read(path)
    # The last to be refused gives one byte too many; each after it one more.
    assert inflated <= MB + MB // 2 + 100


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), MemoryError(), RecursionError(), ZeroDivisionError(), StopIteration()],
)
def test_whatever_goes_wrong_is_the_verdict_of_the_file(error: Exception) -> None:
    def read(path: Path) -> None:
        raise error

    with pytest.raises(InputError, match=r"^/x/log: expected") as found:
        read_one(read, Path("/x/log"))
    assert found.value.__cause__ is error


def test_an_interruption_is_no_verdict() -> None:
    def read(path: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_one(read, Path("x"))


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("17", 17), ("", None), ("-1", None), ("²", None), ("٣", None), ("9" * 5001, None)],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_long_names_stay_different() -> None:
    names = ["a" * 5000 + end for end in ("b", "c", "\ud800")]
    short = [bounded_name(name) for name in names]
    assert len(set(short)) == 3
    assert all(len(name) <= budget.MOST_NAME_CHARACTERS for name in short)
    assert bounded_name("a" * 4096) == "a" * 4096


def test_a_sparse_file_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(budget, "_memory_bytes", lambda: 1000)
    (tmp_path / "x").write_bytes(bytes(501))
    with pytest.raises(InputError, match="fits into memory"):
        read_whole(tmp_path / "x")


def test_many_unreadable_logs_give_few_warnings(tmp_path: Path) -> None:
    from vanidl.merge.load import Inputs, read_trace

    (tmp_path / "x.pfw").write_bytes(READERS["dftracer"].content)
    for i in range(130):
        (tmp_path / f"{i}.darshan").touch()
    warnings = read_trace(tmp_path, Inputs()).warnings
    found = [w.message for w in warnings if w.code == "unreadable"]
    assert len(found) == 101
    assert found[-1].startswith("and 30 more files")


def test_parts_of_a_log_still_come_together() -> None:
    """The writer above is the one that the other tests use, with regions of any number."""
    assert darshan() == b"".join(log_parts(Log()))
