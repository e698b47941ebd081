"""The poster's applications: what an epoch holds, and what vanidl says of how they read."""

from __future__ import annotations

import json
import sys
from functools import partial
from hashlib import blake2b

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from tests.loaders.launch import run
from vanidl_loaders.workloads import applications
from vanidl_loaders.workloads.applications import APPLICATIONS

SMALL = {
    "imagenet": partial(applications._make_imagenet, files=5, samples=3),
    "cosmictagger": partial(applications._make_cosmictagger, samples=6),
    "ffn": partial(applications._make_ffn, blocks=12),
    "cosmoflow": partial(applications._make_cosmoflow, files=5),
    "frnn": partial(applications._make_frnn, shots=7),
}
"""Application -> what makes a small data set of it."""
SAMPLES = {"imagenet": 15, "cosmictagger": 6, "ffn": 4, "cosmoflow": 5, "frnn": 7}


def test_every_application_has_a_small_data_set():
    assert SMALL.keys() == SAMPLES.keys() == APPLICATIONS.keys()


def digests(name, folder, epoch, workers):
    found = []
    for worker in range(workers):
        for sample in APPLICATIONS[name].samples(folder, epoch, worker, workers):
            values = np.ascontiguousarray(sample)
            assert values.dtype == np.float32
            assert values.size >= 1024  # what a step takes of it
            found.append(blake2b(values.tobytes(), digest_size=8).hexdigest())
    return found


@pytest.mark.parametrize("name", SMALL)
def test_workers_share_the_samples_of_an_epoch(name, tmp_path):
    SMALL[name](tmp_path)
    alone = digests(name, tmp_path, 0, 1)
    assert len(set(alone)) == len(alone) == SAMPLES[name]
    shared = digests(name, tmp_path, 0, 3)
    assert sorted(shared) == sorted(alone)
    if name != "cosmictagger":  # that reads in order
        assert digests(name, tmp_path, 1, 1) != alone


def test_the_sizes_of_the_poster_are_in_vanidls_answer(tmp_path):
    """Requests as they reach the file system, recorded without a change to the program.

    Of one application: `test_poster.py` has all, as they were recorded on emulated storage.
    """
    name, sizes = "frnn", {2_097_280, 256}
    (tmp_path / "data").mkdir()
    SMALL[name](tmp_path / "data")
    training = ["-m", "vanidl_loaders.workloads.applications", name, "--data", tmp_path / "data"]
    line = [sys.executable, "-m", "vanidl", "record", "--tracer", "vanidl", "-o", tmp_path / "RUN"]
    done = run([*line, "--", sys.executable, *training, "--compute-ms", 1], folder=tmp_path)
    if done.returncode and "libvanidl_tracer" in done.stderr:
        pytest.skip("the tracer was not compiled when vanidl was installed")
    assert done.returncode == 0, done.stderr
    said = run(
        [sys.executable, "-m", "vanidl", "summary", "--json", tmp_path / "RUN"], folder=tmp_path
    )
    answer = json.loads(said.stdout)
    modes = answer["io"]["dataset"]["modes"]
    assert sizes <= {mode["low"] for mode in modes if mode["low"] == mode["high"]}
    assert answer["overlap"]["hidden_fraction"] == 0
