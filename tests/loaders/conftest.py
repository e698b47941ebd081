from __future__ import annotations

import os
import sys
from functools import partial

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, one per core

from tests.loaders.launch import run


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


@pytest.fixture
def run_python(tmp_path):
    """`launch.run` in the folder of the test."""
    return partial(run, folder=tmp_path)


@pytest.fixture(scope="session")
def python():
    return sys.executable
