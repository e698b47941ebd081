"""Whole files around hostile values: a format's own writer writes what no program would.

Checksums, lengths and compression are right, so that what is wrong reaches the code behind them.
A way is a function of random numbers that gives (name of the file, content), or, where files of a
result only mean something together, all of them.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.fuzz import wire
from tests.fuzz.readers import HOSTILE_VALUES, READERS, count, replaced
from tests.makers import xplane_files
from tests.makers.darshan_logs import (
    POSIX_COUNTERS,
    POSIX_TIMES,
    Log,
    Record,
    log_bytes,
    random_records,
)
from tests.makers.dlio_results import GIB, Plan
from tests.makers.dlio_results import write as write_result
from tests.makers.event_files import Event, event_body, event_file, record

Rng = np.random.Generator
Written = tuple[str, bytes]

INTEGERS = (0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**40, 2**61, 2**62, 2**63 - 1, -(2**63))
SECONDS = (0.0, -1.0, 1e-300, 1e9, 1e18, 1e300, math.inf, -math.inf, math.nan)
NAMES = (
    b"", b"/", b"a" * 70_000, b"/d" * 2000, b"\xff\xfe", "\u202e\u0085\ud7ff".encode(),
    b"=cmd|' /C calc'!A0", b"\x1b]0;x\x07", b"<script>alert(1)</script>", b"\n\n\t", b"../../x",
    "\ue000\ue001".encode(), b"!" * 3000,
)  # fmt: skip


def _of(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(0, len(values)))]


def darshan(rng: Rng) -> Written:
    """A log with odd fields in its job record, names, segments and counters."""
    names = {2**63 + 17 * i: b"/p/f%d" % i for i in range(4)}
    log = Log(names=names, dxt={"DXT_POSIX": random_records(int(rng.integers(1, 99)), rows=8)})
    for _ in range(int(rng.integers(1, 4))):
        log = _of(rng, _DARSHAN)(log, rng)
    return "u_x_id7-7_1-2-3-4_1.darshan", log_bytes(log)


def _job(log: Log, rng: Rng) -> Log:
    job = [int(_of(rng, INTEGERS)) if rng.random() < 0.5 else n for n in log.job]
    return replace(log, job=tuple(job))


def _times(log: Log, rng: Rng) -> Log:
    start, end = ([_of(rng, INTEGERS), log.start[1]] for _ in "ab")
    return replace(log, start=tuple(start), end=tuple(end) if rng.random() < 0.5 else log.end)


def _texts(log: Log, rng: Rng) -> Log:
    name = _of(rng, NAMES)
    names = {key: _of(rng, NAMES).replace(b"\0", b"") for key in log.names}
    values = ("\u00b2".encode(), b"9" * 5001, b"-1", b"0", name[:40])
    metadata = b"fork_parent=%b\nlib_ver=%b\n" % (_of(rng, values)[:900], name[:90])
    mounts = [("x", "/"), (_of(rng, ("ext4", "é" * 900)), "/p")]
    return replace(log, names=names, metadata=metadata[:1024], command=name, mounts=mounts)


def _segments(log: Log, rng: Rng) -> Log:
    rows = [
        (_of(rng, INTEGERS), _of(rng, INTEGERS), _of(rng, SECONDS), _of(rng, SECONDS), 1)
        for _ in range(int(rng.integers(1, 9)))
    ]
    odd = Record(2**63, int(_of(rng, INTEGERS)), "n" * int(rng.integers(0, 64)), rows, rows[:2])
    return replace(log, dxt={"DXT_POSIX": [*log.dxt["DXT_POSIX"], [odd]]})


def _counters(log: Log, rng: Rng) -> Log:
    rows = [
        (
            2**63 + 17 * i,
            int(_of(rng, INTEGERS)),
            [int(_of(rng, INTEGERS)) if rng.random() < 0.2 else 3 for _ in range(POSIX_COUNTERS)],
            [float(_of(rng, SECONDS)) if rng.random() < 0.2 else 0.5 for _ in range(POSIX_TIMES)],
        )
        for i in range(3)
    ]
    return replace(log, counters={"POSIX": rows})


_DARSHAN = (_job, _times, _texts, _segments, _counters)


def _json(reader: str, name: str) -> Callable[[Rng], Written]:
    def written(rng: Rng) -> Written:
        content = _with_hostile_values(READERS[reader].content, rng)
        return name, gzip.compress(content) if name.endswith(".gz") else content

    return written


def _with_hostile_values(content: bytes, rng: Rng) -> bytes:
    """A JSON text with odd values in one to three of its places."""
    value = json.loads(content)
    for _ in range(int(rng.integers(1, 4))):
        value = replaced(value, int(rng.integers(0, count(value))), _of(rng, HOSTILE_VALUES))
    return json.dumps(value).encode()


def dftracer(rng: Rng) -> Written:
    """A trace with odd values in some of its lines."""
    lines = READERS["dftracer"].content.splitlines()
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(0, len(lines)))
        try:
            value = json.loads(lines[i])
        except ValueError:
            continue
        place = int(rng.integers(0, count(value)))
        lines[i] = json.dumps(replaced(value, place, _of(rng, HOSTILE_VALUES))).encode()
    return "x.pfw", b"\n".join(lines)


def event_files(rng: Rng) -> Written:
    """Steps of odd numbers, times and tags."""
    events = [
        Event(
            float(_of(rng, (*SECONDS, 1.7e9 + i, 253402300799.0))),
            int(_of(rng, (*INTEGERS, i))),
            tuple(_of(rng, NAMES).decode("utf-8", "replace")[:300] for _ in range(2)),
        )
        for i in range(6)
    ]
    return "events.out.tfevents.1700000000.n.2.0", event_file(events)


def xplane(rng: Rng) -> Written:
    """Events of odd times, steps and names."""

    def time() -> int:
        return max(0, int(_of(rng, (*INTEGERS, 5, 90)))) % 2**50

    events = [
        xplane_files.Event(
            _of(rng, ("Profiled batch", "IteratorGetNextOp::DoCompute", "x" * 9000, "9" * 5001)),
            *sorted((time(), time())), step=_of(rng, (None, 4, *INTEGERS)),
            line=_of(rng, ("Steps", "python", "tf_Compute/1")),
            plane=_of(rng, ("/host:CPU", "/device:GPU:0", "/device:TPU:0")),
        )
        for _ in range(5)
    ]  # fmt: skip
    start_ns = _of(rng, (None, xplane_files.START_NS, 0, 2**62))
    content = xplane_files.xspace(tuple(events), start_ns=start_ns)
    folder = _of(rng, (xplane_files.SESSION, "9999_12_31_23_59_59", "0000_00_00_00_00_00"))
    return f"plugins/profile/{folder}/n.xplane.pb", content


def protobuf_of_xplane(rng: Rng) -> Written:
    """A profile with fields changed at any depth, lengths right."""
    name = f"plugins/profile/{xplane_files.SESSION}/n.xplane.pb"
    return name, wire.changed(READERS["xplane"].content, rng)


def protobuf_of_steps(rng: Rng) -> Written:
    """A step table with fields changed at any depth."""
    name = f"plugins/profile/{xplane_files.SESSION}/n.input_pipeline.pb"
    return name, wire.changed(READERS["input pipeline"].content, rng)


def protobuf_of_events(rng: Rng) -> Written:
    """Event records with fields changed at any depth, checksums right."""
    bodies = [event_body(Event(1.7e9 + i, i, ("loss", "lr"))) for i in range(6)]
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(0, len(bodies)))
        bodies[i] = wire.changed(bodies[i], rng)
    return "events.out.tfevents.1700000000.n.2.0", b"".join(map(record, bodies))


def step_journal(rng: Rng) -> Written:
    """A journal of recorded steps with odd numbers in rows and odd values in its texts."""
    content = bytearray(READERS["steps"].content)
    for _ in range(int(rng.integers(1, 6))):
        row, column = int(rng.integers(1, len(content) // 32)), int(rng.integers(0, 4))
        struct.pack_into("<q", content, 32 * row + 8 * column, int(_of(rng, INTEGERS)))
    if rng.random() < 0.5:
        value = {"pid": 7, "host": "n", "rank": 0, "world_size": 1}
        value[_of(rng, tuple(value))] = _of(rng, HOSTILE_VALUES)
        text = json.dumps(value).encode()
        rows = -(-len(text) // 32)
        content[32:32] = struct.pack("<4q", 0, rows, 0, 0) + text.ljust(32 * rows)
    return "n-7.steps", bytes(content)


def _numbers(reader: str, name: str, widths: tuple[int, ...] = (8,)) -> Callable[[Rng], Written]:
    """Files of plain numbers and texts, without checksums: some of them odd ones, in their places.

    `widths` are those of the numbers in bytes. Half of the places are in the first 512 bytes, where
    headers are.
    """

    def made(rng: Rng) -> Written:
        packed = READERS[reader].content
        content = bytearray(gzip.decompress(packed) if name.endswith(".gz") else packed)
        for _ in range(int(rng.integers(1, 7))):
            width = int(_of(rng, widths))
            near = min(len(content), 512) if rng.random() < 0.5 else len(content)
            at = width * int(rng.integers(0, max(1, near // width)))
            odd = int(_of(rng, INTEGERS)).to_bytes(9, "little", signed=True)[:width]
            text = _of(rng, NAMES)[:40]
            new = odd if rng.random() < 0.8 else text
            content[at : at + len(new)] = new
        return name, gzip.compress(content, mtime=0) if name.endswith(".gz") else bytes(content)

    return made


_METRICS = {
    "train_au_percentage": (96.1, 97.2, 0.0, 1e9),
    "train_au_meet_expectation": ("success", "fail", "maybe"),
    "train_throughput_samples_per_second": (12.5, 0.0, 1e300),
    "train_io_mean_MB_per_second": (1500.0, 0.0, -1.0),
    "save_checkpoint_io_mean_GB_per_second": (2.5, 0.0, 1e300),
    "load_checkpoint_io_mean_GB_per_second": (4.5, 1e-300),
    "checkpoint_size_GB": (105.0, 0.0, 1e12),
}
"""Figures that MLPerf Storage's `summary.json` holds, of training and of checkpoints."""


