"""TensorFlow and JAX profiles against what was written, and against XProf's own reader."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.event_files import message
from tests.makers.xplane_files import (
    HOST,
    START_NS,
    Event,
    environment,
    number,
    session,
    write_viewer,
    write_xplane,
    xspace,
)
from vanidl.errors import InputError, UsageError
from vanidl.model.trace import SpanKind
from vanidl.readers.records import ProfileTrace
from vanidl.readers.xprof import trace_viewer, xplane
from vanidl.readers.xprof import xplane as xprof_xspace

WAIT = "IteratorGetNextOp::DoCompute"
GPU = "/device:GPU:0"
OPERATOR = {"name": "model/MatMul:MatMul", "title": "MatMul", "line": "tf_Compute/1"}
STEPS = [Event("Profiled batch", 100 * i, 100 * i + 90, step=4 + i) for i in range(5)]


def write_pair(root: Path, events) -> dict[str, Path]:
    return {
        "xplane": write_xplane(root / "xplane", xspace(events)),
        "viewer": write_viewer(root / "viewer", events),
    }


READERS = {"xplane": xplane.read_xplane, "viewer": trace_viewer.read_trace}


@pytest.fixture(params=READERS)
def kinds(request, tmp_path):
    """Kind -> names, of events written in one of both formats."""

    def read(*events: Event, **options) -> dict[SpanKind, list[str]]:
        profile = read_as(request.param, tmp_path, *events, **options)
        found: dict[SpanKind, list[str]] = {}
        for kind, name in zip(profile.kind, profile.name, strict=True):
            found.setdefault(SpanKind(kind), []).append(profile.names[name])
        return found

    return read


def read_as(form: str, root: Path, *events: Event, **options) -> ProfileTrace:
    return READERS[form](write_pair(root, events)[form], **options)


@pytest.mark.parametrize("form", READERS)
def test_steps_waits_and_operators_with_their_times(form, tmp_path):
    events = [*STEPS, Event(WAIT, 10, 40, line="tf_data_iterator_get_next/1")]
    events += [Event(start=50, end=60, **OPERATOR)]
    profile = read_as(form, tmp_path, *events)
    expected = sorted((e.start, e.end) for e in events)
    zero = int(profile.start_ns[0])
    got = list(zip(profile.start_ns - zero, profile.end_ns - zero, strict=True))
    assert sorted(got) == expected
    steps = profile.kind == SpanKind.STEP
    assert profile.step[steps].tolist() == [4, 5, 6, 7, 8]
    assert (profile.step[~steps] == -1).all()
    assert sorted(profile.kind[~steps].tolist()) == [SpanKind.INPUT_WAIT, SpanKind.OP]
    assert len(set(profile.thread.tolist())) == 3
    assert (profile.host, profile.pid, profile.losses) == (HOST, None, ())
    assert not profile.start_ns.flags.writeable


def test_times_count_from_the_start_that_the_profile_names(tmp_path):
    profile = xplane.read_xplane(write_xplane(tmp_path, xspace(STEPS)))
    assert (profile.start_ns - START_NS).tolist() == [e.start for e in STEPS]
    assert (profile.clock_method, profile.clock_uncertainty_ns) == ("absolute", 0)


def test_lines_that_count_from_the_epoch_are_taken_as_they_are(tmp_path):
    content = xspace(STEPS, start_ns=None, base_ns=START_NS)
    profile = xplane.read_xplane(write_xplane(tmp_path, content))
    assert (profile.start_ns - START_NS).tolist() == [e.start for e in STEPS]
    assert profile.clock_method == "absolute"


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize("offset_s", [0, 9 * 3600])
def test_without_a_start_the_last_event_ends_in_the_second_of_the_folder(form, offset_s, tmp_path):
    long = [Event("Profiled batch", i * 10**9, (i + 1) * 10**9, step=i) for i in range(3)]
    if form == "viewer":
        path = write_viewer(tmp_path, long)
    else:
        path = write_xplane(tmp_path, xspace(long, start_ns=None))
    profile = READERS[form](path, utc_offset_s=offset_s)
    second = 1_795_219_356 - offset_s  # 2026-11-21 00:02:36
    assert abs(int(profile.end_ns[-1]) - second * 10**9) <= profile.clock_uncertainty_ns == 10**9
    assert int(profile.end_ns[-1] - profile.start_ns[0]) == 3 * 10**9


@pytest.mark.parametrize("name", ["session", "2026_13_41_00_02_36"])
def test_a_folder_that_is_no_time_is_an_error(name, tmp_path):
    path = session(tmp_path, name) / "h.xplane.pb"
    path.write_bytes(xspace(STEPS, start_ns=None))
    with pytest.raises(InputError, match="folder"):
        xplane.read_xplane(path)


NAMES = {
    SpanKind.INPUT_WAIT: [
        Event(WAIT, 0, 9),
        Event("IteratorGetNextAsOptionalOp::DoCompute", 0, 9),
        Event("$dataloader.py:733 __next__", 0, 9),
    ],
    SpanKind.PREPROCESS: [
        Event("Cast:Cast", 0, 9, line="tf_data_private_threadpool/1", title="Cast"),
        Event("InstantiatedCapturedFunction::RunWithBorrowedArgs", 0, 9),
    ],
    SpanKind.OP: [
        Event(start=0, end=9, **OPERATOR),
        Event("fusion.1", 0, 9, hlo_op="fusion.1"),
    ],
    SpanKind.COMMUNICATION: [
        Event("all-reduce.3", 0, 9, hlo_op="all-reduce.3"),
        Event("CollectiveReduceV2:CollectiveReduceV2", 0, 9, title="CollectiveReduceV2"),
        Event("ncclDevKernel_AllReduce_Sum_f32", 0, 9, plane=GPU, line="Stream #20(Compute)"),
        Event("all-reduce.1", 0, 9, plane="/device:TPU:0", line="XLA Ops"),
    ],
    SpanKind.CHECKPOINT: [Event("save/SaveV2:SaveV2", 0, 9, title="SaveV2")],
    SpanKind.COPY: [Event("MemcpyH2D", 0, 9, plane=GPU, line="Stream #15(MemcpyH2D)")],
    SpanKind.KERNEL: [
        Event("volta_sgemm_128", 0, 9, plane=GPU, line="Stream #14(Compute)"),
        Event("fusion.4", 0, 9, plane="/device:TPU:0", line="XLA Ops"),
    ],
}
NOTHING = [
    Event("EagerLocalExecute: Identity", 0, 9),
    Event("ThreadpoolListener::Record", 0, 0),
    Event("KernelAndDeviceFunc::Run", 0, 9),
    Event("Iterator::Root::Prefetch", 0, 9, title="Iterator::Prefetch"),
    Event("IteratorGetNext:IteratorGetNext", 0, 9, title="IteratorGetNext"),
    Event("InstantiatedCapturedFunction::RunAsync", 0, 9),
    Event("jit_step", 0, 9, plane=GPU, line="XLA Modules"),
    Event("fusion.4", 0, 9, plane=GPU, line="XLA Ops"),  # beside streams: the same work twice
]
STREAM = Event("volta_sgemm", 0, 9, plane=GPU, line="Stream #14(Compute)")


@pytest.mark.parametrize(
    ("kind", "event"),
    [pytest.param(k, e, id=f"{k.name} {e.name}") for k, many in NAMES.items() for e in many],
)
def test_what_an_event_means(kinds, kind, event):
    found = kinds(*STEPS, event)
    assert found[kind] == [event.name]
    assert set(found) == {SpanKind.STEP, kind}


@pytest.mark.parametrize("event", NOTHING, ids=lambda e: e.name)
def test_events_without_a_meaning_are_left_out(kinds, event):
    found = kinds(*STEPS, STREAM, event)
    assert {name for names in found.values() for name in names} == {STEPS[0].name, STREAM.name}
    assert len(found[SpanKind.KERNEL]) == 1


def test_steps_are_the_training_steps_with_most_events(kinds):
    test = [Event("test", 1000 + i, 1001 + i, step=i) for i in range(9)]
    outer = [Event("train_epoch", 0, 999, step=0)]
    assert kinds(*STEPS, *test, *outer)[SpanKind.STEP] == ["Profiled batch"] * 5


def test_a_device_marks_steps_where_the_host_does_not(tmp_path):
    marks = [
        Event(str(i), 10 * i, 10 * i + 9, plane=f"/device:TPU:{d}", line="Steps")
        for i in range(3)
        for d in range(2)
    ]
    profile = read_as("xplane", tmp_path, *marks)
    assert profile.step.tolist() == [0, 1, 2]
    assert profile.devices == ("/device:TPU:0",)


def test_names_of_waits_can_be_given(kinds):
    own = Event("load_batch", 5, 9)
    assert SpanKind.INPUT_WAIT not in kinds(*STEPS, own)
    assert kinds(*STEPS, own, wait_names=["load_"])[SpanKind.INPUT_WAIT] == ["load_batch"]
    with pytest.raises(UsageError, match="regular expression"):
        kinds(*STEPS, wait_names=["("])


def test_the_process_is_the_one_that_jax_names(tmp_path):
    entry = number(1, 9) + message(2, number(1, 9) + message(2, b"process_id"))
    plane = message(2, b"/host:metadata") + message(5, entry)
    more = message(1, plane + message(6, number(1, 9) + number(4, 4711)))
    assert xplane.read_xplane(write_xplane(tmp_path, xspace(STEPS, more=more))).pid == 4711


def test_what_the_profiler_lost_is_told(tmp_path):
    more = message(2, b"CUPTI is missing")
    profile = xplane.read_xplane(write_xplane(tmp_path, xspace(STEPS, more=more)))
    assert len(profile.losses) == 1
    assert "CUPTI is missing" in profile.losses[0]


def whole_line(encoded: memoryview, plane: xprof_xspace.Plane, stats: tuple[str, ...]):
    """All blocks of a line as one."""
    blocks = list(xprof_xspace.read_blocks(encoded, plane, stats))
    columns = (
        np.concatenate([getattr(block, name) for block in blocks])
        for name in ("start_ns", "end_ns", "name_code")
    )
    values = {name: np.concatenate([block.stats[name] for block in blocks]) for name in stats}
    return xprof_xspace.Line(blocks[0].name, *columns, values)


def test_a_profile_is_the_same_in_blocks_of_any_length(tmp_path, monkeypatch):
    events = [e for e in NOTHING if e.plane != GPU] + [e for many in NAMES.values() for e in many]
    path = write_xplane(tmp_path, xspace([*STEPS, *events, *STEPS]))
    whole = xplane.read_xplane(path)
    monkeypatch.setattr(xprof_xspace, "_BLOCK", 3)
    parts = xplane.read_xplane(path)
    for name in ("start_ns", "end_ns", "step", "kind", "thread", "name"):
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()
    assert parts.names == whole.names


EVENTS = st.lists(
    st.tuples(st.integers(0, 2**40), st.integers(0, 2**33), st.integers(0, 3)), max_size=40
)


@given(EVENTS)
def test_every_number_comes_back(rows):
    events = [Event(f"e{k}", a, a + d, step=i or None) for i, (a, d, k) in enumerate(rows)]
    content = xspace(events)
    planes = xprof_xspace.read_space(memoryview(content)).planes
    if not rows:
        return
    line = whole_line(planes[0].lines[0], planes[0], ("step_num", "hlo_op"))
    assert line.start_ns.tolist() == [e.start for e in events]
    assert line.end_ns.tolist() == [e.end for e in events]
    assert [planes[0].names[c].text for c in line.name_code] == [e.name for e in events]
    absent = xprof_xspace.ABSENT
    assert line.stats["step_num"].tolist() == [absent if e.step is None else e.step for e in events]
    assert (line.stats["hlo_op"] == absent).all()


@given(st.data())
def test_a_damaged_file_is_an_error_or_a_profile(tmp_path_factory, data):
    """No cut and no wrong byte leads anywhere else."""
    content = bytearray(xspace([*STEPS, Event(start=0, end=5, **OPERATOR)]))
    size = data.draw(st.integers(0, len(content)))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = write_xplane(tmp_path_factory.mktemp("damaged"), bytes(content[:size]))
    try:
        profile = xplane.read_xplane(path)
    except InputError:
        return
    assert len(profile.start_ns) == len(profile.end_ns) == len(profile.kind)


def test_a_cut_after_the_events_costs_the_start_only(tmp_path):
    content = xspace(STEPS)
    cut = content[: content.index(b"Task Environment") + 5]
    profile = xplane.read_xplane(write_xplane(tmp_path, cut))
    assert profile.step.tolist() == [4, 5, 6, 7, 8]
    assert "is cut" in profile.losses[0]
    assert profile.clock_uncertainty_ns == 10**9


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "without events"),
        (b"no profile" * 9, "expected a TensorFlow or JAX profile"),
        (xspace(STEPS)[:40], "is cut"),
        (message(1, environment(START_NS)), "without events"),
        (xspace([Event("FunctionRun", 0, 5)]), "profile at least one training step"),
    ],
)
def test_what_is_no_profile(content, found, tmp_path):
    with pytest.raises(InputError, match=found):
        xplane.read_xplane(write_xplane(tmp_path, content))
    with pytest.raises(InputError, match="check the path"):
        xplane.read_xplane(tmp_path / "none.xplane.pb")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "an empty file"),
        (b'{"a": 1}', "without an array traceEvents"),
        (b'{"traceEvents": [{"ph": "X"}, 5, {}]}', "no event with a time"),
    ],
)
def test_what_is_no_viewer_trace(content, found, tmp_path):
    path = session(tmp_path) / "h.trace.json.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=found):
        trace_viewer.read_trace(path)


def test_a_cut_viewer_trace_gives_what_comes_before(tmp_path):
    path = write_viewer(tmp_path, [e for i in range(400) for e in STEPS])
    path.write_bytes(path.read_bytes()[:-300])
    profile = trace_viewer.read_trace(path)
    assert len(profile.start_ns) > 5
    assert "is cut" in profile.losses[0]


def profile_data(path: Path):
    """The profile as XProf reads it, or as JAX does, which has the same reader."""
    try:
        from xprof.profile_data import ProfileData
    except ImportError:
        jax = pytest.importorskip("jax", reason="neither xprof nor jax is installed")
        return jax.profiler.ProfileData.from_file(str(path))
    return ProfileData.from_file(str(path))


def same_as_oracle(path: Path) -> int:
    """Compares every event of every line; how many there were."""
    count = 0
    space = xprof_xspace.read_space(memoryview(path.read_bytes()))
    for plane, other in zip(space.planes, profile_data(path).planes, strict=True):
        assert plane.name == other.name
        for encoded, theirs in zip(plane.lines, other.lines, strict=True):
            line = whole_line(encoded, plane, ("step_num",))
            events = list(theirs.events)
            count += len(events)
            assert line.name == theirs.name
            assert [plane.names[c].text for c in line.name_code] == [e.name for e in events]
            starts = np.array([e.start_ns for e in events])
            ends = starts + np.array([e.duration_ns for e in events])
            assert np.abs(line.start_ns - starts).max(initial=0) <= 0.501
            assert np.abs(line.end_ns - ends).max(initial=0) <= 0.501
            steps = [int(dict(e.stats).get("step_num", xprof_xspace.ABSENT)) for e in events]
            assert line.stats["step_num"].tolist() == steps
    return count


@pytest.mark.parametrize("run", ["tf_tfrecord", "tf_tfrecord_default_limits"])
def test_recorded_profiles_equal_the_oracle(run, shared):
    paths = list((shared / "data" / "recorded" / run).rglob("*.xplane.pb"))
    assert paths
    assert all(same_as_oracle(path) > 20_000 for path in paths)


def test_the_recorded_run(shared):
    (path,) = (shared / "data" / "recorded" / "tf_tfrecord").rglob("*.xplane.pb")
    profile = xplane.read_xplane(path)
    length = profile.end_ns - profile.start_ns
    steps, waits = (profile.kind == kind for kind in (SpanKind.STEP, SpanKind.INPUT_WAIT))
    assert profile.step[steps].tolist() == list(range(4, 40))
    assert round(length[steps].sum() / 1e6, 1) == 153.7
    assert round(length[waits].sum() / 1e6, 1) == 3.9
    inside = np.searchsorted(profile.start_ns[steps], profile.start_ns[waits], side="right") - 1
    assert inside.tolist() == list(range(36))
    assert (profile.end_ns[waits] <= profile.end_ns[steps][inside]).all()
    assert profile.clock_method == "absolute"


JAX_PROGRAM = """
import sys, jax, jax.numpy as jnp
step = jax.jit(lambda x: jnp.tanh(x @ x).sum())
x = jnp.ones((64, 64))
step(x).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    for i in range(4):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            with jax.profiler.TraceAnnotation("load_batch"):
                x = x + 1
            step(x).block_until_ready()
