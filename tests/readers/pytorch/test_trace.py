from __future__ import annotations

import contextlib
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers.pytorch_traces import (
    BASE_NS,
    HOST,
    PID,
    WAIT,
    event,
    kernel,
    old_trace,
    pretty,
    steps,
    trace,
    write,
)
from vanidl.errors import InputError, UsageError
from vanidl.model.trace import INFERENCE, SpanKind
from vanidl.readers.pytorch import trace as pytorch_trace
from vanidl.readers.records import ProfileTrace

NAME = "node01_8342.1795219325968000540.pt.trace.json.gz"


def read(folder: Path, content, name: str = NAME, **options) -> ProfileTrace:
    return pytorch_trace.read_trace(write(folder / name, content), **options)


def spans(profile: ProfileTrace, kind: SpanKind) -> list[tuple[int, int, str]]:
    """Start, end and name of the spans of a kind, in order."""
    mask = profile.kind == kind
    names = [profile.names[i] for i in profile.name[mask]]
    return list(
        zip(profile.start_ns[mask].tolist(), profile.end_ns[mask].tolist(), names, strict=True)
    )


def names(profile: ProfileTrace, kind: SpanKind) -> list[str]:
    return [name for _, _, name in spans(profile, kind)]


def test_todays_dialect(tmp_path: Path) -> None:
    info = {"backend": "gloo", "rank": 3, "world_size": 4}
    profile = read(tmp_path, trace(steps(2), distributedInfo=info), "worker.pt.trace.json")
    assert (profile.host, profile.pid, profile.rank, profile.world_size) == (HOST, PID, 3, 4)
    assert profile.source == "pytorch-profiler"
    assert profile.losses == ()
    first = BASE_NS + 1_000_125
    assert spans(profile, SpanKind.STEP) == [
        (first, first + 100_000, "ProfilerStep#3"),
        (first + 100_000, first + 200_000, "ProfilerStep#4"),
    ]
    assert profile.step[profile.kind == SpanKind.STEP].tolist() == [3, 4]
    assert set(profile.step[profile.kind != SpanKind.STEP].tolist()) == {-1}
    assert spans(profile, SpanKind.INPUT_WAIT)[0] == (first + 5_000, first + 45_000, WAIT)
    assert names(profile, SpanKind.OP) == ["aten::conv2d"] * 2


def test_old_dialect(tmp_path: Path) -> None:
    profile = read(tmp_path, old_trace(steps(2)), NAME)
    assert (profile.host, profile.pid, profile.rank) == ("node01", 8342, None)
    assert profile.start_ns[0] == BASE_NS + 1_000_000
    assert profile.losses == ()
    assert len(profile.names) == 4
    renamed = read(tmp_path, old_trace(steps(2)), "num_workers_0.pt.trace.json")
    assert (renamed.host, renamed.pid) == ("", PID)


def test_arrays_are_read_only_sorted_and_of_the_contract(tmp_path: Path) -> None:
    profile = read(tmp_path, trace(steps(5)[::-1]))
    assert (np.diff(profile.start_ns) >= 0).all()
    columns = ("start_ns", "end_ns", "step", "kind", "thread", "name")
    dtypes = (np.int64, np.int64, np.int32, np.uint8, np.int32, np.int32)
    for column, dtype in zip(columns, dtypes, strict=True):
        array = getattr(profile, column)
        assert array.dtype == dtype
        assert not array.flags.writeable
        assert len(array) == 15


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.tuples(st.integers(0, 2**43 * 1000 - 1), st.integers(0, 10**12)), min_size=1))
def test_times_are_exact_to_the_nanosecond(tmp_path_factory, times) -> None:
    text = ",".join(
        f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,'
        f'"ts":{s // 1000}.{s % 1000:03},"dur":{d // 1000}.{d % 1000:03}}}'
        for s, d in times
    )
    text = f'{{"baseTimeNanoseconds":{BASE_NS},"traceEvents":[{text}]}}'
    profile = read(tmp_path_factory.mktemp("t"), text)
    got = zip(profile.start_ns.tolist(), profile.end_ns.tolist(), strict=True)
    assert sorted(got) == sorted((BASE_NS + s, BASE_NS + s + d) for s, d in times)


def test_base_time_after_the_events(tmp_path: Path) -> None:
    content = trace(steps(1))
    content["baseTimeNanoseconds"] = content.pop("baseTimeNanoseconds")
    profile = read(tmp_path, dict(sorted(content.items(), reverse=True)))
    assert profile.start_ns[0] == BASE_NS + 1_000_125


def test_absolute_times_beside_a_base_time(tmp_path: Path) -> None:
    profile = read(tmp_path, old_trace(steps(1), baseTimeNanoseconds=BASE_NS))
    assert profile.start_ns[0] == BASE_NS + 1_000_000


