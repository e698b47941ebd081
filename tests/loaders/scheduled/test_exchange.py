"""Nodes that send each other samples: in one process, through real connections."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.data.stored import N, direct, written
from tests.loaders.ranks.threads import on_ranks
from tests.loaders.scheduled.test_dealt import batches
from vanidl_loaders.data.pread import ReadTotals
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.ranks.messages import Alone
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled import PlanSettings, make_plan
from vanidl_loaders.scheduled.buffer import NodeMemory, NodeSize
from vanidl_loaders.scheduled.dataset import buffered_loader
from vanidl_loaders.scheduled.exchange import (
    HEADER,
    Door,
    ExchangeLimits,
    NodeAccess,
    connect,
    connect_nodes,
    decide_exchange,
    measure_speeds,
)
from vanidl_loaders.scheduled.loader import ScheduledLoader
from vanidl_loaders.scheduled.stage import StageSettings

EPOCHS = 3


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    """As many samples for each of 4 or 6 ranks: no padding."""
    return written(tmp_path_factory.mktemp("even"), "contiguous", 96)


@contextmanager
def loaders(samples, *, nodes=2, node_ranks=2, batch=5, buffer=60, timeout_s=60.0, **plan):
    """Of all ranks, connected."""
    ranks = nodes * node_ranks
    chosen = PlanSettings(
        len(samples), ranks, batch, EPOCHS, buffer, node_ranks=node_ranks, exchange=True, **plan
    )
    made, stage = make_plan(chosen), StageSettings(gap=0, look_ahead=2)
    size = NodeSize.of(chosen, stage.staging(chosen, samples.sample_nbytes))
    memory = [NodeMemory(samples, size) for _ in range(nodes)]

    def opened(transport):
        rank = transport.world.rank
        of_node, limits = memory[chosen.node(rank)], ExchangeLimits(2, timeout_s)
        exchange = connect_nodes(transport, samples, made, of_node, limits, ReadTotals())
        settings = Settings(World(rank, ranks, 0, 1), batch, EPOCHS)
        return ScheduledLoader(samples, settings, made, stage, NodeAccess(of_node, exchange))

    found, _ = on_ranks(ranks, opened)
    try:
        yield found
    finally:
        for each in found:
            each.close()


def epoch_of(every, epoch, stored):
    """Runs an epoch on all ranks in step, compares data; the ids of each rank's batches."""
    found = [[] for _ in every]
    for each in every:
        each.set_epoch(epoch)
    for step in zip(*every, strict=True):
        for ids, batch in zip(found, step, strict=True):
            ids.append(batch["sample"].tolist())
            for name, values in stored.items():
                np.testing.assert_array_equal(batch[name], values[ids[-1]])
            assert batch["weight"] == 1.0
    return found


def served(loader):
    """The connections that a node answers, and the lock of each: once its thread has begun."""
    end = time.monotonic() + 60
    while not (peers := dict(loader._exchange.serving._peers)) and time.monotonic() < end:
        time.sleep(0.001)
    return peers


def total(every, name):
    return sum(getattr(each.stats(), name) for each in every)


@pytest.mark.parametrize(
    ("nodes", "node_ranks", "batch", "buffer"),
    [(2, 2, 5, 60), (3, 2, 4, 41), (4, 1, 3, 95), (2, 1, 24, 0), (2, 2, 7, 96)],
)
def test_equal_batches_and_the_least_reads_over_all_nodes(even, nodes, node_ranks, batch, buffer):
    size, stored = even.sample_nbytes, direct(even)
    with loaders(even, nodes=nodes, node_ranks=node_ranks, batch=batch, buffer=buffer) as every:
        chosen, before = every[0].plan.settings, 0
        for epoch in range(EPOCHS):
            ids = epoch_of(every, epoch, stored)
            assert ids == [batches(chosen, rank, epoch) for rank in range(chosen.ranks)]
            read = total(every, "nbytes") / size
            assert read - before == (96 - buffer if epoch else 96)
            before = read
        assert total(every, "loads") == before
        assert total(every, "reloads") == 0
        assert total(every, "hits") + total(every, "loads") + total(every, "remote_hits") == 3 * 96
        sent = total(every, "remote_hits") + total(every, "remote_reads")
        assert total(every, "remote_nbytes") == sent * size
        of_node = [
            total(every[at : at + node_ranks], "loads") for at in range(0, chosen.ranks, node_ranks)
        ]
        assert np.ptp(of_node) <= EPOCHS * len(ids[0])  # one in each step
        assert all(each.stats().buffer_peak <= chosen.capacity(0) for each in every)


def test_what_padding_repeats_is_read_again_only_where_nobody_holds_it(flat):
    with loaders(flat) as every:
        plan, before = every[0].plan, 0
        for epoch in range(EPOCHS):
            epoch_of(every, epoch, direct(flat))
            again = plan.settings.shuffle(epoch)[N:]
            free = int((plan.owner[again] < 0).sum())
            read = total(every, "nbytes") / flat.sample_nbytes
            if epoch:
                assert read - before == N - 60 + free
            before = read


