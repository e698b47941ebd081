"""Collectives that nothing covers are a part of the mean step, of paired ranks or of one."""

from __future__ import annotations

from pathlib import Path

import pytest

import vanidl
from tests.makers.pytorch_traces import PID, WAIT, event, kernel, trace, write
from vanidl.sections.step_bar import name_part


@pytest.mark.parametrize("collective", ["ncclDevKernel_AllReduce", "multimem_all_reduce_kernel"])
def test_collectives_of_one_rank_are_communication(tmp_path: Path, collective: str) -> None:
    events = []
    for i in range(4):
        at = 1000 + 100_000.0 * i
        events += [
            event(f"ProfilerStep#{i}", at, 100_000, "user_annotation"),
            event(WAIT, at, 20_000, "user_annotation"),
            event("aten::linear", at + 20_000, 79_000),
            kernel("gemm", at + 25_000, 30_000),
            kernel(collective, at + 60_000, 35_000, tid=20),
        ]
    name = f"node_{PID}.1700000000000000000.pt.trace.json"
    run = vanidl.open_run(write(tmp_path / name, trace(events)))
    parts = {part.code: part.seconds for part in run.step_parts.parts}
    assert parts["communication"] == pytest.approx(0.035)
    assert parts["compute"] == pytest.approx(0.030)
    assert sum(parts.values()) == pytest.approx(0.1)


@pytest.mark.parametrize("on_device", [True, False])
def test_without_waits_the_rest_is_idle_where_a_device_was_recorded(
    tmp_path: Path, on_device: bool
) -> None:
    events = []
    for i in range(4):
        at = 1000 + 100_000.0 * i
        events += [
            event(f"ProfilerStep#{i}", at, 100_000, "user_annotation"),
            event("aten::linear", at + 20_000, 40_000),
            *([kernel("gemm", at + 25_000, 13_000)] if on_device else []),
        ]
    name = f"node_{PID}.1700000000000000000.pt.trace.json"
    run = vanidl.open_run(write(tmp_path / name, trace(events)))
    assert (run.step_parts.waits_known, run.step_parts.device_known) == (False, on_device)
    called = {name_part(p.code, run.step_parts, lossy=False): p.share for p in run.step_parts.parts}
    assert called.get("device idle") == (pytest.approx(0.87) if on_device else None)
    assert ("computing or waiting" in called) != on_device
