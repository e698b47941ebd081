"""The four calls, with ranks as threads: what every rank holds, what moves, what it takes."""

from __future__ import annotations

import random
import threading
import time
import zlib

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader, DistributedSampler

from tests.loaders.ranks.threads import on_ranks
from vanidl_loaders import pls
from vanidl_loaders.errors import LoadersError, UsageError
from vanidl_loaders.loader.loader import Counts
from vanidl_loaders.pls.exchange_plan import NOBODY
from vanidl_loaders.pls.sources import AGAIN
from vanidl_loaders.ranks.world import World

EPOCHS, BATCH = 3, 4
RANKS = (1, 2, 4, 8)
FRACTIONS = (0.0, 0.3, 1.0)


class Numbers:
    """Items whose size and content depend on their id; counted when read."""

    def __init__(self, n):
        self.n = n
        self.reads = 0
        self.lock = threading.Lock()

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        with self.lock:
            self.reads += 1
        return {"id": i, "x": np.random.default_rng(i).integers(0, 9, 5 + i % 7)}


def checksums(dataset):
    return {i: zlib.crc32(dataset.store.message(i)) for i in dataset.store}


def whole(base):
    """Checksum of every sample's message."""
    source = pls.PartialLocalDataset(base, world=World()).source
    return {
        int(message[:8].view(np.int64)[0]): zlib.crc32(message)
        for message in source.read(range(len(base)), Counts())
    }


def epochs(dataset, scheduler, *, slow=None):
    """Goes through all epochs with the four calls; what was held and seen in each."""
    held, seen = [], []
    for epoch in range(EPOCHS):
        scheduler.scheduling(epoch)
        held.append(dataset.held())
        sampler = pls.LocalSampler(dataset, BATCH)
        sampler.set_epoch(epoch)
        loader = DataLoader(dataset, BATCH, sampler=sampler, collate_fn=list)
        seen.append([item["id"] for batch in visited(loader, scheduler, slow) for item in batch])
        scheduler.clean_local_storage()
    held.append(dataset.held())
    return held, seen


def visited(loader, scheduler, slow):
    for batch in loader:
        if slow:
            time.sleep(slow.random() / 200)
        sends, receives = scheduler.communicate()
        assert sends.samples == receives.samples
        yield batch
        scheduler.synchronize(sends, receives)


def run(base, ranks, fraction, **more):
    folder, limits, slow = more.get("folder"), more.get("limits"), more.get("slow", False)

    def work(transport):
        rank = transport.world.rank
        dataset = pls.PartialLocalDataset(base, world=World(rank, ranks), folder=folder)
        scheduler = pls.Scheduler(dataset, BATCH, fraction, transport=transport, limits=limits)
        held, seen = epochs(dataset, scheduler, slow=random.Random(rank) if slow else None)
        scheduler.close()
        return held, seen, checksums(dataset), dataset.store, scheduler.traffic

    return on_ranks(ranks, work)