def mlperf(rng: Rng) -> dict[str, bytes]:
    """A result of MLPerf Storage with odd values in one or two of its files.

    At times one of two results in a folder, as submissions hold them, at times one of checkpoints
    alone, of which nothing but the summary and the configuration is left.
    """
    later = bool(rng.random() < 0.6)
    plan = Plan(
        ranks=int(rng.integers(1, 4)),
        epochs=int(rng.integers(1, 4)),
        steps=int(rng.integers(1, 7)),
        blocks=int(rng.integers(1, 3)),
        later=later,
        counts_alike=later and bool(rng.random() < 0.5),
        evaluation=bool(rng.random() < 0.3),
        sample_nbytes=int(_of(rng, (GIB // 16, 0, 1, 2**62))),
        seed=int(rng.integers(0, 99)),
    )
    with TemporaryDirectory() as folder:
        root = write_result(Path(folder), plan)
        whole = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }
    summary = json.loads(whole["summary.json"])
    for name, values in _METRICS.items():
        if rng.random() < 0.5:
            value = _of(rng, values)
            each_epoch = name.endswith(("percentage", "samples_per_second"))
            summary["metric"][name] = [value] * plan.epochs if each_epoch else value
    whole["summary.json"] = json.dumps(summary).encode()
    (config,) = (name for name in whole if name.endswith(".yaml"))
    if rng.random() < 0.15:
        whole = {name: whole[name] for name in ("summary.json", config)}
    changed = dict(whole)
    for _ in range(int(rng.integers(1, 3))):
        name = _of(rng, ("summary.json", config, *whole))
        is_config = name == config
        changed[name] = (_odd_config if is_config else _with_hostile_values)(whole[name], rng)
    if rng.random() < 0.4:
        pair = {"unet3d/run_1": changed, "unet3d/run_2": whole}
        return {f"{at}/{name}": each for at, files in pair.items() for name, each in files.items()}
    return changed


def _odd_config(content: bytes, rng: Rng) -> bytes:
    """A configuration of Hydra's with odd values, names or depths in one to three of its lines."""
    lines = content.decode().splitlines()
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(0, len(lines)))
        name, colon, _ = lines[i].partition(":")
        odd = _of(rng, HOSTILE_VALUES)
        text = odd if isinstance(odd, str) else json.dumps(odd)
        lines[i] = _of(
            rng,
            (f"{name}{colon} {text}", f"{name}{colon}", f"{text}{colon} 1", " " * 40 + lines[i]),
        )
    return "\n".join(lines).encode("utf-8", "surrogatepass")


WAYS: dict[str, Callable[[Rng], Written]] = {
    "darshan": darshan,
    "kineto": _json("kineto", "n_10.1700000099000.pt.trace.json"),
    "kineto gzip": _json("kineto", "n_10.1700000099000.pt.trace.json.gz"),
    "dftracer": dftracer,
    "tfevents": event_files,
    "tfevents fields": protobuf_of_events,
    "xplane": xplane,
    "xplane fields": protobuf_of_xplane,
    "step table fields": protobuf_of_steps,
    "steps": step_journal,
    "trace viewer": _json(
        "trace viewer", f"plugins/profile/{xplane_files.SESSION}/n.trace.json.gz"
    ),
    "run record": _json("run record", "run.json"),
    "objects": _numbers("objects", "objects/n-7.objects"),
    "calls": _numbers("calls", READERS["calls"].name, (8, 4)),
    "calls gzip": _numbers("calls gzip", READERS["calls gzip"].name, (8, 4)),
    "states": _numbers("states", "states/n-7.states", (8, 4, 2, 1)),
    "dlio": _json("dlio", "0_output.json"),
    "dlio times": _json("dlio times", "per_epoch_stats.json"),
}

RESULTS: dict[str, Callable[[Rng], dict[str, bytes]]] = {"mlperf": mlperf}


def files_of(way: str, rng: Rng) -> dict[str, bytes]:
    """Name -> content of what a way writes."""
    return RESULTS[way](rng) if way in RESULTS else dict([WAYS[way](rng)])
