"""Ranks that are processes: MPI and gloo at 2, 4 and 8 ranks, and one that is killed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.conftest import json_objects
from tests.loaders.pls.ranks import EPOCHS
from vanidl_loaders import pls
from vanidl_loaders.loader.stats import Counts
from vanidl_loaders.pls.sources import sample_source
from vanidl_loaders.pls.storage import FolderStore, sample_of
from vanidl_loaders.workloads.making import make

BIN = str(Path(sys.executable).parent)
RANKS_PROGRAM = str(Path(__file__).with_name("ranks.py"))
FRACTIONS = [0.0, 0.3, 1.0]
CASES = [
    pytest.param(launcher, ranks, marks=[pytest.mark.mpi] if launcher == "mpi" else [])
    for launcher in ("mpi", "gloo")
    for ranks in (2, 4, 8)
]
LAUNCHERS = [pytest.param("mpi", marks=pytest.mark.mpi), "gloo"]


def program(launcher, ranks, python):
    """The command that starts ranks."""
    if launcher == "gloo":
        return [python, "-m", "torch.distributed.run", "--nproc-per-node", ranks]
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    found = shutil.which("mpiexec", path=BIN) or shutil.which("mpiexec")
    if found is None:
        pytest.skip("mpiexec is not installed")
    return [found, "-n", ranks, python]


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """101: divides by none of the numbers of ranks."""
    return make("ptycho", tmp_path_factory.mktemp("data"), samples=101, seed=2, size=16)


@pytest.fixture(scope="module")
def contents(samples):
    """Checksum of every sample's bytes."""
    messages = sample_source(samples).read(range(101), Counts())
    return {sample_of(m): zlib.crc32(m[8:]) for m in messages}


def options(launcher, samples, tmp_path, what, **more):
    chosen = {"what": what, "data": str(samples.folder), "local": str(tmp_path / "local")}
    return json.dumps(chosen | {"backend": launcher} | more)


@pytest.mark.parametrize(("launcher", "ranks"), CASES)
def test_laws(launcher, ranks, samples, contents, tmp_path, run_python, python):
    most = 3 * samples.sample_nbytes
    given = options(
        launcher, samples, tmp_path, "exchange", fractions=FRACTIONS, in_flight_nbytes=most
    )
    done = run_python([*program(launcher, ranks, python), RANKS_PROGRAM, given])
    assert done.returncode == 0, done.stderr
    said = sorted(json_objects(done.stdout), key=lambda each: each["rank"])
    assert [each["rank"] for each in said] == list(range(ranks))
    for case in zip(*(each["cases"] for each in said), strict=True):
        check_case(case, ranks, contents, most)


def check_case(case, ranks, contents, most):
    """One fraction and store; `case` has an entry for each rank."""
    fraction = case[0]["fraction"]
    owner = pls.Ownership(pls.deal(101, ranks), fraction)  # made here, offline
    for epoch in range(EPOCHS):
        for rank, said in enumerate(case):
            held, found = said["epochs"][epoch]
            assert held == owner.held_by(rank, epoch + 1).tolist()
            assert sorted(map(int, found)) == sorted(held)
            assert len(held) == owner.sizes[rank]
        together = {int(i): crc for said in case for i, crc in said["epochs"][epoch][1].items()}
        assert together == contents
    moved = np.zeros(ranks, int)
    for epoch in range(EPOCHS):
        targets = owner.exchange(epoch).targets
        moved += ((targets != np.arange(ranks)) & (targets >= 0)).sum(axis=0)
    assert [said["swapped"] for said in case] == moved.tolist()
    for rank, said in enumerate(case):
        assert said["peak_samples"] <= (1 + fraction) * int(owner.sizes[rank])
        assert said["peak_in_flight_nbytes"] <= most


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_killed_rank_leaves_no_half_sample_and_hangs_nobody(
    launcher, samples, contents, tmp_path, run_python, python
):
    given = options(launcher, samples, tmp_path, "killed", timeout_s=200)
    begin = time.monotonic()
    done = run_python([*program(launcher, 4, python), RANKS_PROGRAM, given])
    assert done.returncode != 0
    assert time.monotonic() - begin < 150  # not even as long as the exchange would wait
    check_folders(tmp_path / "local", samples, contents)


def check_folders(local, samples, contents):
    """Whatever a rank left under the name of a sample is whole, and is used again."""
    parts = list(local.glob("rank00001/*.part"))
    assert len(parts) == 1  # the one that was being written
    for rank in range(4):
        store = FolderStore(local / f"rank{rank:05d}", sample_source(samples).identity())
        sizes = store.sizes()
        assert len(sizes) >= 25
        assert set(sizes.values()) == {samples.sample_nbytes}
        for sample in sizes:
            assert zlib.crc32(store.message(sample)[8:]) == contents[sample]
    assert not list(local.glob("*/*.part"))


def test_survivors_end_without_a_launcher_that_ends_them(samples, contents, tmp_path, python):
    """Four processes that nobody watches: those that live get an error, not a hang."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    given = options("gloo", samples, tmp_path, "killed", timeout_s=20)
    said = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "4"}
    said |= {"TORCHELASTIC_RUN_ID": "x", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [python, RANKS_PROGRAM, given],
            env=os.environ | said | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    try:
        ends = [process.communicate(timeout=150)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [3, -9, 3, 3]
    for rank in (0, 2, 3):
        assert "expected item" in json.loads(ends[rank])["error"]
    check_folders(tmp_path / "local", samples, contents)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_silent_rank_is_an_error(launcher, samples, tmp_path, run_python, python):
    given = options(launcher, samples, tmp_path, "silent")
    done = run_python([*program(launcher, 2, python), RANKS_PROGRAM, given])
    (said,) = json_objects(done.stdout)
    assert said["rank"] == 0
    assert "rank 1 within 0.5 s" in said["error"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_samples_of_60_mb(launcher, samples, tmp_path, run_python, python):
    given = options(launcher, samples, tmp_path, "large")
    done = run_python([*program(launcher, 2, python), RANKS_PROGRAM, given])
    assert done.returncode == 0, done.stderr
    said = json_objects(done.stdout)
    assert sorted(each["rank"] for each in said) == [0, 1]
    for each in said:
        assert each["right"] == [True, True]
        assert each["lengths"] == [60_000_000]
        assert each["swapped"] > 0
        assert each["peak"] == 2 * 60_000_008  # one item each way, no more


@pytest.mark.gpu
def test_nccl(samples, contents, tmp_path, run_python, python):
    if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        pytest.skip("NCCL needs a GPU for each of two ranks")
    most = 3 * samples.sample_nbytes
    given = options(
        "nccl", samples, tmp_path, "exchange", fractions=FRACTIONS, in_flight_nbytes=most
    )
    done = run_python([*program("gloo", 2, python), RANKS_PROGRAM, given])
    assert done.returncode == 0, done.stderr
    said = sorted(json_objects(done.stdout), key=lambda each: each["rank"])
    for case in zip(*(each["cases"] for each in said), strict=True):
        check_case(case, 2, contents, most)