@pytest.mark.parametrize(
    ("place", "said"), [(0, "not in the same epoch"), (16, "on the way"), (-1, "on the way")]
)
def test_a_message_that_changes_on_the_way_is_no_sample(place, said):
    """Sent by rank 1; the other one may end with it, or wait for its next message."""

    def work(transport):
        rank = transport.world.rank
        dataset = pls.PartialLocalDataset(Numbers(16), world=World(rank, 2))
        limits = pls.Limits(timeout_s=120)
        scheduler = pls.Scheduler(dataset, BATCH, 1.0, transport=transport, limits=limits)
        scheduler.scheduling(0)
        if rank == 1:
            start = transport.start

            def damaged(sends, receives, tag=0):
                if tag < 0:  # says what comes
                    return start(sends, receives, tag)
                changed = [(to, message.copy()) for to, message in sends]
                for _, message in changed:
                    message[place] ^= 1
                return start(changed, receives, tag)

            transport.start = damaged
            scheduler.communicate()
            return None
        requests = scheduler.communicate()
        with pytest.raises(LoadersError, match=said):
            scheduler.synchronize(*requests)
        return len(dataset.store)

    assert on_ranks(2, work)[0][0] == 8


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("samples", [64, 101])
@pytest.mark.parametrize("kept", ["memory", "folder"])
def test_laws(samples, ranks, fraction, kept, tmp_path):
    base = Numbers(samples)
    folder = tmp_path if kept == "folder" else None
    results, switch = run(base, ranks, fraction, folder=folder)
    owner = pls.Ownership(pls.deal(samples, ranks), fraction)
    all_ids = np.arange(samples)
    for epoch in range(EPOCHS + 1):
        held = [result[0][epoch] for result in results]
        assert np.array_equal(np.sort(np.concatenate(held)), all_ids)
        for rank, ids in enumerate(held):  # slot by slot: the table made offline
            assert ids.tolist() == owner.held_by(rank, epoch).tolist()
    for epoch in range(EPOCHS):  # every sample is trained on once an epoch (and one that pads)
        seen = [i for result in results for i in result[1][epoch]]
        assert set(seen) == set(range(samples))
        assert len(seen) == -(-samples // ranks) * ranks
    again = AGAIN * ranks  # to see whether they are the same each time
    assert base.reads == samples + again  # read once, the rest came from other ranks
    everything = {i: crc for result in results for i, crc in result[2].items()}
    assert everything == whole(Numbers(samples))
    moves = sum(int((owner.exchange(e).targets != np.arange(ranks)).sum()) for e in range(EPOCHS))
    stay_away = sum(int((owner.exchange(e).targets == NOBODY).sum()) for e in range(EPOCHS))
    told = 2 * 2 * ranks * (ranks - 1).bit_length()  # settings, errors: a length, then a value
    for epoch in range(EPOCHS):  # what comes, to each rank that gets something
        _, source = np.nonzero((to := owner.exchange(epoch).targets) != NOBODY)
        pairs = set(zip(source.tolist(), to[to != NOBODY].tolist(), strict=True))
        told += sum(rank != target for rank, target in pairs)
    assert switch.messages - told == moves - stay_away == sum(r[4].swapped for r in results)
    for rank, (_, _, _, store, _) in enumerate(results):
        assert store.peak_samples <= (1 + fraction) * int(owner.sizes[rank])
        assert len(store) == owner.sizes[rank]


@pytest.mark.parametrize("ranks", [2, 5])
def test_ranks_of_uneven_speed_wait_for_nobody_that_waits(ranks):
    results, _ = run(Numbers(43), ranks, 0.6, slow=True, limits=pls.Limits(1, 20))
    assert all(len(result[0]) == EPOCHS + 1 for result in results)


@pytest.mark.parametrize("most", [1, 700, 2000])
def test_bytes_under_way_are_bounded(most):
    results, _ = run(Numbers(200), 4, 1.0, limits=pls.Limits(most, 20))
    source = pls.PartialLocalDataset(Numbers(200), world=World()).source
    largest = max(message.nbytes for message in source.read(range(200), Counts()))
    for *_, traffic in results:
        assert 0 < traffic.peak_in_flight_nbytes <= max(most, 2 * largest)
        assert traffic.sent_nbytes > 0


def test_the_slides_program(tmp_path):
    """Calls once an epoch, behind the training loop, and a DistributedSampler of one replica."""

    def work(transport):
        rank = transport.world.rank
        dataset = pls.PartialLocalDataset(Numbers(40), world=World(rank, 2))
        sampler = DistributedSampler(dataset, 1, rank=0)
        loader = DataLoader(dataset, BATCH, sampler=sampler, collate_fn=list)
        scheduler = pls.Scheduler(dataset, batch_size=BATCH, fraction=0.5, transport=transport)
        for epoch in range(EPOCHS):
            scheduler.scheduling(epoch)
            assert sum(len(batch) for batch in loader) == 20
            sends, receives = scheduler.communicate()
            scheduler.synchronize(sends, receives)
            scheduler.clean_local_storage()
        return dataset.held()

    held, _ = on_ranks(2, work)
    owner = pls.Ownership(pls.deal(40, 2), 0.5)
    assert [ids.tolist() for ids in held] == [owner.held_by(r, EPOCHS).tolist() for r in range(2)]


def test_the_iterator_makes_the_calls():
    def work(transport):
        rank = transport.world.rank
        dataset = pls.PartialLocalDataset(Numbers(30), world=World(rank, 2))
        scheduler = pls.Scheduler(dataset, BATCH, 0.4, transport=transport)
        sampler = pls.LocalSampler(dataset, BATCH)
        inner = DataLoader(dataset, BATCH, sampler=sampler, collate_fn=list)
        loader = pls.Exchanging(scheduler, inner)
        for epoch in range(2):
            loader.set_epoch(epoch)
            assert len(list(loader)) == len(loader) == 4
        return dataset.held(), len(loader.waits), scheduler.waited_s

    results, _ = on_ranks(2, work)
    owner = pls.Ownership(pls.deal(30, 2), 0.4)
    for rank, (ids, waits, waited_s) in enumerate(results):
        assert ids.tolist() == owner.held_by(rank, 2).tolist()
        assert waits == 8
        assert waited_s > 0


def test_an_epoch_that_is_left_early_is_finished_by_the_next():
    def work(transport):
        rank = transport.world.rank
        dataset = pls.PartialLocalDataset(Numbers(48), world=World(rank, 3))
        scheduler = pls.Scheduler(dataset, BATCH, 0.5, transport=transport)
        loader = DataLoader(dataset, BATCH, collate_fn=list)
        for epoch in range(2):
            next(pls.exchanging(scheduler, loader, epoch))
        scheduler.scheduling(2)
        scheduler.close()
        return dataset.held(), dataset.source._dataset.reads

    results, _ = on_ranks(3, work)
    owner = pls.Ownership(pls.deal(48, 3), 0.5)
    for rank, (ids, reads) in enumerate(results):
        assert ids.tolist() == owner.held_by(rank, 2).tolist()
        assert reads == 16 + AGAIN


def test_portions_are_even_and_end_a_step_before_the_epoch():
    def work(transport):
        rank = transport.world.rank
        dataset = pls.PartialLocalDataset(Numbers(80), world=World(rank, 2))
        scheduler = pls.Scheduler(dataset, BATCH, 1.0, transport=transport)
        scheduler.scheduling(0)
        portions = [scheduler.communicate()[0].samples for _ in range(scheduler.steps)]
        scheduler.clean_local_storage()
        return portions

    portions, _ = on_ranks(2, work)
    assert len(portions[0]) == 10
    assert portions[0][-1] == 0
    assert max(portions[0]) <= -(-40 // 9)


def test_ranks_that_disagree_are_refused_everywhere():
    def work(transport):
        rank = transport.world.rank
        dataset = pls.PartialLocalDataset(Numbers(40), world=World(rank, 2))
        with pytest.raises(UsageError, match="every rank"):
            pls.Scheduler(dataset, BATCH, 0.1 * rank, transport=transport)
        return True

    assert on_ranks(2, work)[0] == [True, True]


def test_a_rank_that_is_gone_is_an_error_and_no_hang():
    def work(transport):
        rank = transport.world.rank
        dataset = pls.PartialLocalDataset(Numbers(40), world=World(rank, 2))
        limits = pls.Limits(timeout_s=2.0)
        scheduler = pls.Scheduler(dataset, BATCH, 1.0, transport=transport, limits=limits)
        scheduler.scheduling(0)
        if rank:
            return True
        with pytest.raises(LoadersError, match="rank 1 within"):
            scheduler.clean_local_storage()
        with pytest.raises(LoadersError):
            scheduler.clean_local_storage()
        return True

    assert on_ranks(2, work)[0] == [True, True]


@pytest.mark.parametrize("call", ["communicate", "clean_local_storage"])
def test_calls_out_of_order_are_refused(call):
    dataset = pls.PartialLocalDataset(Numbers(40), world=World())
    with pytest.raises(UsageError, match="scheduling"):
        getattr(pls.Scheduler(dataset, BATCH, 0.5), call)()


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"fraction": 2}])
def test_settings_that_make_no_sense_are_refused(wrong):
    dataset = pls.PartialLocalDataset(Numbers(40), world=World())
    with pytest.raises(UsageError, match="expected"):
        pls.Scheduler(dataset, **{"batch_size": BATCH, "fraction": 0.5} | wrong)


def test_something_that_is_no_data_set_is_refused():
    with pytest.raises(UsageError, match="data set"):
        pls.PartialLocalDataset(7)


@pytest.mark.parametrize(("samples", "drop_last", "length"), [(42, False, 11), (42, True, 8)])
def test_samplers_are_as_long_on_every_rank(samples, drop_last, length):
    for rank in range(4):
        dataset = pls.PartialLocalDataset(Numbers(samples), world=World(rank, 4))
        sampler = pls.LocalSampler(dataset, BATCH, drop_last=drop_last)
        slots = list(sampler)
        assert len(slots) == len(sampler) == length
        assert set(slots) <= set(range(len(dataset)))
        sampler.set_epoch(1)
        assert list(sampler) != slots
        assert list(pls.LocalSampler(dataset, BATCH, shuffle=False)) == [
            *range(len(dataset)),
            *[0] * (11 - len(dataset)),
        ]
