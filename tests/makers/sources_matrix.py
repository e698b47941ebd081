"""The ways by which operations and spans reach a trace: every source, through its own files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from tests.makers import pytorch_traces, rocprof_profiles, xplane_files
from tests.makers.darshan_logs import Log, Record, log_bytes
from tests.makers.dftracer_traces import PfwTrace
from tests.makers.event_files import Event, event_file
from tests.makers.records import Io, Span, darshan_log, profile
from vanidl.model.trace import SpanKind
from vanidl.readers.darshan.log import read_log
from vanidl.readers.dftracer import reading, trace_file
from vanidl.readers.dftracer import reading as dftracer_spans
from vanidl.readers.pytorch import trace as pytorch_trace
from vanidl.readers.records import ProfileTrace, TracerLog
from vanidl.readers.rocprof import profile as rocprof_profile
from vanidl.readers.tensorboard import event_file as tensorboard_event_file
from vanidl.readers.xprof import trace_viewer, xplane

HOST = "node01"
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Made:
    """One process's log to be: its operations and when it ran."""

    ios: Sequence[Io]
    pid: int
    parent: int | None
    start_ns: int
    length_ns: int


def built_log(made: Made, folder: Path) -> TracerLog:
    return darshan_log(
        made.ios, pid=made.pid, parent=made.parent, start_ns=made.start_ns, length_ns=made.length_ns
    )


def darshan_file(made: Made, folder: Path, dxt_version: int) -> TracerLog:
    rows: dict[int, Record] = {}
    for io in made.ios:
        record = rows.setdefault(io.file, Record(io.file, 0, HOST, [], []))
        row = (io.offset, io.nbytes, io.start / 1e9, io.end / 1e9, 1)
        (record.writes if io.op else record.reads).append(row)
    for record in rows.values():
        record.writes.sort(key=lambda r: r[2])
        record.reads.sort(key=lambda r: r[2])
    end_ns = made.start_ns + made.length_ns
    log = Log(
        job=(1000, 100, 1),
        start=divmod(made.start_ns, SECOND_NS),
        end=divmod(end_ns, SECOND_NS),
        metadata=b"" if made.parent is None else f"fork_parent={made.parent}\n".encode(),
        names={file: f"/data/part-{file}.h5".encode() for file in rows},
        dxt={"DXT_POSIX": [list(rows.values())]} if rows else {},
        dxt_version={"DXT_POSIX": dxt_version},
    )
    path = folder / f"u_python_id100-{made.pid}_11-14-80000-1_1.darshan"
    path.write_bytes(log_bytes(log))
    return read_log(path)


def dftracer_file(made: Made, folder: Path) -> TracerLog:
    trace = PfwTrace(made.pid, made.parent or 1, metric="NS", base=made.start_ns, host=HOST)
    for io in made.ios:
        name = "pwrite64" if io.op else "pread64"
        trace.io(
            name, f"/data/part-{io.file}.h5", io.start, io.end - io.start,
            ret=io.nbytes, count=io.nbytes, offset=io.offset,
        )  # fmt: skip
    trace.end(made.length_ns)
    kind = "preload" if made.parent is None else "fork"
    path = trace.write(folder / f"trace-{made.pid}-{kind}.pfw")
    (log,) = reading.combine_files([trace_file.read_trace_file(path)]).logs
    return log


IO_WAYS: dict[str, Callable[[Made, Path], TracerLog]] = {
    "pieces": built_log,
    "darshan, DXT 1": lambda made, folder: darshan_file(made, folder, 1),
    "darshan, DXT 2": lambda made, folder: darshan_file(made, folder, 2),
    "dftracer": dftracer_file,
}


def built_profile(spans: Sequence[Span], base_ns: int, folder: Path) -> ProfileTrace:
    return profile(spans, base_ns=base_ns)


TORCH = {
    SpanKind.STEP: ("ProfilerStep#{}", "user_annotation"),
    SpanKind.INPUT_WAIT: (pytorch_traces.WAIT, "user_annotation"),
    SpanKind.OP: ("aten::conv2d", "cpu_op"),
    SpanKind.KERNEL: ("volta_sgemm", "kernel"),
    SpanKind.COMMUNICATION: ("gloo:all_reduce", "user_annotation"),
}