def test_one_absurd_time_does_not_decide(tmp_path: Path) -> None:
    profile = read(tmp_path, trace([*steps(2), event("aten::add", 3e15, 1)]))
    assert profile.start_ns[0] == BASE_NS + 1_000_125


def test_no_base_time_is_a_loss(tmp_path: Path) -> None:
    profile = read(tmp_path, trace(steps(1), baseTimeNanoseconds=None))
    assert profile.start_ns[0] == 1_000_125
    (loss,) = profile.losses
    assert "baseTimeNanoseconds" in loss


def test_device_kernels(tmp_path: Path) -> None:
    events = [
        *steps(1),
        kernel("sgemm", 1010, 5, device=2),
        kernel("sgemm", 1012, 5, device=2, tid=20),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1020, 9, device=2),
        kernel("Memset (Device)", 1030, 1, device=2),
        kernel("Memcpy HtoD", 1030, 1, device=2, cat="gpu_memcpy"),
        kernel("ProfilerStep#3", 1000, 100, device=2, cat="gpu_user_annotation"),
        kernel(WAIT, 1005, 40, device=2, cat="gpu_user_annotation"),
        event("nccl:all_reduce", 1001, 3, "user_annotation"),
        event("c10d::allreduce_", 1001, 3),
        event("record_param_comms", 1001, 3),
        event("cudaLaunchKernel", 1001, 3, "cuda_runtime"),
        event("train.py(3): f", 1001, 3, "python_function"),
    ]
    devices = [{"id": i, "name": f"GPU {i}"} for i in range(4)]
    profile = read(tmp_path, trace(events, deviceProperties=devices))
    assert names(profile, SpanKind.KERNEL) == ["sgemm", "sgemm"]
    assert names(profile, SpanKind.COMMUNICATION) == ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]
    assert names(profile, SpanKind.COPY) == ["Memset (Device)", "Memcpy HtoD"]
    assert names(profile, SpanKind.STEP) == ["ProfilerStep#3"]
    assert names(profile, SpanKind.INPUT_WAIT) == [WAIT]
    assert names(profile, SpanKind.OP) == ["aten::conv2d"]
    assert profile.devices == ("GPU 2",)
    threads = profile.thread[profile.kind == SpanKind.KERNEL].tolist()
    assert len({*threads, *profile.thread[profile.kind == SpanKind.OP].tolist()}) == 3


@pytest.mark.parametrize(
    ("recorded", "counted"),
    [
        (["gloo:all_reduce", "c10d::allreduce_"], ["gloo:all_reduce"]),
        (["nccl:all_reduce", "c10d::allreduce_"], ["nccl:all_reduce"]),
        (["gloo:a", "nccl:b"], ["gloo:a", "nccl:b"]),
        (["c10d::allreduce_"], ["c10d::allreduce_"]),
        (["record_param_comms"], ["record_param_comms"]),
    ],
)
def test_communication_on_the_cpu(tmp_path: Path, recorded, counted) -> None:
    category = {True: "cpu_op", False: "user_annotation"}
    events = [event(n, 1000 + i, 1, category["::" in n]) for i, n in enumerate(recorded)]
    profile = read(tmp_path, trace(events))
    assert names(profile, SpanKind.COMMUNICATION) == counted
    assert names(profile, SpanKind.OP) == []


def test_annotations_are_no_operators(tmp_path: Path) -> None:
    events = [
        event("Optimizer.step#SGD.step", 1, 9, "user_annotation"),
        event("AddBackward0", 2, 3),
    ]
    for content in (trace(events), old_trace(events)):
        profile = read(tmp_path, content)
        assert names(profile, SpanKind.OP) == ["AddBackward0"]
        assert len(profile.kind) == 1


def test_wait_names(tmp_path: Path) -> None:
    events = [*steps(1), event("my::fetch", 1010, 20), event("my_wait", 1010, 2, "user_annotation")]
    profile = read(tmp_path, trace(events), wait_names=["^my_", "fetch"])
    assert sorted(names(profile, SpanKind.INPUT_WAIT)) == sorted([WAIT, "my::fetch", "my_wait"])
    with pytest.raises(UsageError, match="regular expression"):
        read(tmp_path, trace(events), wait_names=["("])


def test_only_the_own_process(tmp_path: Path) -> None:
    others = [event("aten::add", 1000 + i, 1, pid=99, tid=99) for i in range(10)]
    profile = read(tmp_path, trace(others + steps(1)), "t.json")
    assert profile.pid == PID
    assert names(profile, SpanKind.OP) == ["aten::conv2d"]
    no_step = [e for e in others + steps(1) if "Step" not in e["name"]]
    assert read(tmp_path, trace(no_step), NAME).pid == PID
    assert read(tmp_path, trace(no_step), "t.json").pid == 99


