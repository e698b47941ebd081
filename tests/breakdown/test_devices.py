"""What devices did in steps is what plain loops over the events say."""

from __future__ import annotations

import pytest

from tests import SHARED
from tests.breakdown.device_loops import KINDS, by_account, by_loops

CASES = (
    "comm_kernel_names", "copy_bound", "display_ns_no_devices", "gpu_annotation",
    "idle_without_loader", "mtia_device", "plain_profile", "repeat_same_numbers", "sglang_name",
    "worker_name_is_no_host",
)  # fmt: skip
"""Of one process, and whole: what damaged ones and merged ones say is in tests/cases."""
TRACES = [
    *(SHARED / "data" / "public" / "kineto_resnet50_v100").glob("*.json.gz"),
    *(path for name in CASES for path in (SHARED / "data" / "cases" / name).glob("*trace.json*")),
]
if not TRACES:
    pytest.skip("no traces of other people beside the repository", allow_module_level=True)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parent.name}-{path.name[:13]}")
def test_devices_by_loops(path):
    loops = by_loops(path)
    assert loops is not None
    ours, whole = by_account(path), sum(loops.values())
    assert {k: ours[k] for k in KINDS if k in loops} == pytest.approx(loops, abs=1e-3 * whole)