def torch_trace(spans: Sequence[Span], base_ns: int, folder: Path) -> ProfileTrace:
    content = pytorch_traces.trace(
        _torch_events(spans), host_name=HOST, baseTimeNanoseconds=base_ns
    )
    path = folder / f"{HOST}_100.1700000000.pt.trace.json"
    return pytorch_trace.read_trace(pytorch_traces.write(path, content))


def _torch_events(spans: Sequence[Span]) -> list[dict]:
    events = []
    for s in spans:
        name, category = TORCH[s.kind]
        own = {"pid": 0 if s.kind == SpanKind.KERNEL else 100}
        length_us = (s.end - s.start) / 1000
        events.append(
            pytorch_traces.event(name.format(s.step), s.start / 1000, length_us, category, **own)
        )
    return events


TENSORFLOW = {
    SpanKind.STEP: {"name": "Profiled batch"},
    SpanKind.INPUT_WAIT: {"name": "IteratorGetNextOp::DoCompute", "line": "tf_data_get_next/1"},
    SpanKind.OP: {"name": "model/MatMul:MatMul", "title": "MatMul", "line": "tf_Compute/1"},
    SpanKind.KERNEL: {"name": "sgemm", "plane": "/device:GPU:0", "line": "Stream #1(Compute)"},
    SpanKind.COMMUNICATION: {"name": "a:CollectiveReduceV2", "title": "CollectiveReduceV2"},
    SpanKind.CHECKPOINT: {"name": "save/SaveV2:SaveV2", "title": "SaveV2"},
    SpanKind.PREPROCESS: {"name": "InstantiatedCapturedFunction::Run"},
}


def _session_events(spans: Sequence[Span]) -> list[xplane_files.Event]:
    return [
        xplane_files.Event(
            start=s.start, end=s.end, step=s.step if s.step >= 0 else None, **TENSORFLOW[s.kind]
        )
        for s in spans
    ]


def xplane_profile(spans: Sequence[Span], base_ns: int, folder: Path) -> ProfileTrace:
    content = xplane_files.xspace(_session_events(spans), start_ns=base_ns)
    found = xplane.read_xplane(xplane_files.write_xplane(folder, content, host=HOST))
    return replace(found, pid=100)  # as an event file beside it says


