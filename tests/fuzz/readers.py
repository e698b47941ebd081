"""Every reader of a file that somebody else wrote, with a small whole file for it."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import settings

from tests.makers import calls_files, rocprof_profiles, xplane_files
from tests.makers.darshan_logs import Log, log_bytes, random_records
from tests.makers.dftracer_traces import PfwTrace
from tests.makers.dlio_results import Plan
from tests.makers.dlio_results import write as write_result
from tests.makers.event_files import Event, event_file, step_table
from tests.makers.object_files import objects_of
from tests.makers.pytorch_traces import kernel, steps, trace
from tests.makers.states_files import StatesFile
from tests.makers.step_journals import journal_of
from vanidl.compare import runs as comparing
from vanidl.dataset import npy, tfrecord
from vanidl.readers import dlio as kinds
from vanidl.readers import run_folder
from vanidl.readers.darshan import log
from vanidl.readers.dftracer import trace_file
from vanidl.readers.dlio import reading as dlio
from vanidl.readers.dlio.results import read_output, read_times
from vanidl.readers.format import Reading
from vanidl.readers.objects.log import build_counters
from vanidl.readers.objects.log import build_log as object_log
from vanidl.readers.objects.operations import read_operations
from vanidl.readers.pytorch import trace as pytorch_trace
from vanidl.readers.rocprof.profile import read_profiles
from vanidl.readers.states.log import read_states
from vanidl.readers.steps.fetches import build_fetch_table, find_workers
from vanidl.readers.steps.journal import Journal, read_journal
from vanidl.readers.steps.loop import build_profile
from vanidl.readers.tensorboard import event_file as tensorboard_event_file
from vanidl.readers.tracer.reading import read_recorded
from vanidl.readers.xprof import reading as xprof_reading
from vanidl.readers.xprof import trace_viewer, xplane

HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63 - 1, -(2**63), 2**64, 10**400, 1e308, -1e308, math.nan,
    math.inf, "", "9" * 30, "x" * 70_000, "\x1b]0;x\x07", "\ud800", "../../etc", [], {}, [[]],
    [None], {"a": 1},
)  # fmt: skip


def hostile_at(place: int) -> tuple[Any, ...]:
    """What is tried at a place: all of it in `make fuzz`, else a third, other ones next to it."""
    return HOSTILE_VALUES[place % 3 :: 3] if settings.default.derandomize else HOSTILE_VALUES


@dataclass(frozen=True)
class Reader:
    """A reader, the name that its file (and folder) must have, and the content of a whole one."""

    name: str
    content: bytes
    read: Callable[[Path], object]
    is_json: bool = False


def _pfw() -> bytes:
    written = PfwTrace()
    written.io("read", "/data/a.bin", 10, 5, size=4096, ret=4096, offset=0)
    written.io("fwrite", "/out/model.pt", 30, 5, size=4096, ret=4096)
    written.end(100)
    return written.text()


def _read_steps(path: Path) -> Journal:
    """A journal, of which everything is made that it is for."""
    journal = read_journal(path)
    build_profile(journal)
    build_fetch_table(journal, find_workers([journal]))
    return journal


def _journal() -> bytes:
    with TemporaryDirectory() as folder:
        return journal_of(
            Path(folder), "c0:2-3 f0:1-4 w0:1-5 o:8 k9:7-8 t9:14 w0:10-15 o:18 e0:20-21"
        ).read_bytes()


def _darshan() -> bytes:
    streams = random_records(1, ranks=2, files=2, rows=6)
    names = {2**63: b"/p/a.h5", 2**63 + 17: b"/p/b.h5"}
    return log_bytes(Log(names=names, dxt={"DXT_POSIX": streams}, compression="none"))


def _run_record() -> bytes:
    process = {"pid": 10, "parent_pid": 1, "command": "python train.py", "rank": 0,
               "first_seen_ns": 1, "last_seen_ns": 2, "state": "missing",
               "running": False}  # fmt: skip
    values = {
        "schema": run_folder.RUN_SCHEMA, "id": "r1", "command": ["python"], "folder": "/job",
        "host": "n1", "tracer": "darshan", "tracer_version": "3.4.7", "settings": {"A": "1"},
        "start_ns": 1, "end_ns": 2, "exit_status": 0, "ranks": 1,
        "mounts": [["/data", "lustre"]], "processes": [process], "losses": ["one"],
    }  # fmt: skip
    return json.dumps(values).encode()


def _ab_record() -> bytes:
    runs = [
        {"side": side, "pair": pair, "folder": f"{side}{pair}", "wall_time_s": 1.5,
         "exit_status": 0, "tracer": "darshan"}
        for pair in (0, 1) for side in "ab"
    ]  # fmt: skip
    head = {"schema": comparing.SCHEMA, "a": "old", "b": "new", "cache_policy": comparing.WARM}
    return json.dumps({**head, "runs": runs}).encode()


def _npy() -> bytes:
    import io

    held = io.BytesIO()
    np.save(held, np.zeros((3, 4), np.float32))
    return held.getvalue()


_KINETO = json.dumps(trace([*steps(2), kernel("gemm", 1050, 20)], distributedInfo={"rank": 0}))
_ROCPROF = rocprof_profiles.profile(
    rocprof_profiles.process(
        [rocprof_profiles.dispatch(10, 20), rocprof_profiles.dispatch(15, 40, 1)],
        [rocprof_profiles.copy(5, 8)],
        [("ProfilerStep#1", 1, 50)],
    )
)
_EVENTS = event_file([Event(1.7e9 + i, i, ("loss", "lr"), 7 * i) for i in range(5)])

_SESSION = (
    xplane_files.Event("Profiled batch", 0, 90, step=4),
    xplane_files.Event("IteratorGetNextOp::DoCompute", 5, 20, line="get_next"),
    xplane_files.Event("m/MatMul:MatMul", 30, 60, title="MatMul", line="tf_Compute/1"),
    xplane_files.Event("fusion.1", 30, 60, hlo_op="fusion.1", line="tf_XLAEigen/1"),
    xplane_files.Event("sgemm", 30, 60, plane="/device:GPU:0", line="Stream #1"),
)


def _objects() -> bytes:
    with TemporaryDirectory() as folder:
        return objects_of(Path(folder)).read_bytes()


def _read_objects(path: Path) -> object:
    """All that is made of one file."""
    file = read_operations(path)
    return (object_log(file), build_counters(file)) if len(file.requests) else file


def _dlio(name: str) -> bytes:
    with TemporaryDirectory() as folder:
        plan = Plan(ranks=1, epochs=1, steps=4)
        return (write_result(Path(folder), plan) / name).read_bytes()


def _read_dlio(path: Path) -> object:
    """One file, and all that is made of a result that holds it and nothing else."""
    is_output = path.name.endswith("_output.json")
    file = read_output(path) if is_output else read_times(path)
    kind = kinds.OUTPUT if is_output else kinds.TIMES
    return file, dlio.read_results({kind: (path,)}, Reading(lambda *_: None))


_CALLS = calls_files.Calls(
    {
        10: [
            calls_files.Call(calls_files.OPEN, 10, 5, 0, 3, 1),
            calls_files.Call(calls_files.READ, 20, 5, 0, 4096, 1, 4096),
            calls_files.Call(calls_files.FWRITE, 30, 5, 0, 100, 2, 100),
        ]
    },
    {1: b"/data/a.bin", 2: b"/out/model.pt"},
    (calls_files.Counted(1, 1, 40, 50, reads=1, bytes_read=7, read_sizes=(1,) + (0,) * 9),),
)


READERS: dict[str, Reader] = {
    "darshan": Reader("x.darshan", _darshan(), log.read_log),
    "kineto": Reader("x.pt.trace.json", _KINETO.encode(), pytorch_trace.read_trace, is_json=True),
    "kineto gzip": Reader(
        "x.pt.trace.json.gz", gzip.compress(_KINETO.encode(), mtime=0), pytorch_trace.read_trace
    ),
    "rocprof": Reader("7_results.json", _ROCPROF, read_profiles, is_json=True),
    "objects": Reader("node01-7.objects", _objects(), _read_objects),
    "dlio": Reader("0_output.json", _dlio("0_output.json"), _read_dlio, is_json=True),
    "dlio times": Reader(
        "per_epoch_stats.json", _dlio("per_epoch_stats.json"), _read_dlio, is_json=True
    ),
    "states": Reader("node01-7.states", StatesFile().content(), read_states),
    "steps": Reader("node01-7.steps", _journal(), _read_steps),
    "tfevents": Reader("events.out.tfevents.1.n.2.0", _EVENTS, tensorboard_event_file.read_steps),
    "input pipeline": Reader(
        "n.input_pipeline.pb", step_table([(0, 78.8), (1, 3.0)]), xprof_reading.read_durations
    ),
    "xplane": Reader("n.xplane.pb", xplane_files.xspace(_SESSION), xplane.read_xplane),
    "trace viewer": Reader(
        f"{xplane_files.SESSION}/n.trace.json.gz",
        json.dumps(xplane_files.viewer_trace(_SESSION)).encode(),
        trace_viewer.read_trace,
        is_json=True,
    ),
    "calls": Reader(_CALLS.name, calls_files.calls_file(_CALLS), read_recorded),
    "calls gzip": Reader(
        f"{_CALLS.name}.gz", gzip.compress(calls_files.calls_file(_CALLS), mtime=0), read_recorded
    ),
    "dftracer": Reader("x.pfw", _pfw(), trace_file.read_trace_file),
    "dftracer gzip": Reader("x.pfw.gz", gzip.compress(_pfw(), mtime=0), trace_file.read_trace_file),
    "run record": Reader("run.json", _run_record(), run_folder.read_record, is_json=True),
    "ab record": Reader(
        "ab.json", _ab_record(), lambda path: comparing.load(path.parent), is_json=True
    ),
    "tfrecord": Reader("x.tfrecord", _EVENTS, tfrecord.read_facts),
    "npy": Reader("x.npy", _npy(), npy.read_npy_facts),
}


def replaced(value: Any, place: int, new: Any) -> Any:
    """A JSON value in which the place-th value, counted from the outside, is another."""
    return _walk(value, [place], new)


def _walk(value: Any, left: list[int], new: Any) -> Any:
    left[0] -= 1
    if left[0] < 0:
        left[0] = 1 << 60
        return new
    if isinstance(value, dict):
        return {key: _walk(item, left, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, left, new) for item in value]
    return value


def count(value: Any) -> int:
    """How many values a JSON value holds, itself among them."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))
