from __future__ import annotations

import importlib.util
import pkgutil
import sys

import pytest

import vanidl_loaders
from tests.loaders.launch import json_objects, mpiexec
from vanidl_loaders.errors import UsageError
from vanidl_loaders.ranks.world import World, _read_mpi_world, _read_torch_world

SAY = (
    "import json, vanidl_loaders.ranks.world as w; "
    "print(json.dumps(w.World.detect().__dict__), flush=True)"
)


def test_alone_is_rank_0_of_1():
    assert World.detect() == World(0, 1, 0, 1, "single")


def test_arguments_win():
    assert World.detect(rank=2, ranks=3) == World(2, 3, 2, 3, "arguments")


@pytest.mark.parametrize("given", [{"rank": 1}, {"ranks": 2}, {"rank": 2, "ranks": 2}])
def test_contradicting_arguments_are_refused(given):
    with pytest.raises(UsageError, match="expected"):
        World.detect(**given)


def test_torchrun_is_seen_before_the_process_group_is():
    said = {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4"}
    here = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert _read_torch_world(said | here) == World(3, 4, 1, 2, "torch.distributed")
    assert _read_torch_world(said) == World(3, 4, 3, 4, "torch.distributed")


def test_an_initialised_process_group_wins_over_the_environment(tmp_path):
    distributed = pytest.importorskip("torch.distributed", reason="PyTorch is not installed")
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        said = {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4"}
        assert _read_torch_world(said) == World(0, 1, 0, 1, "torch.distributed")
    finally:
        distributed.destroy_process_group()


def test_no_launcher_means_no_mpi():
    if "mpi4py.MPI" in sys.modules:
        pytest.skip("another test of this process has imported mpi4py")
    assert _read_mpi_world({"HOME": "/"}) is None
    assert "mpi4py.MPI" not in sys.modules


def test_no_module_imports_mpi4py(run_python, python):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    names = [m.name for m in pkgutil.walk_packages(vanidl_loaders.__path__, "vanidl_loaders.")]
    own = {
        "vanidl_loaders.__main__",
        "vanidl_loaders.emulated_fs.server",
    }
    if importlib.util.find_spec("numba") is None:
        own |= {n for n in names if n.startswith("vanidl_loaders.decoders")}
    own |= {n for n in names if n.startswith("vanidl_loaders.decoders.kernels")}
    names = [n for n in names if n not in own]  # those need packages of their own
    assert len(names) > 10
    code = f"import sys, {', '.join(names)}; sys.exit('mpi4py' in sys.modules)"
    done = run_python([python, "-c", code])
    assert done.returncode == 0, done.stderr


@pytest.mark.mpi
def test_mpiexec(run_python, python):
    done = run_python([*mpiexec(2), python, "-c", SAY])
    assert done.returncode == 0, done.stderr
    worlds = json_objects(done.stdout)
    assert sorted(w["rank"] for w in worlds) == [0, 1]
    assert sorted(w["local_rank"] for w in worlds) == [0, 1]
    assert {(w["ranks"], w["source"]) for w in worlds} == {(2, "mpi")}


LOST = """
from vanidl_loaders.ranks.world import World, abort_on_error, get_communicator
abort_on_error()
if World.detect().rank == 1:
    raise RuntimeError("this rank is lost")
get_communicator().Barrier()
"""


@pytest.mark.mpi
def test_an_error_on_one_rank_of_mpi_ends_all(run_python, python):
    done = run_python([*mpiexec(3), python, "-c", LOST])
    assert done.returncode != 0
    assert "RuntimeError: this rank is lost" in done.stderr