def viewer_profile(spans: Sequence[Span], base_ns: int, folder: Path) -> ProfileTrace:
    """Known to 1 s; the rest is what `--clock-offset` is for."""
    last_ns = base_ns + max(s.end for s in spans)
    written = datetime.fromtimestamp(last_ns // SECOND_NS, timezone.utc)
    path = xplane_files.session(folder, written.strftime("%Y_%m_%d_%H_%M_%S")) / "v.trace.json.gz"
    text = json.dumps(xplane_files.viewer_trace(_session_events(spans)))
    path.write_bytes(gzip.compress(text.encode(), 1))
    found = trace_viewer.read_trace(path)
    error_ns = base_ns + min(s.start for s in spans) - int(found.start_ns.min())
    assert abs(error_ns) <= found.clock_uncertainty_ns
    columns = {"start_ns": found.start_ns + error_ns, "end_ns": found.end_ns + error_ns}
    return replace(found, pid=100, host=HOST, path="v.trace.json.gz", **columns)


def event_log(spans: Sequence[Span], base_ns: int, folder: Path) -> ProfileTrace:
    steps = [s for s in spans if s.kind == SpanKind.STEP]
    marks = [Event((base_ns + steps[0].start) / 1e9, steps[0].step - 1)]
    marks += [Event((base_ns + s.end) / 1e9, s.step) for s in steps]
    path = folder / f"events.out.tfevents.1700000000.{HOST}.100.0"
    path.write_bytes(event_file(marks))
    (found,) = tensorboard_event_file.read_steps(path)
    return found


DLIO = {
    SpanKind.INPUT_WAIT: ("fetch.iter", "dataloader"),
    SpanKind.OP: ("compute", "compute"),
    SpanKind.COMMUNICATION: ("all_reduce", "comm"),
    SpanKind.CHECKPOINT: ("checkpoint.capture", "checkpoint"),
    SpanKind.PREPROCESS: ("data.preprocess", "data"),
    SpanKind.STEP: ("fetch.block", "dataloader"),
}


def dftracer_profile(spans: Sequence[Span], base_ns: int, folder: Path) -> ProfileTrace:
    trace = PfwTrace(100, metric="NS", base=base_ns, host=HOST)
    for s in spans:
        name, category = DLIO[s.kind]
        trace.event(name, category, s.start, s.end - s.start)
    trace.end(max(s.end for s in spans))
    (found,) = reading.combine_files(
        [trace_file.read_trace_file(trace.write(folder / "p-0-preload.pfw"))]
    ).profiles
    return found


ROCPROF = {
    SpanKind.STEP: "ProfilerStep#{}",
    SpanKind.INPUT_WAIT: "load batch",
    SpanKind.OP: "forward",
    SpanKind.KERNEL: "gemm",
    SpanKind.COMMUNICATION: "ncclDevKernel_Generic_1",
}


def rocprof_file(spans: Sequence[Span], base_ns: int, folder: Path) -> ProfileTrace:
    """Its clock is one of its own; here that of the run."""
    dispatches, ranges = [], []
    for s in spans:
        name, begin = ROCPROF[s.kind].format(s.step), base_ns - rocprof_profiles.ZERO
        if name in rocprof_profiles.KERNELS:
            kernel = rocprof_profiles.KERNELS.index(name)
            dispatches.append(rocprof_profiles.dispatch(begin + s.start, begin + s.end, kernel))
        else:
            ranges.append((name, begin + s.start, begin + s.end))
    path = folder / "100_results.json"
    process = rocprof_profiles.process(dispatches, (), ranges, host=HOST, pid=100)
    path.write_bytes(rocprof_profiles.profile(process))
    (found,) = rocprof_profile.read_profiles(path, wait_names=("^load",))
    return found


def _starting_with_a_wait(spans: Sequence[Span]) -> list[Span]:
    """A step begins with a fetch there, however short."""
    return [Span(SpanKind.INPUT_WAIT, s.start, s.start) for s in spans if s.kind == SpanKind.STEP]


@dataclass(frozen=True)
class SpanWay:
    """How spans are written and read; what kinds the format can hold."""

    read: Callable[[Sequence[Span], int, Path], ProfileTrace]
    kinds: frozenset[SpanKind]
    tick_ns: int = 1  # of the epoch in the file
    adds: Callable[[Sequence[Span]], list[Span]] = lambda spans: []


SPAN_WAYS: dict[str, SpanWay] = {
    "pieces": SpanWay(built_profile, frozenset(SpanKind)),
    pytorch_trace.SOURCE: SpanWay(torch_trace, frozenset(TORCH)),
    xplane.SOURCE: SpanWay(xplane_profile, frozenset(TENSORFLOW)),
    trace_viewer.SOURCE: SpanWay(viewer_profile, frozenset(TENSORFLOW)),
    tensorboard_event_file.SOURCE: SpanWay(event_log, frozenset([SpanKind.STEP]), 1000),
    rocprof_profile.SOURCE: SpanWay(rocprof_file, frozenset(ROCPROF)),
    dftracer_spans.SOURCE: SpanWay(dftracer_profile, frozenset(DLIO), 1, _starting_with_a_wait),
}


@dataclass(frozen=True)
class Way:
    io: str
    spans: str
    folder: Path

    def holds(self, seen: Sequence[Span], steps: Sequence[Span]) -> list[Span]:
        """Those of the spans beside the steps that the format can hold, and what it adds."""
        way = SPAN_WAYS[self.spans]
        return [s for s in seen if s.kind in way.kinds] + way.adds(steps)

    def log(self, made: Made) -> TracerLog:
        return IO_WAYS[self.io](made, self.folder)

    def profile(self, spans: Sequence[Span], base_ns: int) -> ProfileTrace:
        return SPAN_WAYS[self.spans].read(spans, base_ns, self.folder)

    @property
    def tick_ns(self) -> int:
        return SPAN_WAYS[self.spans].tick_ns


PAIRS = (
    ("pieces", "pieces"),
    ("darshan, DXT 1", pytorch_trace.SOURCE),
    ("darshan, DXT 2", tensorboard_event_file.SOURCE),
    ("darshan, DXT 1", xplane.SOURCE),
    ("dftracer", trace_viewer.SOURCE),
    ("dftracer", dftracer_spans.SOURCE),
    ("darshan, DXT 2", rocprof_profile.SOURCE),
)
