"""Real ranks: MPI-IO and gloo, failures, and bytes recounted by who served them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.launch import STARTED_BY, json_objects, mpiexec, run
from tests.makers.once import once
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage, check_available
from vanidl_loaders.errors import MissingError
from vanidl_loaders.spatial import Division
from vanidl_loaders.spatial.grid import count_elements, index_slices
from vanidl_loaders.workloads.making import make

PROGRAM = Path(__file__).with_name("ranks.py")
SHAPE = (4, 16, 16, 16)
SAMPLES = 5
RAW_SHAPE = (4, 7, 5, 8)
RAW = {
    f"{grid} {dtype}": (grid, dtype)
    for grid, dtype in (((1, 3, 1, 1), "<i2"), ((1, 1, 1, 3), ">f8"), ((3, 1, 1, 1), "<i2"))
}
DAMAGED = {"forked": ["auto"], "mpi": ["collective", "independent"]}
MOUNTED = {"forked": ["posix", "crop"], "mpi": ["auto", "independent", "scatter"]}
"""Launcher -> modes of reading."""


def over(modes):
    """Parameters launcher and mode."""
    return [
        pytest.param(launcher, mode, marks=[pytest.mark.mpi] if launcher == "mpi" else [])
        for launcher, found in modes.items()
        for mode in found
    ]


@pytest.fixture(scope="module")
def universes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cosmoflow")
    return once(
        tmp_path_factory, "shared", lambda: make("cosmoflow", folder, samples=SAMPLES, size=16)
    )


def said(done):
    assert done.returncode == 0, done.stderr
    return sorted(json_objects(done.stdout), key=lambda each: each["rank"])


def started(launcher, ranks, cases, folder):
    """Case -> what each rank said; all cases in one launch."""
    line = [*STARTED_BY[launcher](ranks), PROGRAM, json.dumps(cases)]
    found = said(run(line, folder=folder))
    return {case: [each for each in found if each["case"] == case] for case in cases}


@pytest.fixture(scope="module")
def three(universes, damaged, raw, tmp_path_factory):
    """A function launcher -> what three ranks said of every case, and what storages served."""
    own, grid = str(universes.folder), (1, 3, 1, 1)

    def launch(launcher):
        folder = tmp_path_factory.mktemp("three")
        cases = {
            f"damaged {mode}": ("load", [[own, own, damaged], grid, {"read_mode": mode}, 1, 1])
            for mode in DAMAGED[launcher]
        }
        if launcher == "mpi":
            for case, (of_raw, dtype) in RAW.items():
                cases[case] = "block", [raw[case], RAW_SHAPE, dtype, of_raw, "independent"]
        with ExitStack() as stack:
            storages = {}
            for mode in MOUNTED[launcher] if mountable() else []:
                storage = EmulatedStorage(universes.folder, cost=Cost(), log=folder / mode)
                storages[mode] = stack.enter_context(storage)
                config = [str(storage.target)], grid, {"read_mode": mode}, 2, 1
                cases[f"mounted {mode}"] = "load", config
            found = started(launcher, 3, cases, folder)
            return found, {mode: storage.requests() for mode, storage in storages.items()}

    return lambda launcher: once(tmp_path_factory, f"three-{launcher}", lambda: launch(launcher))


def mountable():
    try:
        check_available()
    except MissingError:
        return False
    return True


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Raw files by case."""
    folder, paths = tmp_path_factory.mktemp("raw"), {}
    for number, (case, (_, dtype)) in enumerate(RAW.items()):
        paths[case] = str(folder / f"{number}.bin")
        raw_array(dtype).tofile(paths[case])
    return paths


def raw_array(dtype):
    return np.random.default_rng(2).integers(0, 99, RAW_SHAPE).astype(dtype)


@pytest.fixture(scope="module")
def damaged(universes, tmp_path_factory):
    """A copy of the samples, the last of which is cut short."""
    folder = tmp_path_factory.mktemp("damaged") / "samples"
    shutil.copytree(universes.folder, folder)
    for path in folder.glob("*/*3.h5"):
        path.write_bytes(path.read_bytes()[:-100])
    return str(folder)


