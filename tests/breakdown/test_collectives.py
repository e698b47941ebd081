"""Collectives that nothing covers are a part of the mean step, of paired ranks or of one."""

from __future__ import annotations

from pathlib import Path

import pytest

import vanidl
from tests.makers.pytorch_traces import PID, WAIT, event, kernel, trace, write
from vanidl.sections.step_bar import name_part
from vanidl.wording.headline import make_headline


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


def write_ranks(
    folder: Path, came_us: list[list[int]], *, groups: int = 1, skips: bool = False
) -> Path:
    """Ranks that come to a collective in each step at these times; it ends 5 ms after the last.

    Their clocks differ by 30 ms. `skips`: the last rank has no collective in its last step.
    """
    for rank, came in enumerate(came_us):
        events, zero = [], 1000 + 30_000.0 * rank
        for i, at_us in enumerate(came):
            begin = zero + 100_000.0 * i
            last = max(each[i] for each in came_us)
            events += [
                event(f"ProfilerStep#{i}", begin, 100_000, "user_annotation", pid=PID + rank),
                event("aten::linear", begin, 99_000, pid=PID + rank),
                kernel("gemm", begin + 1000, 9_000),
            ]
            if not (skips and rank == len(came_us) - 1 and i == len(came) - 1):
                took = last + 5_000 - at_us
                events.append(kernel("ncclDevKernel_AllReduce", begin + at_us, took, tid=20))
        world = {"pg_size": len(came_us), "ranks": list(range(len(came_us)))}
        content = trace(events) | {
            "distributedInfo": {
                "rank": rank, "world_size": len(came_us), "pg_config": [world] * groups,
            }
        }  # fmt: skip
        write(folder / f"node_{PID + rank}.170000000000000000{rank}.pt.trace.json", content)
    return folder


CAME_US = [[20_000, 30_000, 12_000], [50_000, 15_000, 12_000], [20_500, 60_000, 12_000]]


def test_paired_ranks_are_told_what_they_waited_for_each_other(tmp_path: Path) -> None:
    account = vanidl.open_run(write_ranks(tmp_path, CAME_US)).breakdown
    last = [max(step) for step in zip(*CAME_US, strict=True)]
    for rank, came in enumerate(CAME_US):
        waited_us = sum(each - at for each, at in zip(last, came, strict=True)) / len(came)
        peers = account.cell(f"{rank}/step/waiting_for_peers")
        transfer = account.cell(f"{rank}/step/communication")
        assert (peers.low_ns, peers.high_ns) == pytest.approx([1e3 * waited_us] * 2, abs=2)
        assert (transfer.low_ns, transfer.high_ns) == pytest.approx([5e6] * 2, abs=2)


@pytest.mark.parametrize(("groups", "skips"), [(2, False), (0, False), (1, True)])
def test_collectives_that_cannot_be_paired_may_be_either(
    tmp_path: Path, groups: int, skips: bool
) -> None:
    """Of several groups, or none that is named; and in a step in which a rank lacks one."""
    account = vanidl.open_run(write_ranks(tmp_path, CAME_US, groups=groups, skips=skips)).breakdown
    waits, transfer = account.cell("0/step/waiting_for_peers"), account.cell("0/step/communication")
    if skips:  # two steps of three are paired; 5 ms of the third may be either
        assert waits.range_s == pytest.approx([0.060 / 3, 0.065 / 3], abs=1e-8)
        assert transfer.range_s == pytest.approx([0.010 / 3, 0.015 / 3], abs=1e-8)
    else:
        assert waits.range_s == pytest.approx([0.0, 0.075 / 3], abs=1e-8)
        assert transfer.range_s == pytest.approx([0.0, 0.075 / 3], abs=1e-8)


@pytest.mark.parametrize(("late_us", "said"), [(0, False), (5_000, False), (30_000, True)])
def test_work_of_devices_behind_the_last_step_is_told_beside_that_within(
    tmp_path: Path, late_us: int, said: bool
) -> None:
    """60 ms within three steps, and what kernels that were launched last take beyond the last."""
    events = []
    for i in range(3):
        at = 1000 + 100_000.0 * i
        events += [
            event(f"ProfilerStep#{i}", at, 100_000, "user_annotation"),
            event("aten::linear", at + 100, 90_000),
            kernel("gemm", at + 5_000, 20_000),
        ]
    if late_us:
        events.append(kernel("gemm", 302_000, late_us))
    name = f"node_{PID}.1700000000000000000.pt.trace.json"
    run = vanidl.open_run(write(tmp_path / name, trace(events)))
    sentence = f"The device also worked for {late_us / 1000:.1f} ms outside of these steps"
    support = make_headline(run.trace, run.results, run.breakdown).support
    assert any(line.startswith(sentence) for line in support) is said
