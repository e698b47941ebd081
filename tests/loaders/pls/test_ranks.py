"""Ranks that are processes: MPI and gloo at 2, 4 and (gloo) 8 ranks, and one that is killed.

MPI's ranks spin while they wait: eight of them on two cores take minutes.
"""

from __future__ import annotations

import json
import signal
import time
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.launch import STARTED_BY, json_objects, run
from tests.loaders.pls.ranks import EPOCHS
from tests.makers.once import once
from vanidl_loaders import pls
from vanidl_loaders.loader.loader import Counts
from vanidl_loaders.pls.sources import open_source
from vanidl_loaders.pls.storage import HEADER_NBYTES, FolderStore, content, sample_of
from vanidl_loaders.workloads.making import make

RANKS_PROGRAM = Path(__file__).with_name("ranks.py")
FRACTIONS = [0.0, 0.3, 1.0]
LAUNCHERS = [pytest.param("mpi", marks=pytest.mark.mpi), "forked"]
RANKS = {2: ["exchange", "large", "silent"], 4: ["exchange", "killed"], 8: ["exchange"]}
"""Ranks -> what they do, one after another, in one launch: of the last one not all survive."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """101: divides by none of the numbers of ranks."""
    folder = tmp_path_factory.mktemp("data")
    return once(
        tmp_path_factory, "exchanged", lambda: make("ptycho", folder, samples=101, seed=2, size=16)
    )


@pytest.fixture(scope="module")
def contents(samples):
    """Checksum of every sample's bytes."""
    messages = open_source(samples).read(range(101), Counts())
    return {sample_of(m): zlib.crc32(content(m)) for m in messages}


@pytest.fixture(scope="module")
def launched(samples, tmp_path_factory):
    """A function launcher, ranks -> the finished launch and its folder; each launched once."""

    def launch(launcher, ranks, backend):
        local = tmp_path_factory.mktemp("local")
        options = {
            "cases": RANKS[ranks],
            "data": str(samples.folder),
            "local": str(local),
            "backend": backend,
            "fractions": FRACTIONS,
            "in_flight_nbytes": 3 * samples.sample_nbytes,
            "timeout_s": 200 if launcher == "mpi" else 10,
        }
        begin = time.monotonic()
        line = [*STARTED_BY[launcher](ranks), RANKS_PROGRAM, json.dumps(options)]
        process = run(line, folder=local)
        assert time.monotonic() - begin < 150  # not even as long as MPI's exchange would wait
        return process, local

    def launched(launcher, ranks):
        backend = {"mpi": "mpi", "forked": "gloo", "torchrun": "nccl"}[launcher]
        start = partial(launch, launcher, ranks, backend)
        return once(tmp_path_factory, f"exchanging-{launcher}-{ranks}", start)

    return launched


def said(process, what):
    """What the ranks said of one case, by rank, without what mpiexec says of a killed one."""
    lines = [line for line in process.stdout.splitlines() if line.startswith("{")]
    found = [each for each in json_objects("\n".join(lines)) if each["what"] == what]
    assert found, process.stderr
    return sorted(found, key=lambda each: each["rank"])


@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [
        *[pytest.param("mpi", ranks, marks=pytest.mark.mpi) for ranks in (2, 4)],
        *[("forked", ranks) for ranks in RANKS],
    ],
)
def test_laws(launcher, ranks, samples, contents, launched):
    process, _ = launched(launcher, ranks)
    check_laws(said(process, "exchange"), ranks, samples, contents)


def check_laws(found, ranks, samples, contents):
    assert [each["rank"] for each in found] == list(range(ranks))
    for case in zip(*(each["cases"] for each in found), strict=True):
        check_case(case, ranks, contents, 3 * samples.sample_nbytes)


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
    launcher, samples, contents, launched
):
    process, local = launched(launcher, 4)
    assert process.returncode != 0
    check_folders(local, samples, contents)


def test_survivors_end_without_a_launcher_that_ends_them(launched):
    """Those that live get an error, not a hang."""
    process, _ = launched("forked", 4)
    assert json.loads(process.stderr.splitlines()[-1]) == [3, -signal.SIGKILL, 3, 3]
    found = said(process, "killed")
    assert [each["rank"] for each in found] == [0, 2, 3]
    assert all("expected item" in each["error"] for each in found)


def check_folders(local, samples, contents):
    """Whatever a rank left under the name of a sample is whole, and is used again."""
    parts = list(local.glob("rank00001/*.part"))
    assert len(parts) == 1  # the one that was being written
    for rank in range(4):
        source = open_source(samples)
        own = local / f"rank{rank:05d}"
        store = FolderStore(own, source.identity(), source.fingerprint(), source.version)
        sizes = store.sizes()
        assert len(sizes) >= 25
        assert set(sizes.values()) == {samples.sample_nbytes}
        for sample in sizes:
            assert zlib.crc32(content(store.message(sample))) == contents[sample]
    assert not list(local.glob("*/*.part"))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_silent_rank_is_an_error(launcher, launched):
    (found,) = said(launched(launcher, 2)[0], "silent")
    assert found["rank"] == 0
    assert "rank 1 within 5 s" in found["error"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_samples_of_60_mb(launcher, launched):
    found = said(launched(launcher, 2)[0], "large")
    assert [each["rank"] for each in found] == [0, 1]
    for each in found:
        assert each["right"] == [True, True]
        assert each["lengths"] == [60_000_000]
        assert each["swapped"] > 0
        assert each["peak"] == 2 * (60_000_000 + HEADER_NBYTES)  # one item each way, no more


@pytest.mark.gpu
def test_nccl(samples, contents, launched):
    if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        pytest.skip("NCCL needs a GPU for each of two ranks")
    process, _ = launched("torchrun", 2)
    check_laws(said(process, "exchange"), 2, samples, contents)
