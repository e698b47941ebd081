"""Profiles of rocprofv3: what devices did, by plain loops over the file."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from tests.makers.rocprof_profiles import ZERO, copy, dispatch, process, profile, span
from vanidl import open_run
from vanidl.breakdown.account import MEAN, RUN
from vanidl.breakdown.causes import COMPUTE
from vanidl.errors import InputError, UsageError
from vanidl.model.trace import SpanKind
from vanidl.readers import discover
from vanidl.readers.rocprof.profile import read_profiles

DISPATCHES = [dispatch(100, 300), dispatch(250, 400, 1, stream=6), dispatch(500, 700, 2, gpu=1)]
COPIES = [copy(50, 90), copy(800, 810, to_gpu=False)]
RANGES = [("ProfilerStep#3", 40, 820), ("load batch", 42, 48), ("forward", 95, 320)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "908_results.json"
    path.write_bytes(profile(process(DISPATCHES, COPIES, RANGES)))
    return path


def spans(one) -> list[tuple[int, int, SpanKind, str]]:
    columns = (one.start_ns - ZERO, one.end_ns - ZERO, one.kind, one.name)
    return [
        (int(a), int(b), SpanKind(k), one.names[n]) for a, b, k, n in zip(*columns, strict=True)
    ]


def test_spans_by_start_with_their_kinds_and_names(file: Path) -> None:
    (one,) = read_profiles(file, wait_names=("^load",))
    assert spans(one) == [
        (40, 820, SpanKind.STEP, "ProfilerStep#3"),
        (42, 48, SpanKind.INPUT_WAIT, "load batch"),
        (50, 90, SpanKind.COPY, "memory copy"),
        (95, 320, SpanKind.OP, "forward"),
        (100, 300, SpanKind.KERNEL, "gemm"),
        (250, 400, SpanKind.COMMUNICATION, "ncclDevKernel_Generic_1"),
        (500, 700, SpanKind.COPY, "__amd_rocclr_fillBufferAligned"),
        (800, 810, SpanKind.COPY, "memory copy"),
    ]
    assert (one.host, one.pid, one.devices, one.losses) == ("n1", 908, ("MI350X", "MI350X"), ())
    assert one.step.tolist() == [3, -1, -1, -1, -1, -1, -1, -1]
    # Streams of a device, its copies, another device and the host are lanes of their own.
    lanes = one.thread.tolist()
    assert lanes[2] == lanes[7]
    assert len({lanes[0], lanes[2], lanes[4], lanes[5], lanes[6]}) == 5
    assert not any(column.flags.writeable for column in (one.start_ns, one.end_ns, one.kind))


def test_processes_of_one_file_are_apart(tmp_path: Path) -> None:
    path = tmp_path / "r.json.gz"
    other = process([dispatch(10, 20)], host="n2", pid=909, kernels=["other"])
    path.write_bytes(gzip.compress(profile(process(DISPATCHES), process(), other), mtime=0))
    first, second = read_profiles(path)
    assert [(one.host, one.pid, len(one.start_ns)) for one in (first, second)] == [
        ("n1", 908, 3), ("n2", 909, 1),
    ]  # fmt: skip
    assert second.names == ("other",)


@pytest.mark.parametrize(
    ("start", "end", "good"), [(5, 5, 1), (5, 4, 0), (-ZERO, 4, 0), (1 - ZERO, 4, 1)]
)
def test_records_without_possible_times_are_counted(tmp_path: Path, start, end, good) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(profile(process([dispatch(1, 2), dispatch(start, end)])))
    (one,) = read_profiles(path)
    assert len(one.start_ns) == 1 + good
    assert bool(one.losses) != bool(good)


def test_marks_without_length_and_counters_are_no_spans(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(profile(process([dispatch(1, 2)], ranges=[("mark", 5, 5)])))
    (one,) = read_profiles(path)
    assert spans(one) == [(1, 2, SpanKind.KERNEL, "gemm")]


def test_a_cut_file_gives_what_came_before(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.index(b'"memory_copy"')])
    (one,) = read_profiles(file)
    assert len(one.start_ns) == len(DISPATCHES)
    assert "cut" in one.losses[0]


def test_damage_behind_the_end_of_a_packed_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "r.json.gz"
    packed = gzip.compress(profile(process(DISPATCHES)), mtime=0)
    path.write_bytes(packed[:-4])  # without all of what checks it
    (one,) = read_profiles(path)
    assert len(one.start_ns) == len(DISPATCHES)
    assert one.losses == ("the gzip data is cut, after the end of the profile",)


@pytest.mark.parametrize(
    "content",
    [b"{}", b"[1]", b"text", b"", profile(), profile(process()), b'{"rocprofiler-sdk-tool": 1}'],
)
def test_files_without_a_span_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="rocprofv3"):
        read_profiles(path)


def test_a_bad_expression_is_the_users(file: Path) -> None:
    with pytest.raises(UsageError, match="regular expression"):
        read_profiles(file, wait_names=("(",))


def test_it_is_known_by_its_content_alone_and_in_a_folder(file: Path) -> None:
    (file.parent / "settings.json").write_text(json.dumps({"a": 1}))
    for place in (file, file.parent):
        assert discover.find(place).files == {"rocprof": (file,)}


@pytest.mark.parametrize("seed", range(5))
def test_the_device_was_busy_for_the_union_of_what_it_did(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    starts = [chance.randrange(0, 5_000_000) for _ in range(40)]
    works = [
        dispatch(s, s + chance.randrange(1, 200_000), stream=chance.randrange(3)) for s in starts
    ]
    path = tmp_path / "r.json"
    path.write_bytes(profile(process(works)))
    busy = np.zeros(5_200_000, bool)
    for work in works:
        busy[work["start_timestamp"] - ZERO : work["end_timestamp"] - ZERO] = True
    first, last = np.flatnonzero(busy)[[0, -1]]
    run = open_run(path)
    assert run.trace.job.run_time_s == pytest.approx((last + 1 - first) / 1e9)
    assert run.breakdown.cell(f"{MEAN}/{RUN}/{COMPUTE}").low_ns == busy.sum()


def test_odd_records_are_left_out(tmp_path: Path) -> None:
    odd = [span(1, 2), {}, {"start_timestamp": "1"}, {"dispatch_info": 3}]
    path = tmp_path / "r.json"
    path.write_bytes(profile(process([dispatch(1, 2), *odd])))
    (one,) = read_profiles(path)
    assert len(one.start_ns) == 2  # the first of the odd ones has times, and no kernel
    assert "kernel -1" in one.names
    assert "3 records" in one.losses[0]
