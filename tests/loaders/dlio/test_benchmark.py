"""Our loaders under DLIO itself, where it is installed (see docs/dlio.md): two ranks of mpiexec."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
from collections import Counter

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
if importlib.util.find_spec("dlio_benchmark") is None:
    pytest.skip("DLIO is not installed: only its stand-in was tested", allow_module_level=True)

from tests.loaders.dlio.stored import write
from tests.loaders.launch import FOLDER, STARTED_BY, run
from vanidl_loaders.cli import main

FILES, BATCH, RANKS, EPOCHS = 16, 2, 2, 2
STEPS = FILES // (BATCH * RANKS)
MAIN = "import sys; from dlio_benchmark.main import main; main()"


def benchmark(folder, kind, name, **environment):
    """Runs DLIO; lines [epoch, ids, ids by content] of each rank, and each rank's result."""
    write(folder, name, FILES)
    if kind == "Decoded":
        assert main(["encode", str(folder / "train"), str(folder / "train-encoded")]) == 0
    done = started(folder, kind, name, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    noted = [(folder / "observed" / f"{rank}.jsonl").read_text() for rank in range(RANKS)]
    observed = [[json.loads(each) for each in text.splitlines()] for text in noted]
    results = [json.loads((folder / "out" / f"{r}_output.json").read_text()) for r in range(RANKS)]
    return observed, results


def started(folder, kind, name, **environment):
    """What became of DLIO with the data in the folder."""
    (folder / "valid").mkdir()
    (folder / "observed").mkdir()
    keys = {
        "framework": "pytorch",
        "model.name": "test",
        "dataset.data_folder": folder,
        "dataset.format": name,
        "dataset.num_files_train": FILES,
        "dataset.num_files_eval": 0,
        "dataset.num_subfolders_train": 0,
        "dataset.num_subfolders_eval": 0,
        "dataset.num_samples_per_file": 1,
        "reader.data_loader": "pytorch",
        "reader.data_loader_classname": f"tests.loaders.dlio.observed.{kind}",
        "reader.data_loader_sampler": "index",
        "reader.batch_size": BATCH,
        "reader.read_threads": 1,
        "reader.sample_shuffle": "seed",
        "train.epochs": EPOCHS,
        "train.computation_time": 0.001,
        "workflow.generate_data": False,
        "workflow.evaluation": False,
        "output.folder": folder / "out",
    }
    line = [*STARTED_BY["mpiexec"](RANKS), "-c", MAIN]
    line += [f"++workload.{key}={value}" for key, value in keys.items()]
    line += [f"++hydra.run.dir={folder / 'hydra'}"]
    environment |= {"OBSERVED": str(folder / "observed"), "PYTHONPATH": _path()}
    return run(line, folder=FOLDER.parents[1], **environment)


def _path():
    root = str(FOLDER.parents[1])
    return os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Scheduled", "npz"), ("PartialLocal", "npy"), ("Spatial", "hdf5"),
        ("Decoded", "hdf5"), ("Decoded", "npy"),
    ],
)  # fmt: skip
def test_every_sample_once_an_epoch_and_the_steps_that_dlio_expects(tmp_path, kind, name):
    observed, results = benchmark(tmp_path, kind, name)
    shared = RANKS if kind == "Spatial" else 1  # ranks that each have a block of a sample
    for epoch in range(1, EPOCHS + 1):
        batches = [[b for b in rank if b[0] == epoch] for rank in observed]
        assert [len(each) for each in batches] == [STEPS] * RANKS
        assert all(ids == by_content for each in batches for _, ids, by_content in each)
        seen = Counter(sample for each in batches for _, ids, _ in each for sample in ids)
        assert seen == Counter(dict.fromkeys(range(FILES), shared))
        for result in results:
            assert len(result[str(epoch)]["load"]["block1"]) == STEPS


@pytest.mark.mpi
def test_its_trace_has_a_wait_for_each_step_and_an_item_for_each_sample_read(tmp_path):
    benchmark(tmp_path, "Scheduled", "npy", DFTRACER_ENABLE="1", VANIDL_LOADER_OPTIONS="--buffer 0")
    for rank in range(RANKS):
        (path,) = (tmp_path / "out").glob(f"trace-{rank}-of-{RANKS}*.pfw.gz")
        names = Counter(
            event.get("name") for event in _events(gzip.decompress(path.read_bytes()).decode())
        )
        assert names["fetch.iter"] == EPOCHS * STEPS
        assert names["item"] == EPOCHS * STEPS * BATCH


@pytest.mark.mpi
def test_a_damaged_file_ends_all_ranks_and_is_named(tmp_path):
    files = write(tmp_path, "npy", FILES)
    files[5].write_bytes(b"")
    done = started(tmp_path, "Scheduled", "npy")
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("vanidl_loaders: ")]
    assert lines
    assert all(files[5].name in line for line in lines)


def _events(text):
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line.rstrip(","))
