"""Hostile shapes of every format: few bytes that could cost much, each of any size.

A shape has a number of things (names, events, digits, levels, ...); what it costs to read them is
bounded by the size of the file, and grows with their number, not with its square.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tests.fuzz.readers import READERS
from tests.makers import calls_files, rocprof_profiles, states_files, xplane_files
from tests.makers.darshan_logs import Log, header_length, job_record
from tests.makers.event_files import Event, event_file, message, step_table
from tests.makers.xplane_files import number

MB = 1 << 20


@dataclass(frozen=True)
class Shape:
    """Content with so many things, for a reader; `count` of them are what memory is tried with.

    `few` are as many as show how steps grow, where one is large; None: by their count.
    """

    reader: str
    count: int
    make: Callable[[int], bytes]
    few: int | None = None


def darshan(*regions: tuple[int, int, bytes], names: bytes = b"", job: Log | None = None) -> bytes:
    """A log of version 3.41 with these regions: (number, version, text that is compressed)."""
    log = job or Log()
    size = header_length(log)
    parts = [zlib.compress(job_record(log)), zlib.compress(names, 6) if names else b""]
    table, versions = [0] * 130, [0] * 64
    at = size + len(parts[0])
    table[:2] = (at, len(parts[1])) if names else (0, 0)
    at += len(parts[1])
    for place, version, text in regions:
        packed = _compressed(text)
        table[2 * place + 2 : 2 * place + 4] = at, len(packed)
        versions[place] = version
        parts.append(packed)
        at += len(packed)
    head = struct.pack("<8sqB7xQ130Q64I", b"3.41", 6567223, 0, 0, *table, *versions)
    return b"".join([head, *parts])


@lru_cache(4)
def _compressed(text: bytes) -> bytes:
    return zlib.compress(text, 9)


_REGION = bytes(8 * MB)


def _names(n: int) -> bytes:
    return darshan(names=b"".join(struct.pack("<Q", i) + b"\0" for i in range(n)))


def _traces(files: int, segments: int) -> bytes:
    head = struct.pack("<Qqq64sqq", 1, 0, -1, b"h", 0, segments)
    return darshan((10, 1, (head + bytes(48 * segments)) * files))


def _false_starts(n: int) -> bytes:
    """A long stream, and places behind it that look as if another one began there."""
    segments = 3000
    head = struct.pack("<Qqq64sqq", 1, 0, -1, b"h", 0, segments)
    noise = np.random.default_rng(1).bytes(48 * segments)
    log = bytearray(darshan((10, 1, head + noise)))
    starts = b"\x78\xda" * n
    place = struct.calcsize("<8sqB7xQ") + 8 * (2 * 10 + 3)
    (length,) = struct.unpack_from("<Q", log, place)
    struct.pack_into("<Q", log, place, length + len(starts))
    return bytes(log) + starts


def _packed(text: bytes) -> bytes:
    return gzip.compress(text, 6)


def calls_of(slots: np.ndarray, names: dict[int, bytes] | None = None) -> bytes:
    """Calls of one thread."""
    return calls_files.calls_file(calls_files.Calls({10: slots}, names or {}))


def _failed(n: int) -> np.ndarray:
    slots = calls_files.read_loop(n)
    slots["result"] = -2
    return slots


def _renamed(n: int) -> np.ndarray:
    """One file that has a new name again and again."""
    slots = calls_files.read_loop(n)
    slots["call"], slots["high"], slots["file"] = calls_files.NAME, 8, 1
    return slots


def _dispatches(n: int) -> bytes:
    works = [rocprof_profiles.dispatch(i, 2 * n - i, stream=i) for i in range(n)]
    return rocprof_profiles.profile(rocprof_profiles.process(works))


def _kernels(n: int) -> bytes:
    names = [f"kernel {i}" for i in range(n)]
    works = [rocprof_profiles.dispatch(1, 2)]
    return rocprof_profiles.profile(rocprof_profiles.process(works, kernels=names))


def _kineto(events: bytes) -> bytes:
    return _packed(b'{"traceEvents":[' + events + b"]}")


_SPAN = b'{"ph":"X","cat":"%s","name":"%s","pid":1,"tid":1,"ts":%d,"dur":%d},'


def _spans(n: int, name: bytes = b"aten::mm", kind: bytes = b"cpu_op") -> bytes:
    """Each within the one before."""
    spans = (_SPAN % (kind, name.replace(b"#", b"%d" % i), i, 2 * n - 2 * i) for i in range(n))
    return _kineto(b"".join(spans)[:-1])


_STEP = _SPAN % (b"user_annotation", b"ProfilerStep#%b", 1, 5)
_HASH = b'{"id":1,"name":"FH","cat":"dftracer","ph":"M","args":{"name":"%d","value":"%d"}}\n'
_RANK = b'{"name":"PR","cat":"dftracer","ph":4,"pid":%d,"args":{"name":"rank","value":"%d"}}\n'
_SUM = (
    b'{"name":"read","cat":"POSIX","ph":3,"pid":%d,"tid":%d,"ts":1,'
    b'"args":{"ret":1,"dur":1,"dft_cnt":1}}\n'
)
_CALL = (
    b'{"name":"read","cat":"POSIX","ph":1,"pid":%d,"tid":%d,"ts":%d,"dur":%d,"args":{"ret":1}}\n'
)

_NUMBERED = b'{"id":%d,"name":"read","cat":"POSIX","ph":"X","pid":%d,"tid":1,"ts":1,"dur":1}\n'


def _calls(n: int) -> bytes:
    """Each within the one before, of one process."""
    return b"".join(_CALL % (1, 1, i, 2 * n - 2 * i) for i in range(n))


def one_line(events: bytes, more: bytes = b"") -> bytes:
    """A profile of one plane with one line."""
    line = message(3, message(2, b"Steps") + events)
    return message(1, message(2, b"/host:CPU") + more + line)


def _waits(n: int) -> bytes:
    """Empty events whose name means something, and a profile to be in."""
    known = number(1, 0) + message(2, b"IteratorGetNextOp::DoCompute")
    name = message(4, number(1, 0) + message(2, known))
    return one_line(b"\x22\0" * n, name) + READERS["xplane"].content


def _profile(n: int) -> bytes:
    """Operators on one thread, each within the one before."""
    return xplane_files.xspace(_nested(n))


def _nested(n: int) -> list[xplane_files.Event]:
    operators = [
        xplane_files.Event("m/MatMul:MatMul", i, 2 * n - i, title="MatMul", line="tf_Compute/1")
        for i in range(n)
    ]
    return [xplane_files.Event("Profiled batch", 0, 2 * n, step=4), *operators]


def _viewer(**event: object) -> bytes:
    whole = json.loads(READERS["trace viewer"].content)
    whole["traceEvents"] += [event]
    return json.dumps(whole).encode()


def _run_record(n: int) -> bytes:
    whole = json.loads(READERS["run record"].content)
    return json.dumps(whole | {"processes": whole["processes"] * n}).encode()


def _ab_record(n: int) -> bytes:
    whole = json.loads(READERS["ab record"].content)
    return json.dumps(whole | {"runs": whole["runs"] * n}).encode()


def _npy(n: int) -> bytes:
    shape = b"(" + b"1," * n + b")"
    head = b"{'descr':'<f4','fortran_order':False,'shape':" + shape + b"}\n"
    return b"\x93NUMPY\x02\0" + struct.pack("<I", len(head)) + head


def _dlio(steps: bytes) -> bytes:
    return b'{"1":{"proc":{"a":[' + steps + b"1]}}}"


def _epochs(n: int) -> bytes:
    (epoch,) = json.loads(READERS["dlio times"].content).values()
    return json.dumps({str(i + 1): epoch for i in range(n)}).encode()


def _rows(name: str, n: int) -> bytes:
    """The rows of a whole file once more and once more; its first row says what it is."""
    content = READERS[name].content
    size = 32 if name == "steps" else 48
    return content + content[size:] * n


SHAPES: dict[str, Shape] = {
    "regions": Shape("darshan", 20, lambda n: darshan(
        *((20 + i, 1, _REGION) for i in range(n)))),
    "counters": Shape("darshan", 60 * MB, lambda n: darshan((1, 4, bytes(n)))),
    "empty names": Shape("darshan", MB // 2, _names),
    "one long name": Shape("darshan", 28 * MB, lambda n: darshan(
        names=b"12345678" + b"n" * n + b"\0")),
    "empty traces": Shape("darshan", 200_000, lambda n: _traces(n, 0)),
    "operations of nothing": Shape("darshan", 200_000, lambda n: _traces(1, n)),
    "traces of nothing": Shape("darshan", 50_000, lambda n: _traces(n, 2)),
    "stripes": Shape("darshan", 40 * MB, lambda n: darshan((8, 1, bytes(n)))),
    "a long command": Shape("darshan", 60 * MB, lambda n: darshan(job=Log(command=b"x" * n))),
    "a long key": Shape("kineto gzip", 60 * MB, lambda n: _packed(b'{"' + b"k" * n + b'":1}')),
    "an array of nothing": Shape("kineto gzip", 4_000_000, lambda n: _packed(
        b'{"deviceProperties":[' + b"{}," * n + b"{}]}")),
    "nested in one event": Shape("kineto gzip", 4_000_000, lambda n: _kineto(
        b'{"a":[' + b"[]," * n + b"[]]}")),
    "not a number": Shape("kineto gzip", 200_000, lambda n: _kineto(b"nan," * n + b"1")),
    "broken elements": Shape("kineto gzip", 100_000, lambda n: _kineto(b"x," * n + b"1")),
    "false starts": Shape("darshan", 200_000, _false_starts),
    "levels": Shape("kineto", 200_000, lambda n: b'{"traceEvents":[' + b"[" * n + b"]" * n + b"]}"),
    "empty events": Shape("kineto gzip", 2_000_000, lambda n: _kineto(b"{}," * n + b"{}")),
    "spans in spans": Shape("kineto gzip", 20_000, _spans),
    "steps in steps": Shape("kineto gzip", 20_000, lambda n: _spans(
        n, b"ProfilerStep##", b"user_annotation")),
    "waits in waits": Shape("kineto gzip", 20_000, lambda n: _spans(
        n, b"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", b"user_annotation")),
    "names of spans": Shape("kineto gzip", 20_000, lambda n: _spans(n, b"aten::#")),
    "a step of many digits": Shape("kineto", 5_001, lambda n: READERS["kineto"].content.replace(
        b'"traceEvents": [', b'"traceEvents": [' + _STEP.replace(b"%b", b"4" * n))),
    "dispatches": Shape("rocprof", 20_000, lambda n: _dispatches(n)),
    "kernels": Shape("rocprof", 40_000, lambda n: _kernels(n)),
    "processes of a profile": Shape("rocprof", 40_000, lambda n: READERS["rocprof"].content[:-2]
        + b',{"metadata":{}}' * n + b"]}"),
    "levels of records": Shape("rocprof", 200_000, lambda n: (
        b'{"rocprofiler-sdk-tool":' + b'{"buffer_records":' * n + b"1" + b"}" * n + b"}")),
    "a long line": Shape("dftracer gzip", 4_000_000, lambda n: _packed(b"[" + b"[]," * n + b"1]")),
    "hashes": Shape("dftracer gzip", 60_000, lambda n: gzip.compress(
        b"".join(_HASH % (i, i) for i in range(n)), 1)),
    "processes": Shape("dftracer", 20_000, lambda n: b"".join(
        _CALL % (i, i, 1, 1) for i in range(n))),
    "sums of processes": Shape("dftracer", 4_000, lambda n: b"".join(
        _SUM % (i, 1) for i in range(n))),
    "copies of sums": Shape("dftracer", 20_000, lambda n: b"".join(
        _SUM % (i % 99, i) for i in range(n))),
    "samples": Shape("dftracer gzip", 200_000, lambda n: _packed(
        b'{"ph":2,"name":"cpu","type":7}\n' * n)),
    "ranks": Shape("dftracer gzip", 60_000, lambda n: gzip.compress(
        b"".join(_RANK % (i, i) for i in range(n)), 1)),
    "settings": Shape("dftracer gzip", 60_000, lambda n: _packed(
        b'{"ph":1,"name":"end","cat":"dftracer","pid":1,"ts":1,"args":{"cfg":{"io":1}}}\n' * n)),
    "members of events": Shape("dftracer gzip", 80, lambda n: (
        READERS["dftracer gzip"].content + gzip.compress(_CALL % (1, 1, 5, 1) * 5_000) * n), few=1),
    "calls in calls": Shape("dftracer", 20_000, _calls),
    "numbered processes": Shape("dftracer", 20_000, lambda n: b"".join(
        _NUMBERED % (i, i) for i in range(n))),
    "lines that are none": Shape("dftracer gzip", 4 * MB, lambda n: _packed(b"x\n" * n)),
    "members of nothing": Shape("dftracer gzip", 20_000, lambda n: (
        READERS["dftracer gzip"].content + gzip.compress(b"") * n)),
    "empty lines": Shape("dftracer gzip", 4 * MB, lambda n: _packed(b"\n" * n)),
    "lines of levels": Shape("dftracer", 200_000, lambda n: b'{"args":' + b"[" * n),
    "an event of fields": Shape("xplane", 100_000, lambda n: one_line(message(4, b"\x22\0" * n))),
    "events of nothing": Shape("xplane", 3_000_000, lambda n: one_line(b"\x22\0" * n)),
    "waits of nothing": Shape("xplane", 1_000_000, _waits),
    "planes of nothing": Shape("xplane", 100_000, lambda n: b"\x0a\0" * n),
    "lines of nothing": Shape("xplane", 50_000, lambda n: message(1, message(3, b"\x22\0") * n)),
    "empty fields": Shape("xplane", MB // 8, lambda n: b"\x22\0" * n),
    "empty names of events": Shape("xplane", 50_000, lambda n: message(
        1, message(4, b"\x12\0") * n)),
    "operators in operators": Shape("xplane", 10_000, _profile),
    "events of the viewer": Shape("trace viewer", 10_000, lambda n: json.dumps(
        xplane_files.viewer_trace(_nested(n))).encode()),
    "a viewer's step of many digits": Shape("trace viewer", 5_001, lambda n: _viewer(
        ph="X", pid=1, tid=1, name="x", ts=1, dur=1, args={"step_num": "4" * n})),
    "a viewer's long name": Shape("trace viewer", MB, lambda n: _viewer(
        ph="X", pid=1, tid=1, name="Profiled batch" * (n // 14), ts=1, dur=1)),
    "rows": Shape("steps", 8_000, lambda n: _rows("steps", n)),
    "rows of nothing": Shape("steps", MB, lambda n: READERS["steps"].content + bytes(n)),
    "requests": Shape("objects", 8_000, lambda n: _rows("objects", n)),
    "requests of nothing": Shape("objects", MB, lambda n: (
        READERS["objects"].content + bytes(n))),
    "calls": Shape("calls", 100_000, lambda n: calls_of(calls_files.read_loop(n))),
    "calls that failed": Shape("calls", 100_000, lambda n: calls_of(_failed(n))),
    "names of files": Shape("calls", 8_000, lambda n: calls_of(
        calls_files.read_loop(1), {i: b"/%d" % i for i in range(1, n)})),
    "names of one file": Shape("calls", 8_000, lambda n: calls_of(_renamed(n))),
    "calls of threads": Shape("calls gzip", 400, lambda n: gzip.compress(
        calls_files.calls_file(calls_files.Calls(
            {i: calls_files.read_loop(3) for i in range(1, n)})), mtime=0)),
    "calls of nothing": Shape("calls gzip", 60 * MB, lambda n: _packed(
        READERS["calls"].content + bytes(n))),
    "samples of threads": Shape("states", 20_000, lambda n: states_files.StatesFile(
        samples=[(0, k % 1000, states_files.RUNNING, 0, 0) for k in range(n)]).content()),
    "files of samples": Shape("states", 4_000, lambda n: states_files.StatesFile(
        names=[b"/data/%d" % k for k in range(n)]).content()),
    "steps of nothing": Shape("input pipeline", MB // 8, lambda n: b"\x22\0" * n),
    "steps of a table": Shape("input pipeline", 20_000, lambda n: step_table(
        [(i, 1.0) for i in range(n)])),
    "nested steps": Shape("dlio", MB, lambda n: _dlio(b"[[]]," * n)),
    "steps of no time": Shape("dlio", MB, lambda n: _dlio(b"0," * n)),
    "epochs": Shape("dlio times", 5_000, _epochs),
    "records": Shape("tfevents", 300, lambda n: READERS["tfevents"].content * n),
    "tags": Shape("tfevents", 20_000, lambda n: event_file(
        [Event(1.7e9, 1, tuple(f"t{i}" for i in range(n)), 5)])),
    "processes of a run": Shape("run record", 5_000, _run_record),
    "runs of a comparison": Shape("ab record", 2_000, _ab_record),
    "records of data": Shape("tfrecord", 300, lambda n: READERS["tfrecord"].content * n),
    "dimensions": Shape("npy", 4_000, _npy),
}  # fmt: skip
"""What there is many of -> the shape."""
