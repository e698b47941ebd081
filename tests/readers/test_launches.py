"""When devices did nothing with work in their queues, moment by moment, whoever profiled them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.makers import pytorch_traces, rocprof_profiles, xplane_files
from vanidl.model.intervals import Intervals
from vanidl.readers.pytorch.trace import read_trace
from vanidl.readers.records import ProfileTrace
from vanidl.readers.rocprof.profile import read_profiles
from vanidl.readers.xprof.xplane import read_xplane

UNIT_NS = 1000
LENGTH = 2000
Work = tuple[int, int, int]  # start and length on the device, and when it was handed over


def profile_by_kineto(folder: Path, works: list[Work]) -> tuple[ProfileTrace, int]:
    events = []
    for number, (start, length, launch) in enumerate(works, 1):
        own = {"args": {"correlation": number}}
        events.append(pytorch_traces.kernel("gemm", start, length, **own))
        if launch >= 0:
            call = pytorch_traces.event("cudaLaunchKernel", launch, 1, "cuda_runtime", **own)
            events.append(call)
    path = pytorch_traces.write(folder / "t.pt.trace.json", pytorch_traces.trace(events))
    return read_trace(path), pytorch_traces.BASE_NS


def profile_by_rocprof(folder: Path, works: list[Work]) -> tuple[ProfileTrace, int]:
    dispatches, calls = [], []
    for number, (start, length, launch) in enumerate(works, 1):
        own = {"correlation_id": {"internal": number, "external": 0}}
        times = UNIT_NS * start, UNIT_NS * (start + length)
        dispatches.append(rocprof_profiles.dispatch(*times, **own))
        if launch >= 0:
            calls.append(rocprof_profiles.span(UNIT_NS * launch, UNIT_NS * launch + 9, **own))
    calls.append(rocprof_profiles.span(3, 4, correlation_id=None))
    process = rocprof_profiles.process(dispatches, calls=calls)
    path = folder / "1_results.json"
    path.write_bytes(rocprof_profiles.profile(process))
    return read_profiles(path)[0], rocprof_profiles.ZERO


def profile_by_xprof(folder: Path, works: list[Work]) -> tuple[ProfileTrace, int]:
    event = xplane_files.Event
    events = [event("hipDeviceSynchronize", 5, 9, line="thread")]
    for number, (start, length, launch) in enumerate(works, 1):
        begin, end = UNIT_NS * start, UNIT_NS * (start + length)
        stream = {"line": "Stream #2", "plane": "/device:GPU:0"}
        events.append(event("gemm", begin, end, correlation=number, **stream))
        if launch >= 0:
            at = UNIT_NS * launch
            events.append(
                event("hipModuleLaunchKernel", at, at + 9, line="thread", correlation=number)
            )
    path = folder / "plugins" / "profile" / xplane_files.SESSION / "node01.xplane.pb"
    path.parent.mkdir(parents=True)
    path.write_bytes(xplane_files.xspace(events))
    return read_xplane(path), xplane_files.START_NS


PROFILERS = (profile_by_kineto, profile_by_rocprof, profile_by_xprof)
Profiler = Callable[[Path, list[Work]], tuple[ProfileTrace, int]]


def draw_works(seed: int, shortest: int) -> list[Work]:
    chance = random.Random(seed)
    works, begin = [], 50
    for _ in range(25):
        begin += chance.randrange(0, 30)
        works.append((begin, chance.randrange(shortest, 25), begin - chance.randrange(0, 45)))
    chance.shuffle(works)
    return works


def mark_moments(found: Intervals, zero_ns: int) -> list[bool]:
    said = np.zeros(LENGTH, bool)
    for low, high in zip(*(side - zero_ns for side in found), strict=True):
        said[low // UNIT_NS : high // UNIT_NS] = True
    return said.tolist()


@pytest.mark.parametrize("profiler", PROFILERS)
@pytest.mark.parametrize("seed", range(8))
def test_devices_that_do_nothing_though_work_was_handed_to_them(
    profiler: Profiler, seed: int, tmp_path: Path
) -> None:
    """No kernel runs, and one that has not begun was launched."""
    works = draw_works(seed, shortest=1)
    idle, handed = np.ones(LENGTH, bool), np.zeros(LENGTH, bool)
    for start, length, launch in works:
        idle[start : start + length] = False
        handed[launch:start] = True
    one, zero_ns = profiler(tmp_path, works)
    assert one.queued is not None
    assert mark_moments(one.queued, zero_ns) == (idle & handed).tolist()


@pytest.mark.parametrize("profiler", PROFILERS)
@pytest.mark.parametrize(("without", "known"), [(0, True), (2, True), (3, False), (25, False)])
def test_launches_of_most_work_must_be_known(
    profiler: Profiler, without: int, known: bool, tmp_path: Path
) -> None:
    works = [
        (start, length, -1 if i < without else launch)
        for i, (start, length, launch) in enumerate(draw_works(3, shortest=1))
    ]
    assert (profiler(tmp_path, works)[0].queued is not None) is known
