"""Absurd sizes: bombs, names, counts, nesting and steps cost neither memory nor time."""

from __future__ import annotations

import bz2
import gzip
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import verdicts
from tests.fuzz.readers import READERS
from tests.makers.darshan_logs import Log, header, header_length, job_record
from tests.makers.event_files import Event, event_file
from tests.makers.large_logs import Workload, write_log
from tests.makers.pytorch_traces import event, steps, trace
from vanidl.check.check import check
from vanidl.encoding import budget

EVENTS = "events.out.tfevents.1700000000.node000.7.0"
T0 = 1_700_000_000.0
FREE_BYTES = 1 << 20


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "FREE_TEXT_BYTES", FREE_BYTES)  # smaller bombs, made faster


def summed_up(folder: Path) -> verdicts.Outcome:
    """The summary of a run, in a process with 3 GiB and a minute; a refusal is one, too."""
    found = verdicts.fresh_outcome(folder, FREE_BYTES)
    assert found.state in ("answer", verdicts.REFUSED), found
    return found


def messages(found: verdicts.Outcome) -> str:
    if found.answer is None:
        return found.message
    return " ".join(w["message"] for w in found.answer["coverage"]["warnings"])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_log(tmp_path / "me_python_id7-7_1-2-3-4_1.darshan", Workload(40, ranks=1, files=2))
    return tmp_path


@pytest.mark.parametrize(
    "rows",
    [
        [(T0, 0), (T0 + 1, 10**9), (T0 + 2, 2 * 10**9)],
        [(T0, -(2**63)), (T0 + 1, 0), (T0 + 2, 2**63 - 1)],
        [(0.0, 1), (8e9, 2)],
        [(-1e300, 1), (1e300, 2), (T0, 3), (T0 + 1, 4)],
    ],
    ids=["billions", "ends of int64", "centuries", "beyond"],
)
def test_steps_of_an_event_file(run: Path, rows: list[tuple[float, int]]) -> None:
    (run / EVENTS).write_bytes(event_file([Event(wall, step) for wall, step in rows]))
    assert summed_up(run).answer["io"]["ops"] == 40


def test_a_record_of_a_billion_steps_that_is_not_there(run: Path) -> None:
    content = event_file([Event(T0, 1), Event(T0 + 1, 2)])
    (run / EVENTS).write_bytes(content + struct.pack("<QI", 10**9 * 50, 0))
    found = summed_up(run)
    assert found.answer["io"]["ops"] == 40
    assert "damaged" in messages(found)


def regions(path: Path, log: Log, parts: dict[str, bytes]) -> None:
    """A log whose regions hold the given bytes."""
    packed = zlib.compress if log.compression == "zlib" else bz2.compress
    job = packed(job_record(log))
    at, places = header_length(log) + len(job), {}
    for name, part in parts.items():
        places[name] = (at, len(part), {"POSIX": 4}.get(name, 1))
        at += len(part)
    path.write_bytes(header(log, places) + job + b"".join(parts.values()))


@pytest.mark.parametrize("compression", ["zlib", "bz2"])
@pytest.mark.parametrize("region", ["names", "POSIX", "DXT_POSIX"])
def test_a_bomb_in_a_region(tmp_path: Path, region: str, compression: str) -> None:
    pack = (
        _pack(zlib.compressobj(1), 60) if compression == "zlib" else
        _pack(bz2.BZ2Compressor(1), 60)
    )  # fmt: skip
    regions(tmp_path / "x.darshan", Log(compression=compression), {region: pack})
    found = summed_up(tmp_path)
    assert "decompressed size exceeds" in messages(found)


def test_modules_beyond_a_limit_are_one_sentence(tmp_path: Path, monkeypatch) -> None:
    """Not damage: their content is not known, and the option that raises the limit is named."""
    monkeypatch.setattr(budget, "TEXT_BYTES_A_BYTE", 1)
    pack = _pack(zlib.compressobj(1), 60)
    names = ["MPI-IO", "STDIO", "APXC", "DFS"]
    regions(tmp_path / "x.darshan", Log(), dict.fromkeys(names, pack))
    ((loss, *_),) = [verdict.missing for verdict in check([tmp_path])]
    assert loss.startswith("4 modules (MPI-IO, STDIO, APXC, ...): decompressed size exceeds ")
    assert loss.endswith("(--max-memory raises it)")
    monkeypatch.setenv(budget.VARIABLE, str(1 << 30))
    assert all("exceeds" not in loss for each in check([tmp_path]) for loss in each.missing)


def _pack(compressor: object, mebibytes: int) -> bytes:
    """So many MiB of zeros, compressed."""
    block = bytes(1 << 20)
    parts = [compressor.compress(block) for _ in range(mebibytes)]
    return b"".join(parts) + compressor.flush()


def test_enormous_names_in_a_log(tmp_path: Path) -> None:
    names = struct.pack("<Q", 1) + b"/" + b"n" * 3_000_000 + b"\0"
    write_log(tmp_path / "x.darshan", Workload(40, ranks=1, files=2), Log())
    regions(tmp_path / "y.darshan", Log(job=(1000, 4711, 1)), {"names": zlib.compress(names)})
    assert summed_up(tmp_path).answer is not None


TRACES: dict[str, Callable[[], bytes]] = {
    "a long name": lambda: _trace(event("n" * 20_000_000, 1200, 5)),
    "many names": lambda: _trace(*(event(f"n{i}", 1200 + i, 5) for i in range(10_000))),
    "deep nesting": lambda: _trace()[:-1] + b', "x": ' + b"[" * 2_000_000 + b"}",
    "a deep event": lambda: _trace()[:-1] + b', "x": [' + b'{"a":' * 100_000,
    "not a number": lambda: json.dumps(
        trace([*steps(2), event("a", float("nan"), float("inf")), event("b", 1, 10**400)])
    ).encode(),
}


def _trace(*more: object) -> bytes:
    return json.dumps(trace([*steps(3), *more])).encode()


@pytest.mark.parametrize("name", TRACES)
def test_a_profiler_trace(run: Path, name: str) -> None:
    (run / "x.pt.trace.json").write_bytes(TRACES[name]())
    assert summed_up(run).answer["io"]["ops"] == 40


@pytest.mark.parametrize("inside", [b"[", b"1,"])
def test_a_compressed_bomb_of_text(run: Path, inside: bytes) -> None:
    whole = READERS["kineto"].content
    bomb = gzip.compress(whole[:-1] + b', "x": [' + inside * (20_000_000 // len(inside)), 1)
    (run / "x.pt.trace.json.gz").write_bytes(bomb)
    found = summed_up(run)
    assert "x.pt.trace.json.gz" in messages(found)
    assert found.answer["io"]["ops"] == 40
