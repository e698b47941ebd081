"""Profiles of rocprofv3, as rocprofiler-sdk 1.0 lays them out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

ZERO = 63_855_948_165_371
GPUS = (37946, 37947)
KERNELS = ("gemm", "ncclDevKernel_Generic_1", "__amd_rocclr_fillBufferAligned")


def span(start: int, end: int, **more: Any) -> dict[str, Any]:
    own = {"size": 184, "thread_id": 908, "correlation_id": {"internal": 1, "external": 0}}
    return {**own, "start_timestamp": ZERO + start, "end_timestamp": ZERO + end, **more}


def dispatch(
    start: int, end: int, kernel: int = 0, gpu: int = 0, stream: int = 5, **more: Any
) -> dict[str, Any]:
    info = {"agent_id": {"handle": GPUS[gpu]}, "queue_id": {"handle": 1}, "kernel_id": kernel}
    return span(start, end, kind=11, dispatch_info=info, stream_id={"handle": stream}, **more)


def copy(start: int, end: int, to_gpu: bool = True) -> dict[str, Any]:
    ends = [{"handle": GPUS[0]}, {"handle": 1}]
    dst, src = ends if to_gpu else ends[::-1]
    return span(start, end, kind=10, dst_agent_id=dst, src_agent_id=src, bytes=4096)


def process(
    dispatches: Sequence[dict[str, Any]] = (),
    copies: Sequence[dict[str, Any]] = (),
    ranges: Sequence[tuple[str, int, int]] = (),
    *,
    calls: Sequence[dict[str, Any]] = (),
    host: str = "n1",
    pid: int = 908,
    kernels: Sequence[str] = KERNELS,
) -> dict[str, Any]:
    markers = [
        span(start, end, kind=7, correlation_id={"internal": i, "external": 0})
        for i, (_, start, end) in enumerate(ranges, 100)
    ]
    agents = [{"id": {"handle": 1}, "type": 1, "name": "EPYC"}]
    agents += [
        {"id": {"handle": handle}, "type": 2, "name": "gfx950", "product_name": "MI350X"}
        for handle in GPUS
    ]
    return {
        "metadata": {"node": {"hostname": host}, "pid": pid, "command": ["python", "t.py"]},
        "agents": agents,
        "strings": {
            "buffer_records": [{"kind": "KERNEL_DISPATCH", "operations": ["NONE"]}],
            "marker_api": [{"key": i, "value": name} for i, (name, _, _) in enumerate(ranges, 100)],
        },
        "kernel_symbols": [
            {"kernel_id": i, "kernel_name": f"_Z{name}.kd", "formatted_kernel_name": name}
            for i, name in enumerate(kernels)
        ],
        "callback_records": {"counter_collection": [{"dispatch_data": {"start_timestamp": 1}}]},
        "buffer_records": {
            "kernel_dispatch": list(dispatches),
            "memory_copy": list(copies),
            "hip_api": list(calls),
            "marker_api": markers,
        },
    }


def profile(*processes: dict[str, Any]) -> bytes:
    return json.dumps({"rocprofiler-sdk-tool": list(processes)}, separators=(",", ":")).encode()
