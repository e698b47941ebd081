from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

from vanidl_loaders.data.order import draw_epoch_order, pad_order, rank_order
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.ranks.world import World

CASES = [
    (samples, ranks, drop_last)
    for samples in (1, 7, 32, 33)
    for ranks in (1, 2, 5)
    for drop_last in (False, True)
    if samples >= ranks  # DistributedSampler(drop_last) breaks below
]


@pytest.mark.parametrize(("samples", "ranks", "drop_last"), CASES)
@pytest.mark.parametrize("epoch", [0, 3])
def test_ranks_get_what_the_distributed_sampler_deals(samples, ranks, drop_last, epoch):
    batch = 3
    whole = pad_order(
        draw_epoch_order(samples, seed=11, epoch=epoch),
        ranks=ranks,
        batch=batch,
        drop_last=drop_last,
    )
    for rank in range(ranks):
        peer = DistributedSampler(
            range(samples), ranks, rank, shuffle=True, seed=11, drop_last=drop_last
        )
        peer.set_epoch(epoch)
        batches = list(BatchSampler(peer, batch, drop_last))
        ours = rank_order(whole, World(rank, ranks, 0, 1))
        assert ours.tolist() == [i for b in batches for i in b]
        settings = Settings(World(rank, ranks, 0, 1), batch=batch, drop_last=drop_last)
        assert settings.steps(range(samples)) == len(batches)


def test_an_order_holds_each_sample_once():
    order = draw_epoch_order(100, seed=1, epoch=2)
    assert sorted(order) == list(range(100))
    assert order.tolist() != draw_epoch_order(100, seed=1, epoch=3).tolist()
    assert draw_epoch_order(100, seed=1, epoch=2, shuffle=False).tolist() == list(range(100))


def test_a_global_batch_is_a_run_of_the_padded_order():
    ranks, batch = 4, 2
    whole = pad_order(
        draw_epoch_order(50, seed=0, epoch=0), ranks=ranks, batch=batch, drop_last=False
    )
    parts = [rank_order(whole, World(r, ranks, 0, 1))[2 * batch : 3 * batch] for r in range(ranks)]
    assert set(np.concatenate(parts)) == set(whole[2 * ranks * batch : 3 * ranks * batch])
