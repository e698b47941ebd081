"""Real ranks: MPI-IO and gloo, failures, and bytes recounted by who served them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.conftest import json_objects
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage, check_available
from vanidl_loaders.errors import MissingError
from vanidl_loaders.spatial import Division
from vanidl_loaders.spatial.boxes import slices, volume
from vanidl_loaders.workloads.making import make

BIN = str(Path(sys.executable).parent)
PROGRAM = Path(__file__).with_name("ranks.py")
SHAPE = (4, 16, 16, 16)
SAMPLES = 5


@pytest.fixture(scope="module")
def universes(tmp_path_factory):
    return make("cosmoflow", tmp_path_factory.mktemp("cosmoflow"), samples=SAMPLES, size=16)


def mpiexec(ranks):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    found = shutil.which("mpiexec", path=BIN) or shutil.which("mpiexec")
    if found is None:
        pytest.skip("mpiexec is not installed")
    return [found, "-n", ranks]


LAUNCHERS = {
    "torchrun": lambda n: [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", n],
    "mpiexec": lambda n: [*mpiexec(n), sys.executable],
}
STARTED = ["torchrun", pytest.param("mpiexec", marks=pytest.mark.mpi)]


def mpi(read_mode):
    return pytest.param("mpiexec", read_mode, marks=pytest.mark.mpi)


def said(done):
    assert done.returncode == 0, done.stderr
    return sorted(json_objects(done.stdout), key=lambda each: each["rank"])


def started(run_python, launcher, ranks, what, *config):
    return said(run_python([*LAUNCHERS[launcher](ranks), PROGRAM, what, json.dumps(config)]))


def checksum(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def counts_of(samples):
    found = {}
    for number in range(len(samples)):
        with h5py.File(samples.path(number)) as file:
            found[number] = file["counts"][()]
    return found


@pytest.mark.parametrize(
    ("launcher", "read_mode"), [("torchrun", "auto"), mpi("auto"), mpi("scatter")]
)
def test_groups_of_ranks_read_blocks_and_exchange_them(launcher, read_mode, universes, run_python):
    grid, options = (1, 1, 2, 1), {"read_mode": read_mode, "store": True}
    config = [str(universes.folder)], grid, options, 2, 3
    ranks = started(run_python, launcher, 4, "load", *config)
    whole = counts_of(universes)
    for rank in ranks:
        box = slices(Division(grid).block(SHAPE, rank["rank"] % 2))
        expected = {str(sample): checksum(array[box]) for sample, array in whole.items()}
        assert set(rank["seen"].items()) <= set(expected.items())
        assert (rank["steps"], rank["mpi"]) == (6, launcher == "mpiexec")
    for part in (0, 1):
        own = [each for each in ranks if each["rank"] % 2 == part]
        assert sum(each["loads"] for each in own) == SAMPLES
        assert sum(each["loads"] + each["hits"] + each["received"] for each in own) == 18


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("grid", "dtype"), [((1, 3, 1, 1), "<i2"), ((1, 1, 1, 3), ">f8"), ((3, 1, 1, 1), "<i2")]
)
def test_subarray_views_read_exactly_the_block(tmp_path, grid, dtype, run_python):
    array = np.random.default_rng(2).integers(0, 99, (4, 7, 5, 8)).astype(dtype)
    path = tmp_path / "x.bin"
    path.write_bytes(array.tobytes())
    config = str(path), array.shape, dtype, grid, "independent"
    for rank in started(run_python, "mpiexec", 3, "block", *config):
        box = Division(grid).block(array.shape, rank["rank"])
        native = array[slices(box)].astype(array.dtype.newbyteorder("="))
        assert rank["checksum"] == checksum(native)
        assert rank["nbytes"] == volume(box) * array.itemsize


@pytest.mark.mpi
def test_mpi_reads_more_than_2_gib_at_once(tmp_path, run_python):
    path, nbytes = tmp_path / "big", (1 << 31) + 7
    with path.open("wb") as file:
        file.truncate(nbytes)
        file.seek(nbytes - 1)
        file.write(b"\x05")
    config = str(path), (1, nbytes), "<u1", (1, 1), "independent"
    (rank,) = started(run_python, "mpiexec", 1, "block", *config)
    expected = zlib.crc32(b"\x05", zlib.crc32(bytes(7 - 1), _zeros(1 << 31)))
    assert (rank["nbytes"], rank["checksum"]) == (nbytes, expected)


def _zeros(nbytes):
    value, block = 0, bytes(1 << 24)
    for _ in range(nbytes >> 24):
        value = zlib.crc32(block, value)
    return value


@pytest.mark.parametrize(
    ("launcher", "read_mode"), [("torchrun", "auto"), mpi("collective"), mpi("independent")]
)
def test_nobody_waits_for_a_rank_whose_file_is_damaged(
    launcher, read_mode, universes, tmp_path, run_python
):
    damaged = tmp_path / "damaged"
    shutil.copytree(universes.folder, damaged)
    for path in damaged.glob("*/*3.h5"):
        path.write_bytes(path.read_bytes()[:-100])
    folders = [str(universes.folder), str(universes.folder), str(damaged)]
    config = folders, (1, 3, 1, 1), {"read_mode": read_mode}, 1, 1
    ranks = started(run_python, launcher, 3, "load", *config)
    assert len({each["steps"] for each in ranks}) == 1  # all stopped in the same step
    for rank in ranks:
        assert "0000003.h5" in rank["failed"]
        assert ("rank 2" in rank["failed"]) == (rank["rank"] != 2)


# -- recounted by others --------------------------------------------------------------------


@pytest.fixture
def strace():
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    line = [found, "-o", "/dev/null", "true"]
    if subprocess.run(line, check=False, capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    return found


WRAP = """#!/bin/sh
if [ "$PMI_RANK" = {rank} ]; then
  exec {strace} -f -o {out} -P {path} -e trace=pread64 -e inject=pread64:error=EIO:when=1 "$@"