def test_epochs_out_of_order_give_right_samples_and_count_what_they_read_twice(even):
    with loaders(even) as every:
        epoch_of(every, 2, direct(even))
        assert total(every, "loads") + total(every, "reloads") == 96
        assert total(every, "reloads") == 60
        epoch_of(every, 1, direct(even))
        assert total(every, "reloads") == 60  # each was read where it is held


def test_a_node_that_ends_in_order_leaves_the_others_to_storage(even):
    with loaders(even, nodes=2, node_ranks=1) as (first, second):
        epoch_of([first, second], 0, direct(even))
        first.close()
        second.set_epoch(1)
        for batch in second:
            ids = batch["sample"].tolist()
            np.testing.assert_array_equal(batch["x"], direct(even)["x"][ids])
        assert second.stats().reloads > 0


def test_a_node_that_dies_is_one_clear_error(even):
    with loaders(even, nodes=2, node_ranks=1) as (first, second):
        epoch_of([first, second], 0, direct(even))
        for peer in served(first):
            with socket.socket(fileno=os.dup(peer.fileno())) as connected:
                connected.shutdown(socket.SHUT_RDWR)
        second.set_epoch(1)
        with pytest.raises(InputError, match=r"expected node 0 to send sample \d+, .* ended"):
            list(second)


def test_a_silent_node_is_an_error_within_the_limit(even):
    with loaders(even, nodes=2, node_ranks=1, timeout_s=2.0) as (first, second):
        epoch_of([first, second], 0, direct(even))
        (lock,) = served(first).values()
        second.set_epoch(1)
        with lock, pytest.raises(InputError, match=r"node 0 to send .* nothing for 2 s"):
            list(second)


def test_a_node_whose_storage_hangs_ends_all_the_same(even, monkeypatch):
    with loaders(even, nodes=2, node_ranks=1, timeout_s=2.0) as (first, second):
        back = threading.Event()
        monkeypatch.setattr(first._exchange.serving._pool, "map", lambda *_: back.wait(60) and [])
        second.set_epoch(1)  # node 0 holds nothing yet, and reads what it is asked for
        with pytest.raises(InputError, match=r"nothing for 2 s"):
            list(second)
        first.close()
        assert not back.is_set()
        back.set()


@pytest.mark.parametrize("wrong", ["bit", "id", "length"])
def test_a_wrong_sample_is_never_used(even, monkeypatch, wrong):
    from vanidl_loaders.scheduled import exchange

    def damaged(sample, origin, arrays):
        content = bytearray(made(sample + (wrong == "id"), origin, arrays))
        if wrong == "bit":
            content[HEADER.size] ^= 1
        return bytes(content[:-1] if wrong == "length" else content)

    made = exchange.pack_sample
    monkeypatch.setattr(exchange, "pack_sample", damaged)
    with loaders(even, nodes=2, node_ranks=1) as every:
        epoch_of(every, 0, direct(even))
        every[1].set_epoch(1)
        with pytest.raises(InputError, match=r"expected sample \d+ of 150 bytes from node 0"):
            list(every[1])


def test_a_stranger_is_not_served():
    served = []
    door = Door(b"of the job", served.append, 60.0)
    with pytest.raises(InputError, match="expected a node of this job"):
        connect(door.address, b"another", 60.0)
    peer = connect(door.address, b"of the job", 60.0)
    with pytest.raises(EOFError):
        peer.recv_bytes()  # served, and closed behind that
    peer.close()
    door.close()
    assert len(served) == 1


def test_auto_exchanges_where_the_network_is_faster_than_storage(even):
    def asked(transport):
        speeds = measure_speeds(transport, even, 2)
        return speeds, decide_exchange("auto", transport, even, 2, None)[0]

    found, _ = on_ranks(4, asked)
    assert len({speeds.network_s for speeds, _ in found}) == 1
    assert len({sends for _, sends in found}) == 1
    assert all(speeds.network_s > 0 and speeds.storage_s > 0 for speeds, _ in found)
    read = [speeds.measured.nbytes for speeds, _ in found]
    assert read[1] == read[3] == 0  # one rank of each node measures storage
    assert 0 < read[0] == read[2]


def test_exchange_that_cannot_be_is_refused(even):
    with pytest.raises(UsageError, match="--node-exchange on"):
        decide_exchange("on", Alone(World(0, 2, 0, 1)), even, 1, None)
    assert decide_exchange("auto", Alone(World()), even, 1, None)[0] is False
    settings = PlanSettings(96, 2, 4, 1, 10, exchange=True)
    with pytest.raises(UsageError, match="--node-exchange on for this plan, found off"):
        decide_exchange("off", Alone(World(0, 2, 0, 1)), even, 1, settings)
    with pytest.raises(UsageError, match="connected nodes"):
        ScheduledLoader(
            even, Settings(World(0, 2, 0, 1), 4, 1), make_plan(settings), StageSettings()
        )
    with pytest.raises(UsageError, match="connected nodes"):
        buffered_loader(list(range(96)), settings, rank=0)
