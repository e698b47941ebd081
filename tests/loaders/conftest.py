from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def ptycho(tmp_path_factory):
    """21 samples of 16 x 16: divides by neither 2 ranks nor batches of 4."""
    pytest.importorskip("h5py", reason="h5py is not installed")
    from vanidl_loaders.workloads.making import make

    return make("ptycho", tmp_path_factory.mktemp("ptycho"), samples=21, seed=3, size=16)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A function workload -> 5 small samples of it, made once."""
    pytest.importorskip("h5py", reason="h5py is not installed")
    pytest.importorskip("PIL", reason="pillow is not installed")
    from vanidl_loaders.workloads.making import make

    made = {}

    def find(workload):
        if workload not in made:
            folder = tmp_path_factory.mktemp(workload)
            made[workload] = make(workload, folder, samples=5, seed=1, size=16)
        return made[workload]

    return find


def json_objects(text):
    """Every JSON object in the output of ranks that write when they like."""
    found, decoder = [], json.JSONDecoder()
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


@pytest.fixture
def run_python(tmp_path):
    """Runs a command that finds this repository's packages as this process does."""

    def run(line, **environment):
        return subprocess.run(
            [str(part) for part in line],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def python():
    return sys.executable