def test_no_step_is_still_a_profile(tmp_path: Path) -> None:
    profile = read(tmp_path, trace([event("aten::add", 1, 2)]))
    assert names(profile, SpanKind.STEP) == []
    assert names(profile, SpanKind.OP) == ["aten::add"]


ODD = [
    event("a", -5, -1),
    event("a", "12", 3),
    event("a", None, 3),
    event("a", 1e300, 3),
    event("a", True, 3),
    event("a", 1, 1, pid=[3]),
    event("a", 1, 1, tid={}),
    event({"x": 1}, 1, 1),
    {"ph": "X", "cat": "cpu_op"},
]
FOREIGN = [
    3,
    None,
    "x",
    [],
    {},
    {"ph": "X", "cat": ["cpu_op"]},
    {"ph": ["X"]},
    event("b", 1, 1, "z"),
]


def test_odd_events_are_counted_and_left_out(tmp_path: Path) -> None:
    profile = read(tmp_path, trace([*ODD, *steps(2), *FOREIGN]))
    assert len(profile.kind) == 6
    (loss,) = profile.losses
    every = len(ODD) + len(steps(2)) + len(FOREIGN)
    assert loss.startswith(f"{len(ODD)} of {every} events are left out as their name")


def test_not_a_number(tmp_path: Path) -> None:
    bandwidth = event("aten::mm", 5, 1, args={"memory bandwidth (GB/s)": float("inf")})
    profile = read(tmp_path, trace([*steps(1), bandwidth, event("a", float("nan"), 3)]))
    assert names(profile, SpanKind.OP) == ["aten::mm", "aten::conv2d"]
    (loss,) = profile.losses
    assert loss.startswith("1 of 5 events are left out as their name")


@pytest.mark.parametrize(("whole", "slight"), [(8, False), (9, True), (50, True)])
def test_a_few_events_that_are_left_out_are_a_slight_loss(
    tmp_path: Path, whole: int, slight: bool
) -> None:
    """A tenth at most; the number of both is said."""
    sound = [event("aten::mm", 5 + i, 1) for i in range(whole)]
    profile = read(tmp_path, trace([*sound, event("a", float("nan"), 3)]))
    (loss,) = profile.slight if slight else profile.losses
    assert loss.startswith(f"1 of {whole + 1} events are left out as their name")
    assert bool(profile.losses) != slight


def test_events_that_the_profiler_did_not_time_are_left_out_and_counted(tmp_path: Path) -> None:
    lost = [event("gemm", 0, 0, "kernel"), event("aten::mm", 0, 0)]
    profile = read(tmp_path, trace([*steps(2), *lost]))
    (loss,) = profile.losses
    assert loss.startswith(f"2 of {len(steps(2)) + 2} events are left out as they have no time")
    assert profile.start_ns.min() > BASE_NS
    alone = read(tmp_path, trace([*steps(2), event("aten::mm", 0, 0)]), "cpu.json")
    assert alone.losses == alone.slight == ()


@pytest.mark.parametrize(("lost", "in_part"), [(0, False), (1, False), (2, True), (200, True)])
def test_devices_are_known_in_part_where_work_of_theirs_is_left_out(
    tmp_path: Path, lost: int, in_part: bool
) -> None:
    sound = [event("gemm", 5 + i, 1, "kernel") for i in range(100)]
    odd = [event("gemm", i, float("nan") if i % 2 else -3, "kernel") for i in range(lost)]
    host = [event("aten::mm", 1, float("nan"))] * 3
    assert read(tmp_path, trace([*sound, *odd, *host])).device_in_part is in_part


def test_operators_that_launched_kernels_of_which_none_is_left_are_no_compute(tmp_path: Path):
    call = event("cudaLaunchKernel", 110, 1, "cuda_runtime", args={"correlation": 4})
    lost = read(tmp_path, trace([*steps(2), call]), "lost.json")
    assert names(lost, SpanKind.OP) == []
    assert [loss[:26] for loss in lost.losses] == ["kernels were launched and "]
    other = event("cudaDeviceSynchronize", 110, 1, "cuda_runtime", args={"correlation": 4})
    for events in ([other], [], [call, event("gemm", 130, 5, "kernel", tid=7)]):
        kept = read(tmp_path, trace([*steps(2), *events]), "kept.json")
        assert len(names(kept, SpanKind.OP)) == 2
        assert not kept.losses