fi
exec "$@"
"""


@pytest.mark.mpi
@pytest.mark.parametrize("read_mode", ["independent", "collective"])
def test_nobody_waits_for_a_rank_whose_read_fails(tmp_path, read_mode, strace, run_python):
    """The error comes from the read itself: MPI's own collective read leaves others waiting."""
    array, path = np.zeros((4, 8, 8, 8), "<i2"), tmp_path / "x.bin"
    path.write_bytes(array.tobytes())
    wrap = tmp_path / "wrap.sh"
    wrap.write_text(WRAP.format(rank=1, strace=strace, out=tmp_path / "log", path=path))
    wrap.chmod(0o755)
    config = json.dumps((str(path), array.shape, "<i2", (1, 1, 1, 2), read_mode))
    done = run_python([*mpiexec(2), wrap, sys.executable, PROGRAM, "block", config])
    assert "INJECTED" in (tmp_path / "log").read_text()
    assert ["rank 1" in each["failed"] for each in said(done)] == [True, False]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("grid", "read_mode"),
    [
        ((1, 3, 1, 1), "independent"),
        ((1, 1, 1, 3), "independent"),
        ((1, 1, 1, 3), "collective"),
    ],
)
def test_bytes_of_each_rank_by_system_trace(tmp_path, grid, read_mode, strace, run_python):
    array, path = np.zeros((4, 8, 8, 8), "<f4"), tmp_path / "x.bin"
    path.write_bytes(array.tobytes())
    config = json.dumps((str(path), array.shape, "<f4", grid, read_mode))
    calls = "trace=read,pread64,readv,preadv,preadv2,mmap"
    line = [*mpiexec(3), strace, "-ff", "-o", tmp_path / "log", "-P", path, "-e", calls]
    ranks = said(run_python([*line, sys.executable, PROGRAM, "block", config]))
    read = Counter()
    for log in tmp_path.glob("log.*"):
        text = log.read_text()
        assert "mmap(" not in text
        read[log.name] = sum(int(each) for each in re.findall(r"\) += (\d+)$", text, re.MULTILINE))
    expected = [volume(Division(grid).block(array.shape, part)) * 4 for part in range(3)]
    assert sorted(n for n in read.values() if n) == sorted(expected)
    assert [rank["nbytes"] for rank in ranks] == expected


@pytest.fixture
def available():
    try:
        check_available()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("available")
@pytest.mark.parametrize(
    ("launcher", "read_mode"),
    [("torchrun", "posix"), mpi("auto"), mpi("independent"), ("torchrun", "crop"), mpi("scatter")],
)
def test_bytes_by_the_emulated_storage(launcher, read_mode, universes, tmp_path, run_python):
    grid = (1, 3, 1, 1)  # 16 in three: 6, 5, 5
    with EmulatedStorage(universes.folder, cost=Cost(), log=tmp_path / "log") as storage:
        config = [str(storage.target)], grid, {"read_mode": read_mode}, 2, 1
        started(run_python, launcher, 3, "load", *config)
        requests = storage.requests()
    extents = {}
    for number in range(SAMPLES):
        with h5py.File(universes.path(number)) as file:
            begin = file["counts"].id.get_offset()
        path = str(universes.path(number).relative_to(universes.folder))
        extents[path] = (begin, begin + int(np.prod(SHAPE)) * 2)
    data, beside = Counter(), Counter()
    for each in requests:
        begin, end = extents.get(each.path, (0, 0))
        inside = begin <= each.offset and each.offset + each.size <= end
        (data if inside else beside)[each.pid] += each.size
    block = 2 * SAMPLES * np.array([volume(Division(grid).block(SHAPE, i)) for i in range(3)])
    expected = {"crop": [block.sum()] * 3, "scatter": [block.sum()]}.get(read_mode, block.tolist())
    assert sorted(data.values()) == sorted(expected)
    assert max(beside.values()) < SAMPLES * 16_384  # headers, and the parameters


COMMAND = ["--loader", "spatial", "--grid", "1x2x1x1", "--batch", "1"]


def test_the_command_trains(universes, run_python):
    line = [*LAUNCHERS["torchrun"](4), "-m", "vanidl_loaders", "train", "--data", universes.folder]
    ranks = said(run_python([*line, *COMMAND, "--json", "--slab-store", "--epochs", "2"]))
    assert [len(each["losses"]) for each in ranks] == [6] * 4
    assert [each["samples"] for each in ranks] == [6] * 4


@pytest.mark.mpi
def test_the_command_measures(universes, run_python):
    line = [*LAUNCHERS["mpiexec"](4), "-m", "vanidl_loaders", "bench", "--data", universes.folder]
    done = run_python([*line, *COMMAND, "--repeat", "2", "--halo", "1"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ratio  1.00") == 4
