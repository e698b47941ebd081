"""What PyDarshan says of logs: counters by Darshan's own library, in children that it may end.

The library cannot open a bz2 log, and of a damaged one it hands out what damage made of the
records, or aborts. So such a log is given to it as `salvaged`: the same log, of each region what
plain zlib or bz2 inflates whole, compressed again.
"""

from __future__ import annotations

import atexit
import bz2
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.errors import InputError
from vanidl.readers.darshan import dxt
from vanidl.readers.darshan.counters import (
    LAYERS,
    build_heatmap_records,
    build_layer,
    build_stripe_records,
    split_daos_files,
)
from vanidl.readers.darshan.header import (
    JOB,
    NAMES,
    Region,
    drop_overlapping,
    name_slots,
    read_header,
)
from vanidl.readers.records import CounterFile

SERVER = """
import os, pickle, signal, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from darshan.backend import cffi_backend as peer
def answer(paths, target, layers):
    with open(target, "ab", buffering=0) as answers:
        for path in paths:
            log, found = peer.log_open(path), {}
            there = peer.log_get_modules(log) if log["handle"] != peer.ffi.NULL else ()
            for module in (m for m in (*layers, "LUSTRE", "HEATMAP") if m in there):
                rows = list(iter(lambda: peer.log_get_record(log, module), None))
                names = (peer.counter_names(module), peer.fcounter_names(module))
                found[module] = (rows, names if module in layers else ())
            pickle.dump(found, answers)
requests, over = sys.stdin.buffer, os.dup(1)
os.dup2(2, 1)  # what the library prints is no answer
while True:
    try:
        request = pickle.load(requests)
    except EOFError:
        break
    child = os.fork()
    if not child:
        signal.alarm(120)
        try:
            answer(*request)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.write(over, b".")
"""
"""Imports PyDarshan once; each request is answered by a fork, which the library may end."""


@cache
def _server() -> subprocess.Popen[bytes]:
    """The one of this process; it ends with it."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, bufsize=0,
    )  # fmt: skip
    atexit.register(server.communicate)  # its time is that of the tests
    return server


def counters_by_pydarshan(paths: Sequence[str | Path]) -> dict[str, CounterFile]:
    """Counters by path, of logs that are whole; no records of one that ends the child."""
    left, found = [os.fspath(path) for path in paths], {}
    while left:
        with tempfile.NamedTemporaryFile() as answers:
            server = _server()
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(pickle.dumps((left, answers.name, tuple(LAYERS))))
            assert server.stdout.read(1) == b"."
            read = list(_pickled(answers))
        found |= {path: _file(answer) for path, answer in zip(left, read, strict=False)}
        if len(read) < len(left):
            found[left[len(read)]] = CounterFile((), ("Darshan's library ended its process",))
        left = left[len(read) + 1 :]
    return found


def _pickled(file: Any) -> Iterator[Any]:
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(file)


def _file(answer: dict[str, Any]) -> CounterFile:
    layers, losses = [], []
    for module, (rows, names) in answer.items():
        if not rows or module not in LAYERS:
            continue
        ids = np.array([row["id"] for row in rows], np.uint64)
        ranks = np.array([row["rank"] for row in rows], np.int64)
        values = (np.array([row[k] for row in rows]).T for k in ("counters", "fcounters"))
        table = (ids, ranks, *(np.array(v, order="C") for v in values))
        records, loss = build_layer(module, *map(tuple, names), table)
        layers.append(records)
        losses += [loss] if loss else []
    stripes = [
        (row["id"], [(int(c["counters"][0]), int(c["counters"][1]), c["ost_ids"].tolist(),
                     *map(int, c["counters"][4:6])) for c in row["components"]])
        for row in answer.get("LUSTRE", ((), ()))[0]
    ]  # fmt: skip
    bins = [
        (r["id"], r["rank"], r["bin_width_seconds"], r["write_bins"], r["read_bins"])
        for r in answer.get("HEATMAP", ((), ()))[0]
    ]
    return CounterFile(
        tuple(split_daos_files(layers)),
        tuple(losses),
        tuple(build_stripe_records(stripes)),
        tuple(build_heatmap_records(bins)),
    )


def salvaged(content: bytes) -> bytes:
    """The log with what is whole of each region in zlib, without traced operations.

    Raises:
        InputError: It is no Darshan log, of an unknown version, or cut in its header.
    """
    data = memoryview(content)
    header, _ = drop_overlapping(read_header(data, ""), len(data))
    kept = [r for r in header.regions.values() if r.name not in dxt.LAYERS]
    body, places = b"", dict[str, tuple[int, int]]()
    for region in sorted(kept, key=lambda r: (r.name != JOB, r.start)):
        raw = whole_streams(content, region, header.compression)
        packed = zlib.compress(raw) if raw else b""
        places[region.name] = header.length + len(body), len(packed)
        body += packed
    table = struct.Struct(f"{header.byte_order}{2 + 2 * header.layout.slots}Q")
    new = [n for name in (NAMES, *name_slots(header.layout)) for n in places.get(name, (0, 0))]
    head = bytearray(content[: header.length])
    head[16] = 0  # compressed with zlib
    table.pack_into(head, header.length - 4 * header.layout.slots - table.size, *new)
    return bytes(head) + body


def whole_streams(content: bytes, region: Region, compression: str) -> bytes:
    """All whole streams of a region before the first damage; of a cut one its beginning, too."""
    left, cut, text = content[region.start : region.end], region.end > len(content), b""
    if compression == "none":
        return left
    while left:
        inflater: Any = zlib.decompressobj() if compression == "zlib" else bz2.BZ2Decompressor()
        try:
            part = inflater.decompress(left)
        except (zlib.error, OSError):
            return text
        if not inflater.eof:
            return text + part if cut else text
        text, left = text + part, inflater.unused_data
    return text


def salvaged_log(path: Path, folder: Path) -> Path:
    """A whole log of what is whole of one, in a folder; the log itself where nothing can be."""
    try:
        content = salvaged(path.read_bytes())
    except InputError:
        return path
    target = folder / path.name
    target.write_bytes(content)
    return target