def test_text_behind_the_end_is_damage_and_no_cut(tmp_path: Path) -> None:
    whole = json.dumps(trace(steps(2)))
    profile = read(tmp_path, whole + whole[-40:], "x.json")
    (loss,) = profile.losses
    assert loss.startswith("40 bytes of other text stand behind the end of the JSON")
    assert "is cut" not in loss
    assert len(profile.kind) == len(read(tmp_path, whole, "y.json").kind)


@pytest.mark.parametrize(
    ("name", "category", "kind"),
    [
        ("gemm", "mtia_ccp_events", SpanKind.KERNEL),
        ("gemm", "hpu_op", SpanKind.KERNEL),
        ("x", "collective_comm", SpanKind.COMMUNICATION),
        ("ncclDevKernel_AllReduce_Sum_f32", "kernel", SpanKind.COMMUNICATION),
        ("void deep_ep::internode::dispatch<false>()", "kernel", SpanKind.COMMUNICATION),
        ("void vllm::cross_device_reduce_2stage<half, 8>()", "kernel", SpanKind.COMMUNICATION),
        ("multimem_all_reduce_kernel", "kernel", SpanKind.COMMUNICATION),
        ("oneShotAllReduceKernel", "kernel", SpanKind.COMMUNICATION),
        ("flashinfer::trtllm_allreduce_fusion::k", "kernel", SpanKind.COMMUNICATION),
        ("oneccl_allreduce_small_kernel", "kernel", SpanKind.COMMUNICATION),
        ("void at::native::reduce_kernel<512, 1>()", "kernel", SpanKind.KERNEL),
        ("gatherTopK", "kernel", SpanKind.KERNEL),
    ],
)
def test_work_on_devices_of_any_kind(tmp_path: Path, name: str, category: str, kind: int) -> None:
    profile = read(tmp_path, trace([*steps(1), event(name, 500, 10, category)]))
    assert profile.kind[[profile.names[n] == name for n in profile.name]].tolist() == [kind]


def collective(number: int, start_us: float) -> list[dict]:
    """A call of a collective that launches a kernel of no known name on a stream of its own."""
    own = {"args": {"correlation": number}}
    return [
        event("record_param_comms", start_us, 5),
        event("cudaLaunchKernel", start_us + 1, 1, "cuda_runtime", **own),
        event("fused_kernel_17", start_us + 20, 30, "kernel", pid=0, tid=20, **own),
    ]


def test_streams_of_collectives_are_told_where_names_of_kernels_fail(tmp_path: Path) -> None:
    """Kernels on the stream of compute stay that, also one that such a call launches."""
    calls = [e for i in range(3) for e in collective(i + 1, 100.0 * i)]
    compute = [e for i in range(4) for e in launched(300 + 20 * i, 10, 290 + 20 * i, number=10 + i)]
    inside = launched(30, 5, 2, number=20)
    profile = read(tmp_path, trace([*steps(1), *calls, *compute, *inside]))
    assert names(profile, SpanKind.COMMUNICATION) == ["fused_kernel_17"] * 3
    assert names(profile, SpanKind.KERNEL) == ["gemm"] * 5
    named = event("ncclDevKernel_AllReduce", 600, 10, "kernel", pid=0, tid=21)
    profile = read(tmp_path, trace([*steps(1), *calls, *compute, named]), "named.json")
    assert names(profile, SpanKind.COMMUNICATION) == ["ncclDevKernel_AllReduce"]


@pytest.mark.parametrize("at_once", [True, False])
def test_kernels_of_one_stream_that_run_beside_each_other_are_named(
    tmp_path: Path, at_once: bool
) -> None:
    """What one call launched, as a CUDA graph, may; what calls of their own launched may not."""
    works = [
        e for i in range(4)
        for e in launched(100 + 5 * i, 10, 50 + i, number=1 if at_once else i + 1)
    ]  # fmt: skip
    profile = read(tmp_path, trace([*steps(1), *works]))
    said = [loss for loss in profile.slight if "one stream" in loss]
    assert len(said) == (0 if at_once else 1)
    assert at_once or "for 15.0 \u00b5s of 25.0 \u00b5s" in said[0]
    assert not profile.losses


def test_repeated_events_member_counts_once(tmp_path: Path) -> None:
    text = pretty(trace(steps(1)))
    profile = read(tmp_path, text[:-1].rstrip() + ',"traceEvents":' + json.dumps(steps(2)) + "}")
    assert names(profile, SpanKind.STEP) == ["ProfilerStep#3", "ProfilerStep#4"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "an empty file"),
        ("hello", "neither a JSON object nor an array"),
        (gzip.compress(b"x" * 99, mtime=0)[:12], "cut"),
        ('{"a": 1, "b": [2]}', "but a, b"),
        ('{"traceEvents": 3}', "without an array traceEvents"),
        ('{"traceEvents": []}', "0 events"),
        (json.dumps({"traceEvents": [event("x", 1, 1, "tf_op")]}), "1 events, none"),
        (json.dumps({"traceEvents": [event("x", 1, -1)]}), "1 of 1 events are left out"),
        ('{"traceEvents": [{"ph": "X", "ca', "cut"),
    ],
)
def test_nothing_usable(tmp_path: Path, content, found: str) -> None:
    with pytest.raises(InputError, match="expected a trace of the PyTorch profiler") as error:
        read(tmp_path, content, "x.json")
    assert found in str(error.value)
    assert "give a file" in str(error.value)


