"""What devices did in steps is what plain loops over the events say."""

from __future__ import annotations

import pytest

from tests import SHARED
from tests.breakdown.device_loops import KINDS, by_account, by_loops

CASES = ("copy_bound", "comm_kernel_names", "mtia_device", "gpu_annotation")
TRACES = [
    *(SHARED / "data" / "public" / "kineto_resnet50_v100").glob("*.json.gz"),
    *(path for name in CASES for path in (SHARED / "data" / "cases" / name).glob("*.trace.json")),
]
if not TRACES:
    pytest.skip("no traces of other people beside the repository", allow_module_level=True)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parent.name}-{path.name[:13]}")
def test_devices_by_loops(path):
    loops = by_loops(path)
    assert loops is not None
    ours, whole = by_account(path), sum(loops.values())
    assert {k: ours[k] for k in KINDS} == pytest.approx(loops, abs=1e-3 * whole)
