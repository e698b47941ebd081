"""Ranks as threads of one process: a transport through queues, for laws of many ranks."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue

import numpy as np

from vanidl_loaders.ranks.world import World

WITHIN_S = 60


class Switch:
    """What the ranks of one job share: a queue for each (source, target, tag), values, a barrier.

    Attributes:
        messages: Messages sent so far.
    """

    def __init__(self, ranks):
        self.ranks, self.messages = ranks, 0
        self.barrier = threading.Barrier(ranks, timeout=WITHIN_S)
        self.values = [None] * ranks
        self.queues, self.lock = defaultdict(Queue), threading.Lock()

    def send(self, source, target, tag, content):
        with self.lock:
            self.messages += 1
        self.queue(source, target, tag).put(content)

    def queue(self, source, target, tag):
        with self.lock:
            return self.queues[source, target, tag]


class ThreadTransport:
    mpi, connected = False, True

    def __init__(self, switch, rank):
        self.world = World(rank, switch.ranks, 0, 1, "torch.distributed")
        self.switch = switch

    def start(self, sends, receives, tag=0):
        own = self.world.rank
        for rank, array in sends:
            assert rank != own
            self.switch.send(own, rank, tag, np.array(array))
        expected = [(self.switch.queue(rank, own, tag), array) for rank, array in receives]
        return ThreadPending(self.switch, expected)

    def gather(self, value):
        self.switch.values[self.world.rank] = value
        self.switch.barrier.wait()
        values = list(self.switch.values)
        self.switch.barrier.wait()
        return values

    def close(self):
        pass


class ThreadPending:
    def __init__(self, switch, expected):
        self.switch, self.expected = switch, expected

    def wait(self, timeout_s=None):
        """Without a limit, all ranks are expected to wait for all that was sent."""
        for queue, array in self.expected:
            try:
                content = queue.get(timeout=timeout_s or WITHIN_S)
            except Empty as error:
                raise TimeoutError from error
            assert (content.shape, content.dtype) == (array.shape, array.dtype)
            array[...] = content
        if timeout_s is None:
            self.switch.barrier.wait()
            assert all(queue.empty() for queue in self.switch.queues.values())
            self.switch.barrier.wait()


def on_ranks(ranks, work):
    """What work(transport) returns on each rank, and the switch between them."""
    switch = Switch(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(work, ThreadTransport(switch, rank)) for rank in range(ranks)]
    return [future.result() for future in futures], switch


def outcomes_on_ranks(ranks, work):
    """What work(transport) returns or raises on each rank."""

    def run(transport):
        try:
            return work(transport)
        except Exception as error:
            return error

    found, _ = on_ranks(ranks, run)
    for each in found:
        if isinstance(each, AssertionError | SystemError):
            raise each  # the others only tell that they waited for this one
    return found