def test_unreadable_path(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(InputError, match="check the path"):
            pytorch_trace.read_trace(path)


@settings(deadline=None)  # a busy machine is no failure
@given(st.data())
def test_a_cut_trace_gives_the_events_before_the_cut(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("cut")
    events = [e for step in range(20) for e in steps(1, 1000 + 100 * step, step)]
    text = pretty(trace(events)).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    whole = text[:cut].count(b"\n    }")  # a closing brace of an event, at its indentation
    if not whole:
        with pytest.raises(InputError):
            read(folder, text[:cut])
        return
    profile, expected = read(folder, text[:cut]), read(folder, trace(events[:whole]), "all.json")
    for column in ("start_ns", "end_ns", "kind", "step"):
        assert np.array_equal(getattr(profile, column), getattr(expected, column))
    (loss,) = profile.losses
    assert f"{whole:,} events" in loss


RUNS = {  # steps, and the time in `__next__` and in creating the loader of the second epoch
    "torch_pfs_workers0": (61, 15.858),
    "torch_pfs_workers4": (61, 0.781 + 0.1017),
    "torch_hdf5_workers0": (61, 3.421),
    "ddp_two_hosts/0": (31, 5.730),
    "ddp_two_hosts/1": (31, 0.591 + 0.0206),
    "ddp_two_hosts/2": (31, 5.791),
    "ddp_two_hosts/3": (31, 0.554 + 0.0323),
}


def recorded(shared: Path, run: str) -> Path:
    folder, _, rank = run.partition("/")
    (path,) = (shared / "data" / "recorded" / folder / "tb").glob(
        f"*{rank and 'rank' + rank}.*.json.gz"
    )
    return path


def covered_s(intervals, low: int, high: int) -> float:
    """Seconds of a window that intervals cover, counted one after the other."""
    total, reached = 0, low
    for start, end in sorted(intervals):
        total += max(0, min(end, high) - max(start, reached))
        reached = max(reached, end)
    return total / 1e9


def window(profile: ProfileTrace) -> tuple[int, int]:
    found = spans(profile, SpanKind.STEP)
    return found[0][0], max(end for _, end, _ in found)


@pytest.mark.parametrize("run", RUNS)
def test_input_waits_of_recorded_runs(shared: Path, run: str) -> None:
    profile = pytorch_trace.read_trace(recorded(shared, run))
    count, wait_s = RUNS[run]
    assert np.array_equal(
        profile.step[profile.kind == SpanKind.STEP], np.arange(count) + (2 if "ddp" in run else 4)
    )
    waits = [(s, e) for s, e, _ in spans(profile, SpanKind.INPUT_WAIT)]
    assert covered_s(waits, *window(profile)) == pytest.approx(wait_s, abs=0.0006)
    assert profile.losses == ()


def test_ranks_of_a_recorded_run(shared: Path) -> None:
    profiles = [pytorch_trace.read_trace(recorded(shared, f"ddp_two_hosts/{i}")) for i in range(4)]
    assert [p.rank for p in profiles] == [0, 1, 2, 3]
    assert {p.world_size for p in profiles} == {4}
    assert [p.host for p in profiles] == ["node01", "node01", "node02", "node02"]
    assert [p.pid for p in profiles] == [10453, 10450, 10451, 10452]
    for profile in profiles:
        assert set(names(profile, SpanKind.COMMUNICATION)) == {"gloo:all_reduce"}


@pytest.mark.parametrize("run", ["torch_pfs_workers0", "ddp_two_hosts/1"])
def test_totals_equal_a_plain_reading(shared: Path, run: str) -> None:
    path = recorded(shared, run)
    profile = pytorch_trace.read_trace(path)
    whole = json.loads(gzip.decompress(path.read_bytes()), parse_float=lambda text: text)
    plain = {kind: [0, 0] for kind in SpanKind}
    for item in whole["traceEvents"]:
        kind = plain_kind(item)
        if kind is not None:
            plain[kind][0] += 1
            plain[kind][1] += plain_ns(item)
    plain[SpanKind.INPUT_WAIT][1] += plain_creation_ns(whole["traceEvents"])
    for kind in SpanKind:
        found = spans(profile, kind)
        assert [len(found), sum(e - s for s, e, _ in found)] == plain[kind]


def plain_ns(item: dict, field: str = "dur") -> int:
    whole, _, part = str(item[field]).partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0"))


def plain_creation_ns(events: list[dict]) -> int:
    """From the first seed drawn outside `__next__` to the `__next__` that follows it."""
    found, seed, busy_until = 0, None, 0
    for item in sorted(
        (e for e in events if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")),
        key=lambda e: plain_ns(e, "ts"),
    ):
        at = plain_ns(item, "ts")
        if item["name"].endswith("__next__"):
            found += at - seed if seed is not None else 0
            seed, busy_until = None, at + plain_ns(item)
        elif item["name"] == "aten::random_" and seed is None and at > busy_until:
            seed = at
    return found


def plain_kind(item: dict) -> SpanKind | None:
    if item.get("ph") != "X" or item.get("cat") not in ("cpu_op", "user_annotation"):
        return None
    name = item["name"]
    if name.startswith("ProfilerStep"):
        return SpanKind.STEP
    if name.endswith("__next__"):
        return SpanKind.INPUT_WAIT
    if name.startswith("gloo:"):
        return SpanKind.COMMUNICATION
    return SpanKind.OP if item["cat"] == "cpu_op" and "c10d" not in name else None


def test_gpu_trace_of_the_old_dialect(shared: Path) -> None:
    folder = shared / "data" / "public" / "kineto_resnet50_v100"
    profile = pytorch_trace.read_trace(folder / "num_workers_4.pt.trace.json.gz")
    kernels = [(s, e) for s, e, _ in spans(profile, SpanKind.KERNEL)]
    assert covered_s(kernels, *window(profile)) == pytest.approx(0.587, abs=0.0005)
    assert profile.devices == ("Tesla V100-DGXS-32GB",)
    assert profile.step[profile.kind == SpanKind.STEP].tolist() == [5, 6, 7, 8, 9, 10]
    assert (profile.host, profile.pid) == ("", 5555)


def test_recorded_traces_cut_anywhere(shared: Path, tmp_path: Path) -> None:
    path = recorded(shared, "ddp_two_hosts/1")
    packed = path.read_bytes()
    text = gzip.decompress(packed)
    whole = set(zip(*triples(pytorch_trace.read_trace(path)), strict=True))
    place = random.Random(7)
    for data in (packed, text):
        for _ in range(12):
            cut = data[: place.randrange(len(data))]
            (tmp_path / path.name).write_bytes(cut)
            try:
                profile = pytorch_trace.read_trace(tmp_path / path.name)
            except InputError:
                assert len(cut) < len(data) / 20
                continue
            assert set(zip(*triples(profile), strict=True)) <= whole
            assert profile.losses


def test_damaged_traces_raise_nothing_else(shared: Path, tmp_path: Path) -> None:
    path = recorded(shared, "ddp_two_hosts/1")
    packed = path.read_bytes()
    place = random.Random(11)
    for original in (packed, gzip.decompress(packed)[:200_000]):
        for _ in range(40):
            data = bytearray(original)
            for _ in range(place.choice([1, 3, 20])):
                data[place.randrange(len(data))] = place.choice(b'"\\{}[],:\x00\xff0')
            (tmp_path / path.name).write_bytes(data)
            with contextlib.suppress(InputError):
                pytorch_trace.read_trace(tmp_path / path.name)


def triples(profile: ProfileTrace) -> tuple[list[int], ...]:
    named = [profile.names[i] for i in profile.name.tolist()]
    return profile.start_ns.tolist(), profile.end_ns.tolist(), profile.step.tolist(), named


def drawn(start_us: float) -> list[dict]:
    """What a loader's iterator draws when it is created: the seed of its workers."""
    names = ("aten::empty", "aten::random_", "aten::item", "aten::_local_scalar_dense")
    return [event(name, start_us + i, 0.5) for i, name in enumerate(names)]


def test_starting_workers_is_waiting_for_input(tmp_path: Path) -> None:
    """A loader that is created takes 30 ms to start its workers before its first `__next__`."""
    events = [
        event("aten::conv2d", 0, 900),
        *drawn(1_000),
        event(WAIT, 31_001, 500, "user_annotation"),
    ]
    events += [event("aten::conv2d", 32_000, 900), event(WAIT, 33_000, 500, "user_annotation")]
    profile = read(tmp_path, trace(events))
    waits = [(s - BASE_NS, e - BASE_NS) for s, e, _ in spans(profile, SpanKind.INPUT_WAIT)]
    assert waits == [(1_001_000, 31_501_000), (33_000_000, 33_500_000)]
    assert any("iter(DataLoader)" in name for name in profile.names)


@pytest.mark.parametrize("between", [[event("aten::conv2d", 2_000, 900)], []])
def test_a_seed_that_training_draws_is_no_loader(tmp_path: Path, between: list[dict]) -> None:
    """Drawn before other work, or never taken as a number, it says nothing of a loader."""
    seeds = drawn(1_000) if between else [event("aten::random_", 1_000, 20)]
    events = [*seeds, *between, event(WAIT, 31_000, 500, "user_annotation")]
    profile = read(tmp_path, trace([*events, event("aten::conv2d", 31_600, 100)]))
    assert [e - s for s, e, _ in spans(profile, SpanKind.INPUT_WAIT)] == [500_000]


def test_validation_steps_of_lightning_are_no_training_steps(tmp_path: Path) -> None:
    """Its profiler marks a step after each training and each validation step, by one counter."""
    events, at = [], 1_000.0
    for number, what in enumerate(["training"] * 4 + ["validation"] * 2 + ["training"] * 3):
        events.append(event(f"ProfilerStep#{number}", at, 100, "user_annotation"))
        name = f"[pl][profile][Strategy]SingleDeviceStrategy.{what}_step"
        events.append(event(name, at + 50, 40, "user_annotation"))
        events.append(event("aten::conv2d", at + 51, 30))
        at += 100
    profile = read(tmp_path, trace(events))
    assert profile.step[profile.kind == SpanKind.STEP].tolist() == [0, 1, 2, 3, 6, 7, 8]
    assert int((profile.kind == SpanKind.EVALUATION).sum()) == 2


def of_process(pid: int, device: int, busy_us: float, count: int = 3) -> list[dict]:
    """Steps of one rank: each waits 20 ms of 100, and its device works for so long."""
    found = []
    for i in range(count):
        at = 1000 + 100_000.0 * i
        found += [
            event(f"ProfilerStep#{i + 3}", at, 100_000, "user_annotation", pid=pid, tid=pid),
            event(WAIT, at, 20_000, "user_annotation", pid=pid, tid=pid),
            kernel("gemm", at + 25_000, busy_us, device),
        ]
    return found


def device_us(profile: ProfileTrace) -> int:
    mine = profile.kind == SpanKind.KERNEL
    return int((profile.end_ns - profile.start_ns)[mine].sum()) // 1000


def test_processes_that_all_mark_steps_are_ranks_with_a_device_each(tmp_path: Path) -> None:
    events = [*of_process(7, 0, 30_000), *of_process(19, 1, 50_000)]
    path = write(tmp_path / "merged.json", trace(events))
    a, b = pytorch_trace.read_traces(path)
    assert (a.pid, b.pid, a.rank, b.rank) == (7, 19, None, None)
    assert (device_us(a), device_us(b)) == (90_000, 150_000)
    assert len(spans(a, SpanKind.STEP)) == len(spans(b, SpanKind.INPUT_WAIT)) == 3
    assert a.losses == b.losses == ()


def test_devices_of_merged_processes_that_cannot_be_told_apart_are_in_no_number(tmp_path) -> None:
    events = [*of_process(7, 0, 30_000), *of_process(19, 1, 50_000), kernel("k", 5000, 10, 2)]
    both = pytorch_trace.read_traces(write(tmp_path / "merged.json", trace(events)))
    assert [device_us(profile) for profile in both] == [0, 0]
    (loss,) = both[0].losses
    assert "2 processes are in it and 3 devices" in loss
    assert both[1].losses == ()


def test_several_devices_of_one_process_stay_its_own(tmp_path: Path) -> None:
    events = [*of_process(PID, 0, 30_000), kernel("k", 5000, 10_000, 1)]
    (profile,) = pytorch_trace.read_traces(write(tmp_path / "x.json", trace(events)))
    assert device_us(profile) == 100_000


def test_a_thread_that_reads_ahead_waits_for_nobody(tmp_path: Path) -> None:
    ahead = [event(WAIT, 1000 + 10_000 * i, 9_000, "user_annotation", tid=99) for i in range(9)]
    profile = read(tmp_path, trace([*of_process(PID, 0, 30_000), *ahead]))
    assert sum(e - s for s, e, _ in spans(profile, SpanKind.INPUT_WAIT)) == 3 * 20_000_000
    unmarked = [e for e in of_process(PID, 0, 30_000) if not e["name"].startswith("Profiler")]
    without = read(tmp_path, trace([*unmarked, *ahead]))
    assert len(spans(without, SpanKind.INPUT_WAIT)) == 12
    named = read(tmp_path, trace([*of_process(PID, 0, 1), event("fetch", 2000, 9, tid=99)]),
                 wait_names=("^fetch$",))  # fmt: skip
    assert "fetch" in names(named, SpanKind.INPUT_WAIT)


def test_of_threads_that_mark_steps_the_one_with_an_optimizer_trains(tmp_path: Path) -> None:
    other = [e | {"tid": 99} for e in of_process(PID, 0, 1) if e.get("cat") != "kernel"]
    both = [*of_process(PID, 0, 30_000), *other]
    assert len(spans(read(tmp_path, trace(both)), SpanKind.STEP)) == 6
    optimizer = event("Optimizer.step#SGD.step", 90_000, 5, "user_annotation", pid=PID, tid=PID)
    profile = read(tmp_path, trace([*both, optimizer]))
    assert len(spans(profile, SpanKind.STEP)) == 3
    assert len(spans(profile, SpanKind.INPUT_WAIT)) == 3


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_kernels_of_a_cut_trace_count_where_they_reach_the_last_step(
    tmp_path: Path, kept: int
) -> None:
    events = of_process(PID, 0, 30_000)
    kernels = [e for e in events if e.get("cat") == "kernel"]
    events = [e for e in events if e.get("cat") != "kernel"] + kernels[:kept]
    text = json.dumps(trace(events))
    profile = read(tmp_path, text[: text.rindex("}]") + 1] + ', {"ph": "X", "na')
    assert len(spans(profile, SpanKind.STEP)) == 3
    assert device_us(profile) == (90_000 if kept == 3 else 0)
    assert any("is cut" in loss for loss in profile.losses)
    missing = f"kernels of the last {3 - kept} of 3 steps are missing"
    assert any(loss.startswith(missing) for loss in profile.losses) == (kept < 3)


def test_a_worker_s_name_is_a_host_only_with_a_process_of_the_trace(tmp_path: Path) -> None:
    content = trace(steps(2))
    content.pop("host_name", None)
    for name, host in ((f"node7_{PID}.17.pt.trace.json", "node7"),
                       (f"run_step_{PID + 1}.17.pt.trace.json", "")):  # fmt: skip
        assert read(tmp_path, content, name).host == host


@pytest.mark.parametrize(
    ("operators", "extra", "found"),
    [
        (20, [], INFERENCE),
        (19, [], ""),
        (20, ["autograd::engine::evaluate_function: MmBackward0"], ""),
        (20, ["aten::convolution_backward"], ""),
        (20, ["Optimizer.step#SGD.step"], ""),
    ],
)
def test_steps_without_any_gradient_are_inference(tmp_path: Path, operators, extra, found) -> None:
    """Traces that hold few operators were reduced, and say nothing."""
    names = [f"aten::op{i}" for i in range(operators - 1)] + extra  # steps have one of their own
    events = [*steps(2), *(event(name, 1010 + i, 1) for i, name in enumerate(names))]
    assert (
        pytorch_trace.read_trace(write(tmp_path / "t.pt.trace.json", trace(events))).purpose
        == found
    )


def test_without_steps_nobody_knows_what_it_was_for(tmp_path: Path) -> None:
    events = [event(f"aten::op{i}", 1010 + i, 1) for i in range(40)]
    assert (
        pytorch_trace.read_trace(write(tmp_path / "t.pt.trace.json", trace(events))).purpose == ""
    )


def launched(start_us: float, length_us: float, launch_us: float | None, number: int) -> list[dict]:
    """A kernel, and the call that handed it over."""
    work = kernel("gemm", start_us, length_us, args={"correlation": number})
    own = {"args": {"correlation": number}}
    call = [event("cudaLaunchKernel", launch_us, 1, "cuda_runtime", **own)] if launch_us else []
    return [work, *call]


@pytest.mark.parametrize(("without", "known"), [(1, True), (2, False)])
def test_what_most_work_waited_for_must_be_known(tmp_path: Path, without: int, known: bool) -> None:
    events = [
        one for i in range(10)
        for one in launched(100 + 10 * i, 5, None if i < without else 97 + 10 * i, number=i + 1)
    ]  # fmt: skip
    found = pytorch_trace.read_trace(write(tmp_path / "t.pt.trace.json", trace(events))).queued
    assert (found is not None) is known
    if found is not None:
        assert found.length == 9 * 3_000


@pytest.mark.parametrize("number", [None, "7", 0, -1, 2**62, 1.5, True, [1]])
def test_odd_correlations_hand_nothing_over(tmp_path: Path, number: object) -> None:
    own = {"args": {"correlation": number}}
    events = [kernel("a", 10, 1, **own), event("cudaLaunchKernel", 5, 1, "cuda_runtime", **own)]
    profile = pytorch_trace.read_trace(write(tmp_path / "t.pt.trace.json", trace(events)))
    assert profile.queued is None
    assert len(profile.start_ns) == 1
