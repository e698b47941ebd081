"""What a plan hands out, the same after a stop, with the gradients of plain training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


from tests.loaders.data.stored import N, direct
from tests.loaders.launch import STARTED_BY, json_objects
from tests.loaders.scheduled.planned import scheduled, stream
from vanidl_loaders.errors import UsageError
from vanidl_loaders.loader.loader import WEIGHT, Settings
from vanidl_loaders.loader.registry import find_loader, open_loader
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled import PlanSettings, make_plan


@pytest.mark.parametrize("gap", [0, 3, None])
@pytest.mark.parametrize("look_ahead", [0, 1, 5])
def test_bytes_are_those_of_direct_reads(rows, gap, look_ahead):
    stored = direct(rows)
    loader = scheduled(rows, gap=gap, look_ahead=look_ahead)
    for _, batch in stream(loader, range(3)):
        ids = batch["sample"].numpy()
        for name, values in stored.items():
            found = batch[name].numpy()
            assert found.dtype == values.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found, values[ids])
    loader.close()


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam", "images"])
def test_samples_in_files_of_their_own(name, small):
    samples = small(name)
    of_id = {}
    for batch in open_loader("baseline", samples, Settings(batch=2)):
        of_id |= {i: (batch, at) for at, i in enumerate(batch["sample"].tolist())}
    loader = scheduled(samples, batch=2, buffer=3)
    for _, batch in stream(loader, range(3)):
        for at, sample in enumerate(batch["sample"].tolist()):
            plain, place = of_id[sample]
            for field in samples.fields:
                assert torch.equal(batch[field.name][at], plain[field.name][place])
    assert loader.stats().loads == 5 + 2 * (5 - 3)
    loader.close()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("balance", ["load", "batch"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_global_batches_are_the_baselines(flat, ranks, balance, drop_last):
    def global_batches(name, options):
        batches = {}
        for rank in range(ranks):
            settings = Settings(World(rank, ranks, 0, 1), 4, 3, seed=8, drop_last=drop_last)
            loader = open_loader(name, flat, settings, options)
            for epoch in range(3):
                loader.set_epoch(epoch)
                for step, batch in enumerate(loader):
                    batches.setdefault((epoch, step), []).extend(batch["sample"].tolist())
            assert step + 1 == len(loader)
            loader.close()
        return {place: sorted(ids) for place, ids in batches.items()}

    options = {"buffer": 60, "balance": balance}
    assert global_batches("scheduled", options) == global_batches("baseline", {})


@pytest.mark.parametrize("stop", [1, 4, 13])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_state_goes_on_with_the_same_stream(flat, rank, stop):
    whole = scheduled(flat, rank, 2)
    wanted = [(e, b["sample"].tolist(), float(b[WEIGHT])) for e, b in stream(whole, range(3))]
    steps = len(whole)
    whole.close()
    first = scheduled(flat, rank, 2)
    list(stream(first, [0]))
    first.set_epoch(1)
    for step, _ in enumerate(first, 1):
        if step == stop:
            state = first.state_dict()
            break
    first.close()
    second = scheduled(flat, rank, 2)
    second.load_state_dict(state)
    rest = [(e, b["sample"].tolist(), float(b[WEIGHT])) for e, b in stream(second, [1, 2])]
    assert rest == wanted[steps + stop :]
    stats = second.stats()
    # Lazily: each of the buffer's at most once, and what padding uses again.
    assert 0 < stats.reloads <= 30 + 1
    plan = second.plan
    planned = sum(
        int(s.of_rank(rank)[1].sum())
        for e in (1, 2) for s in list(plan.steps(e))[stop if e == 1 else 0 :]
    )  # fmt: skip
    assert stats.loads == planned
    second.close()


@pytest.mark.parametrize(
    "change", [{"ranks": 3}, {"buffer": 59}, {"balance": "batch"}, {"batch": 5}]
)
def test_a_state_of_another_plan_is_refused(flat, change):
    state = scheduled(flat, ranks=2).state_dict()
    with pytest.raises(UsageError, match="expected a state"):
        scheduled(flat, **({"ranks": 2} | change)).load_state_dict(state)


def test_a_saved_plan_is_followed_and_another_ones_refused(flat, tmp_path):
    path = tmp_path / "plan.npz"
    make_plan(PlanSettings(N, batch=4, epochs=3, buffer=20)).save(path)
    loader = scheduled(flat, plan=str(path), buffer=None)
    list(stream(loader, range(3)))
    assert loader.stats().loads == N + 2 * (N - 20)
    loader.close()
    with pytest.raises(UsageError, match="batch"):
        scheduled(flat, plan=str(path), batch=5)


def test_ids_in_order_without_shuffling(flat):
    settings = Settings(batch=4, epochs=2, shuffle=False)
    loader = open_loader("scheduled", flat, settings, {"buffer": 0})
    assert [i for b in loader for i in b["sample"].tolist()] == list(range(N))
    loader.close()


def test_the_default_buffer_holds_all_of_a_small_set(flat):
    loader = open_loader("scheduled", flat, Settings(batch=4, epochs=2))
    assert loader.plan.settings.buffer == N
    half = open_loader("scheduled", flat, Settings(batch=4), {"buffer_fraction": 0.5})
    assert half.plan.settings.buffer == round(N / 2)


def test_gradients_are_the_baselines(ptycho, tmp_path, run_python):
    """Two DDP ranks in fp64: equal to rounding with weights, wrong without."""
    program = Path(__file__).parent / "gradients.py"
    done = run_python([*STARTED_BY["forked to train"](2), program, ptycho.folder, tmp_path])
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert any(a != b for a, b in zip(ranks[0]["sizes"], ranks[1]["sizes"], strict=True))
    for found in ranks:
        scale = found["plain"].abs().max()
        assert (found["planned"] - found["plain"]).abs().max() < 1e-14 * scale
        assert (found["unweighted"] - found["plain"]).abs().max() > 1e-3 * scale


def test_the_loader_is_in_the_registry():
    assert find_loader("scheduled").NAME == "scheduled"


@pytest.mark.parametrize(
    "launcher", ["forked to train", pytest.param("mpi to train", marks=pytest.mark.mpi)]
)
def test_two_ranks_train(launcher, ptycho, run_python):
    line = ["train", "--data", ptycho.folder, "--batch", 4, "--epochs", 3, "--json"]
    line += ["--loader", "scheduled", "--buffer", 14]
    done = run_python([*STARTED_BY[launcher](2), "-m", "vanidl_loaders", *line])
    assert done.returncode == 0, done.stderr
    each = json_objects(done.stdout)
    assert sorted(rank["rank"] for rank in each) == [0, 1]
    assert [len(rank["losses"]) for rank in each] == [9, 9]
    assert sum(rank["stats"]["loads"] for rank in each) == 21 + 2 * (21 - 14)
    assert sum(rank["samples"] for rank in each) == 3 * 22  # 21, one of them twice
    assert [rank["stats"]["node_ranks"] for rank in each] == [2, 2]  # they share one buffer
    assert [rank["stats"]["buffer_capacity"] for rank in each] == [14, 14]
