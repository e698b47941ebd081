"""The JSON contract: names, nulls, and no NaN."""

from __future__ import annotations

import json

import pytest

from tests import DATA
from tests.makers.results import EXAMPLES
from vanidl.report.summary import summary_json

CONTRACT = {
    "": {"schema", "job", "coverage", "io", "storage", "layers", "steps", "overlap", "epochs",
         "phases", "throughput", "findings"},
    "job": {"id", "command", "start", "run_time_s", "ranks", "processes", "hosts", "tracer"},
    "coverage": {"complete", "warnings", "layers"},
    "io": {"layer", "ops", "reads", "writes", "bytes_read", "bytes_written", "time", "bandwidth",
           "sizes", "access", "files", "dataset"},
    "io.bandwidth": {"aggregate_bytes_per_s", "per_op_median_bytes_per_s"},
    "io.sizes": {"min", "max", "mean", "median", "histogram"},
    "io.files": {"count", "by_kind", "by_mount"},
    "storage": {"bytes_read", "bytes_written", "by_layer"},
    "throughput": {"steps_per_s", "samples_per_s"},
}  # fmt: skip
WHERE_KNOWN = {
    "io.time": {"per_rank_mean_s", "per_rank_max_s", "any_rank_s", "sum_s", "share"},
    "io.access": {"read", "write"},
    "io.access.read": {"ops", "first", "consecutive", "forward", "backward",
                       "sequential_darshan", "consecutive_darshan"},
    "steps": {"source", "per_rank", "ranks", "mean_s", "median_s", "p99_s", "clock"},
    "steps.clock": {"method", "offset_s", "uncertainty_s"},
    "overlap": {"basis", "ranks_observed", "hidden_fraction", "lost_to_input_s",
                "input_wait_share", "accelerator_utilization", "pipeline_share", "mean",
                "per_rank"},
}  # fmt: skip
RANK = {"rank", "window_s", "io_s", "unobserved_s", "in_wait_s", "hidden_s",
        "behind_communication_s", "other_s", "exposed_s", "compute_s", "communication_s",
        "input_wait_s", "input_wait_io_s"}  # fmt: skip


def at(value, path: str):
    for name in filter(None, path.split(".")):
        value = None if value is None else value[name]
    return value


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_name_of_the_contract_is_there(name):
    document = json.loads(summary_json(EXAMPLES[name]().run), parse_constant=_no_constant)
    assert document["schema"] == "vanidl/1"
    for path, names in CONTRACT.items():
        assert names <= at(document, path).keys(), path
    for path, names in WHERE_KNOWN.items():
        value = at(document, path)
        assert value is None or names <= value.keys(), path
    if document["overlap"] is not None:
        assert all(row.keys() >= RANK for row in document["overlap"]["per_rank"])
        assert RANK - {"rank"} <= document["overlap"]["mean"].keys()


def _no_constant(text: str):
    raise AssertionError(f"{text} is not JSON")


def test_the_command_prints_one_object(capsys):
    from vanidl.cli import main

    run = DATA / "torch_pfs_workers0"
    assert main(["summary", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["overlap"]["lost_to_input_s"] == pytest.approx(15.858, rel=0.01)
    # 61 marks; the last begins where the loop ended and holds no step.
    assert document["steps"]["per_rank"] == {"min": 60, "max": 60}
    assert document["throughput"]["steps_per_s"] == pytest.approx(60 / 25.412, rel=1e-3)