"""


@pytest.fixture(scope="module")
def jax_profile(tmp_path_factory) -> tuple[Path, int, int]:
    """A profile that JAX made on the CPU, and when its program ran, ns."""
    pytest.importorskip("jax", reason="jax is not installed")
    folder = tmp_path_factory.mktemp("jax")
    began = time.time_ns()
    command = [sys.executable, "-c", JAX_PROGRAM, str(folder)]
    subprocess.run(command, check=True, env={"JAX_PLATFORMS": "cpu"}, capture_output=True)
    (path,) = folder.rglob("*.xplane.pb")
    return path, began, time.time_ns()


def test_a_profile_of_jax(jax_profile):
    path, began, ended = jax_profile
    profile = xplane.read_xplane(path, wait_names=["load_batch"])
    counts = {SpanKind(k): int((profile.kind == k).sum()) for k in np.unique(profile.kind)}
    assert counts[SpanKind.STEP] == counts[SpanKind.INPUT_WAIT] == 4
    assert counts[SpanKind.OP] >= 4
    assert profile.step[profile.kind == SpanKind.STEP].tolist() == [0, 1, 2, 3]
    assert profile.pid is not None
    assert began < profile.start_ns.min() < profile.end_ns.max() < ended
    assert same_as_oracle(path) > 0


def test_the_viewer_trace_of_jax_agrees_with_its_profile(jax_profile):
    path, _, _ = jax_profile
    (viewer,) = path.parent.glob("*.trace.json.gz")
    whole, old = xplane.read_xplane(path), trace_viewer.read_trace(viewer)
    local = time.localtime(int(whole.end_ns.max()) // 10**9).tm_gmtoff
    old = trace_viewer.read_trace(viewer, utc_offset_s=local)
    assert old.kind.tolist() == whole.kind.tolist()
    assert old.step.tolist() == whole.step.tolist()
    lengths = [p.end_ns - p.start_ns for p in (whole, old)]
    assert np.abs(lengths[0] - lengths[1]).max() <= 1
    apart = whole.start_ns - old.start_ns
    assert apart.max() - apart.min() <= 1
    assert abs(int(apart[0])) <= old.clock_uncertainty_ns