def checksum(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def counts_of(samples):
    found = {}
    for number in range(len(samples)):
        with h5py.File(samples.path(number)) as file:
            found[number] = file["counts"][()]
    return found


@pytest.fixture(scope="module")
def four(universes, tmp_path_factory):
    """A function launcher -> what four ranks in two groups said."""
    config = [str(universes.folder)], (1, 1, 2, 1)
    cases = {
        mode: ("load", [*config, {"read_mode": mode, "store": True}, 2, 3])
        for mode in ("auto", "scatter")
    }

    def launch(launcher):
        return started(launcher, 4, cases, tmp_path_factory.mktemp("four"))

    return lambda launcher: once(tmp_path_factory, f"four-{launcher}", lambda: launch(launcher))


@pytest.mark.parametrize(
    ("launcher", "read_mode"), over({"forked": ["auto"], "mpi": ["auto", "scatter"]})
)
def test_groups_of_ranks_read_blocks_and_exchange_them(launcher, read_mode, universes, four):
    ranks, grid = four(launcher)[read_mode], (1, 1, 2, 1)
    whole = counts_of(universes)
    for rank in ranks:
        box = index_slices(Division(grid).block(SHAPE, rank["rank"] % 2))
        expected = {str(sample): checksum(array[box]) for sample, array in whole.items()}
        assert set(rank["seen"].items()) <= set(expected.items())
        assert (rank["steps"], rank["mpi"]) == (6, launcher == "mpi")
    for part in (0, 1):
        own = [each for each in ranks if each["rank"] % 2 == part]
        assert sum(each["loads"] for each in own) == SAMPLES
        assert sum(each["loads"] + each["hits"] + each["received"] for each in own) == 18


@pytest.mark.mpi
@pytest.mark.parametrize("case", RAW)
def test_subarray_views_read_exactly_the_block(case, three):
    grid, dtype = RAW[case]
    array = raw_array(dtype)
    for rank in three("mpi")[0][case]:
        box = Division(grid).block(array.shape, rank["rank"])
        native = array[index_slices(box)].astype(array.dtype.newbyteorder("="))
        assert rank["checksum"] == checksum(native)
        assert rank["nbytes"] == count_elements(box) * array.itemsize


@pytest.fixture
def sparse(tmp_path):
    """A folder where holes of files are cheap to read: in memory, where the system has that."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


@pytest.mark.mpi
def test_mpi_reads_more_than_2_gib_at_once(sparse, tmp_path):
    path, nbytes = sparse / "big", (1 << 31) + 7
    with path.open("wb") as file:
        file.seek((1 << 31) - 1)
        file.write(b"\x09")
        file.seek(nbytes - 1)
        file.write(b"\x05")
    (rank,) = started("mpi", 1, {"big": ("large", (str(path), nbytes))}, tmp_path)["big"]
    assert (rank["nbytes"], rank["at_2_gib"], rank["last"]) == (nbytes, 9, [0] * 6 + [5])


@pytest.mark.parametrize(("launcher", "read_mode"), over(DAMAGED))
def test_nobody_waits_for_a_rank_whose_file_is_damaged(launcher, read_mode, three):
    ranks = three(launcher)[0][f"damaged {read_mode}"]
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
    line = [found, "-f", "--seccomp-bpf", "-o", "/dev/null", "true"]
    if subprocess.run(line, check=False, capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    return found


WRAP = """#!/bin/sh
if [ "$PMI_RANK" = {rank} ]; then
  exec {strace} -f --seccomp-bpf -o {out} -P {independent} -P {collective} -e trace=pread64 \\
    -e inject=pread64:error=EIO:when=1..2 "$@"
fi
exec "$@"
"""


@pytest.mark.mpi
def test_nobody_waits_for_a_rank_whose_read_fails(tmp_path, strace):
    """The error comes from the read itself: MPI's own collective read leaves others waiting.

    One read of each case fails; where it were tried again, the next case's would not.
    """
    array, cases = np.zeros((4, 8, 8, 8), "<i2"), {}
    paths = {mode: tmp_path / f"{mode}.bin" for mode in ("independent", "collective")}
    for mode, path in paths.items():
        array.tofile(path)
        cases[mode] = "block", (str(path), array.shape, "<i2", (1, 1, 1, 2), mode)
    wrap, log = tmp_path / "wrap.sh", tmp_path / "log"
    wrap.write_text(WRAP.format(rank=1, strace=strace, out=log, **paths))
    wrap.chmod(0o755)
    line = [*mpiexec(2), wrap, sys.executable, PROGRAM, json.dumps(cases)]
    found = said(run(line, folder=tmp_path))
    assert log.read_text().count("INJECTED") == 2
    for mode in paths:
        failed = [each["failed"] for each in found if each["case"] == mode]
        assert ["rank 1" in each for each in failed] == [True, False]


@pytest.mark.mpi
def test_bytes_of_each_rank_by_system_trace(tmp_path, strace):
    array = np.zeros((4, 8, 8, 8), "<f4")
    grids = {
        "rows": ((1, 3, 1, 1), "independent"),
        "columns": ((1, 1, 1, 3), "independent"),
        "shares": ((1, 1, 1, 3), "collective"),
    }
    cases = {}
    for case, (grid, mode) in grids.items():
        array.tofile(tmp_path / case)
        cases[case] = "block", (str(tmp_path / case), array.shape, "<f4", grid, mode)
    calls = "trace=read,pread64,readv,preadv,preadv2,mmap"
    line = [*mpiexec(3), strace, "-ff", "--seccomp-bpf", "-y", "-o", tmp_path / "log", "-e", calls]
    line += [part for case in cases for part in ("-P", tmp_path / case)]
    ranks = said(run([*line, sys.executable, PROGRAM, json.dumps(cases)], folder=tmp_path))
    logs = [log.read_text() for log in tmp_path.glob("log.*")]
    assert not any("mmap(" in text for text in logs)
    for case, (grid, _) in grids.items():
        one_read = re.compile(rf"<{re.escape(str(tmp_path / case))}>.*\) += (\d+)$", re.MULTILINE)
        read = [sum(int(each) for each in one_read.findall(text)) for text in logs]
        expected = [
            count_elements(Division(grid).block(array.shape, part)) * 4 for part in range(3)
        ]
        assert sorted(n for n in read if n) == sorted(expected)
        assert [rank["nbytes"] for rank in ranks if rank["case"] == case] == expected


@pytest.mark.parametrize(("launcher", "read_mode"), over(MOUNTED))
def test_bytes_by_the_emulated_storage(launcher, read_mode, universes, three):
    if not mountable():
        pytest.skip("no file system can be mounted here")
    requests, grid = three(launcher)[1][read_mode], (1, 3, 1, 1)  # 16 in three: 6, 5, 5
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
    block = (
        2 * SAMPLES * np.array([count_elements(Division(grid).block(SHAPE, i)) for i in range(3)])
    )
    expected = {"crop": [block.sum()] * 3, "scatter": [block.sum()]}.get(read_mode, block.tolist())
    assert sorted(data.values()) == sorted(expected)
    assert max(beside.values()) < SAMPLES * 16_384  # headers, and the parameters


COMMAND = ["--loader", "spatial", "--grid", "1x2x1x1", "--batch", "1"]


def test_the_command_trains(universes, run_python):
    line = [
        *STARTED_BY["forked to train"](4),
        "-m",
        "vanidl_loaders",
        "train",
        "--data",
        universes.folder,
    ]
    ranks = said(run_python([*line, *COMMAND, "--json", "--slab-store", "--epochs", "2"]))
    assert [len(each["losses"]) for each in ranks] == [6] * 4
    assert [each["samples"] for each in ranks] == [6] * 4


@pytest.mark.mpi
def test_the_command_measures(universes, run_python):
    line = [*STARTED_BY["mpi"](4), "-m", "vanidl_loaders", "bench", "--data", universes.folder]
    done = run_python([*line, *COMMAND, "--repeat", "2", "--halo", "1"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ratio  1.00") == 4
