"""What the tracer's files hold, slot by slot: read after format.h alone, with no code of vanidl."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import ROOT

SOURCES = ROOT / "vanidl" / "record" / "tracer"
LIBRARY = SOURCES / "libvanidl_tracer.so"
CALLS = {
    int(number): name.lower()
    for name, number in re.findall(r"VT_(\w+) = (\d+),", (SOURCES / "format.h").read_text())
}
CHUNK, SLOT, SLOTS = 65536, 40, 1638
FIRST, *FACTORS = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, \
    0xA0761D6478BD642F, 0xE7037ED1A0B428DB  # fmt: skip
HEADER = np.dtype({
    "names": ["magic", "pid", "parent", "how", "start", "start_real", "end", "limit", "chunks",
              "counters", "missing_since", "missing", "reason", "names_missing",
              "other_read", "other_written", "rchar", "children"],
    "formats": ["S8", "<i4", "<i4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8",
                "<u4", "<u4", "<u8", "<u8", "<i8", "<u4"],
    "offsets": [0, 24, 28, 36, 40, 48, 64, 80, 96, 104, 112, 120, 128, 132, 136, 144, 152, 552],
    "itemsize": 556,
})  # fmt: skip
SLOT_TYPE = np.dtype([
    ("start", "<u8"), ("offset", "<i8"), ("result", "<i8"), ("size", "<u4"), ("duration", "<u4"),
    ("file", "<u4"), ("call", "u1"), ("duration_high", "u1"), ("check", "<u2"),
])  # fmt: skip
COUNTERS = np.dtype([
    ("file", "<u4"), ("layer", "u1"), ("unused", "V3"), ("first", "<u8"), ("last", "<u8"),
    *((name, "<u8") for name in (
        "reads", "writes", "opens", "closes", "seeks", "stats", "others", "syncs", "maps", "failed",
        "bytes_read", "bytes_written", "read_ns", "write_ns", "metadata_ns", "sync_ns",
        "read_end", "write_end")),
    ("read_sizes", "<u4", 10), ("write_sizes", "<u4", 10), ("rest", "V8"),
])  # fmt: skip
READS, WRITES = (1, 3), (2, 4)  # classes: number of a call >> 4


@dataclass(frozen=True)
class Call:
    """One call; `result` is negative where it failed."""

    thread: int
    name: str
    path: str
    start: int
    duration: int
    offset: int
    result: int
    size: int
    kind: int


@dataclass(frozen=True)
class RecordedCalls:
    """One file of the tracer."""

    header: np.void
    calls: Sequence[Call]
    counters: np.ndarray
    names: Mapping[int, str]
    damaged: int  # slots that are neither empty nor whole

    def moved(self, classes: tuple[int, int], end: str = "") -> Counter[str]:
        """Bytes by file, of files whose name ends so."""
        nbytes: Counter[str] = Counter()
        for call in self.calls:
            if call.kind >> 4 in classes and call.path.endswith(end):
                nbytes[call.path] += max(call.result, 0)
        return nbytes

    def read(self, end: str = "") -> Counter[str]:
        return self.moved(READS, end)

    def written(self, end: str = "") -> Counter[str]:
        return self.moved(WRITES, end)


def slots_of(path: Path) -> tuple[np.void, np.ndarray, np.ndarray, np.ndarray]:
    """Header, slots (chunk, place), which of them are whole, and all bytes."""
    data = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8) if path.suffix == ".gz" \
        else np.memmap(path, np.uint8, "r")  # fmt: skip
    header = np.frombuffer(data[:556].tobytes(), HEADER)[0]
    n = int(header["chunks"]) - 1
    if data[8] == 2:  # by the bytes of the slots: put back
        data = data.copy()
        for at in range(CHUNK, CHUNK * (n + 1), CHUNK):
            columns = data[at : at + SLOTS * SLOT].reshape(SLOT, SLOTS)
            data[at : at + SLOTS * SLOT] = columns.T.copy().ravel()
    chunks = data[CHUNK : CHUNK * (n + 1)].reshape(n, CHUNK)[:, : SLOTS * SLOT]
    slots = np.ascontiguousarray(chunks).view(SLOT_TYPE)
    words = slots.view("<u8").reshape(n, SLOTS, 5)
    at = np.arange(1, n + 1, dtype=np.uint64)[:, None] * np.uint64(CHUNK) + np.arange(
        SLOTS, dtype=np.uint64
    ) * np.uint64(SLOT)
    with np.errstate(over="ignore"):
        total = (at + np.uint64(1)) * np.uint64(FIRST)
        for k, factor in enumerate(FACTORS):
            word = words[..., k] & np.uint64(0xFFFFFFFFFFFF) if k == 4 else words[..., k]
            total += word * np.uint64(factor)
    whole = ((total >> np.uint64(48)).astype(np.uint16) == slots["check"]) & words.any(-1)
    return header, slots, whole, data


def read_calls(path: Path) -> RecordedCalls:
    """Every slot of a file, chunk by chunk, and its counters."""
    header, slots, whole, data = slots_of(path)
    names: dict[int, str] = {}
    rows = []
    pieces = [data[4096:CHUNK].view(COUNTERS)[: int(header["counters"])]]
    for k, chunk in enumerate(slots):
        thread, name = 0, b""
        for slot in chunk[whole[k]]:
            kind = int(slot["call"])
            if kind in (1, 2):
                raw = slot.tobytes()
                name = (name if kind == 2 else b"") + raw[: raw[37]]
                names[int(slot["file"])] = os.fsdecode(name)
            elif kind == 3:
                thread = int(slot["result"])
            elif kind == 4:
                pieces.append(data[CHUNK * (k + 1) + 256 : CHUNK * (k + 2)].view(COUNTERS))
                break
            else:
                rows.append((thread, slot))
    empty = (slots.view("u1").reshape(*slots.shape, SLOT) == 0).all(-1)
    of_counters = slots["call"][:, :1] == 4 if len(slots) else np.zeros((0, 1), bool)
    counters = np.concatenate([p[p["layer"] > 0] for p in pieces])
    calls = [_call(thread, slot, names) for thread, slot in rows]
    damaged = int((~whole & ~empty & ~of_counters).sum())
    return RecordedCalls(header, calls, counters, names, damaged)


def _call(thread: int, slot: np.void, names: Mapping[int, str]) -> Call:
    kind = int(slot["call"])
    path = names.get(int(slot["file"]), "")
    duration = int(slot["duration"]) + (int(slot["duration_high"]) << 32)
    return Call(
        thread, CALLS[kind], path, int(slot["start"]), duration, int(slot["offset"]),
        int(slot["result"]), int(slot["size"]), kind,
    )  # fmt: skip


def all_calls(folder: Path) -> Iterator[RecordedCalls]:
    """Those of all processes, in the order in which they began."""
    paths = [*folder.glob("*.calls"), *folder.glob("*.calls.gz")]
    for path in sorted(paths, key=lambda p: int(p.name.split("-")[1].split(".")[0])):
        yield read_calls(path)


def library() -> Path:
    """The tracer's library, compiled where it is missing or older than its sources; else a skip."""
    newest = max(p.stat().st_mtime for p in SOURCES.glob("*.[ch]"))
    if not LIBRARY.is_file() or LIBRARY.stat().st_mtime < newest:
        command = [sys.executable, "setup.py", "-q", "build_tracer", "--inplace"]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
        if done.returncode or not LIBRARY.is_file():
            pytest.skip("the tracer is not compiled: make, or pip install --editable .")
    return LIBRARY


def run_traced(
    command: Sequence[str],
    folder: Path,
    within: Path | None = None,
    *,
    check: bool = True,
    **variables: str,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command under the library alone; its files go to the folder."""
    folder.mkdir(exist_ok=True)
    environment = {
        **os.environ, "LD_PRELOAD": str(library()), "VANIDL_TRACER": str(folder), **variables,
    }  # fmt: skip
    return subprocess.run(command, env=environment, cwd=within, check=check, capture_output=True)
