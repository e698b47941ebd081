"""The GPU benchmark, without a GPU: it runs to its end, and its verdicts are what was measured."""

from __future__ import annotations

import importlib
import json
import math
import sys
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")


pytest.importorskip("triton", reason="triton is not installed")


@pytest.fixture(scope="module")
def script():
    return importlib.import_module("benchmarks.loaders.decode_gpu")


def test_a_rehearsal_runs_every_step(script, tmp_path, monkeypatch):
    line = ["decode_gpu", "--rehearse", "--output", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", line)
    monkeypatch.setattr(script, "REHEARSAL", replace(script.REHEARSAL, batches=(2,), repeats=1))
    assert script.main() == 1  # nothing required can be met without a GPU
    (path,) = (tmp_path / "results").glob("*.json")
    found = json.loads(path.read_text())
    assert "no figure here is a measurement" in found["environment"]["hardware"]
    for name in ("cosmoflow", "deepcam"):
        assert found["steps"][f"{name} bits"]["wrong"] == 0
        assert found["steps"][f"{name} decode, batch 2"]["samples_per_s"] > 0
        assert found["steps"][f"{name} feed, ours"]["samples_per_s"] > 0
    assert "not_measured" in found["steps"]["cosmoflow feed, nvCOMP LZ4"]
    assert not any(found["required"].values())
    assert path.with_suffix(".txt").read_text().count("NOT MET") == 4


def steps(of_copy, ours, peer):
    return {
        f"{name} decode, batch {batch}": {"of_copy": of_copy if batch > 1 else 0.1}
        for name in ("cosmoflow", "deepcam")
        for batch in (1, 16, 32)
    } | {
        "cosmoflow feed, ours": {"samples_per_s": ours},
        "cosmoflow feed, int16 copy + GPU log": {"samples_per_s": peer},
        "deepcam feed, ours": {"samples_per_s": ours},
        "deepcam feed, float32 copy": {"samples_per_s": peer},
    }


def test_verdicts_follow_the_figures(script):
    assert all(script.judge(steps(0.7, 3.3, 1.0)).values())
    assert list(script.judge(steps(0.69, 3.1, 1.0)).values()) == [False, False, False, True]
    assert not any(script.judge({}).values())
    unmeasured = steps(0.9, 9, 1) | {"cosmoflow decode, batch 32": {"not_measured": "no time"}}
    assert not script.judge(unmeasured)["cosmoflow: decode >= 0.7 of the copy from batch 16"]


def test_a_failing_step_does_not_stop_the_next(script):
    results = script.Results(math.inf)

    def fail():
        raise ImportError("no nvCOMP")

    assert results.step("a", fail) is None
    assert results.step("b", lambda: {"x": 1}) == {"x": 1}
    assert results.steps["a"] == {"not_measured": "ImportError: no nvCOMP"}
    late = script.Results(0.0)
    assert late.step("c", lambda: {"x": 1}) is None
    assert late.steps["c"] == {"not_measured": "no time left"}


def test_a_wrong_bit_ends_all(script, monkeypatch):
    samples = script.universes(script.REHEARSAL)
    encoded = script.encode_all("cosmoflow", samples)
    real = script.decode_batch
    monkeypatch.setattr(script, "decode_batch", lambda *a, **k: {"a": real(*a, **k)["a"] + 1})
    with pytest.raises(AssertionError, match="CPU's bits"):
        script.check(encoded, script.REHEARSAL)
