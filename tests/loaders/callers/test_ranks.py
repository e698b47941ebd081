"""Loaders that hand out a rank's own batches, in loops that would deal them to ranks once more."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from tests.loaders.launch import STARTED_BY, json_objects, run

N, EPOCHS, RANKS = 47, 2, 2
STEPS = 6
NEEDS = {
    "plain": (),
    "accelerate": ("accelerate",),
    "lightning": ("lightning",),
    "trainer": ("transformers", "accelerate"),
}
REFUSED = {
    ("accelerate", "planned by hand"): "prepare",
    ("accelerate", "local part, prepared"): "BatchSamplerShard",
    ("lightning", "planned, sampler replaced"): "use_distributed_sampler=False",
    ("lightning", "local part, sampler replaced"): "use_distributed_sampler=False",
}
"""Loop and loader -> what the error names; all others train on every sample, once an epoch."""


@pytest.mark.parametrize("loop", NEEDS)
def test_every_sample_is_trained_on_by_one_rank_or_the_loader_is_refused(loop, tmp_path):
    for name in NEEDS[loop]:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    start = [*STARTED_BY["forked to train"](RANKS), Path(__file__).with_name("ranks.py"), loop]
    done = run(start, folder=tmp_path)
    said = [found for found in json_objects_of(done.stdout) if "rank" in found]
    assert sorted(found["rank"] for found in said) == [0, 1], done.stderr
    for case in said[0].keys() - {"rank"}:
        if (loop, case) in REFUSED:
            assert all(REFUSED[loop, case] in found[case] for found in said)
            continue
        epochs = []
        for epoch in range(EPOCHS):
            of_ranks = [found[case][epoch * STEPS : (epoch + 1) * STEPS] for found in said]
            epochs.append([[i for batch in batches for i in batch] for batches in of_ranks])
            assert set(epochs[-1][0]) | set(epochs[-1][1]) == set(range(N)), case
            assert sum(map(len, epochs[-1])) <= N + RANKS  # padding
        assert epochs[0] != epochs[1]


def json_objects_of(text):
    """Those on lines of their own: frameworks print, too."""
    return json_objects("\n".join(line for line in text.splitlines() if line.startswith('{"rank"')))
