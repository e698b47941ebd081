"""Ranks as threads of one process: the same calls as with MPI, without MPI."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue

from vanidl_loaders.ranks.messages import late


class Board:
    """What threads share: a queue for each (source, target, item), and a place to gather."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.queues, self.lock = defaultdict(Queue), threading.Lock()
        self.barrier = threading.Barrier(ranks, timeout=60)
        self.values = [None] * ranks
        self.messages = 0

    def queue(self, source, target, item):
        with self.lock:
            return self.queues[source, target, item]


class ThreadTransport:
    def __init__(self, board, rank):
        self.board, self.rank, self.ranks = board, rank, board.ranks

    def start(self, swap):
        with self.board.lock:
            self.board.messages += 1
        self.board.queue(self.rank, swap.target, swap.item).put(swap.outgoing.copy())
        return ThreadFlight(swap, self.board.queue(swap.source, self.rank, swap.item))

    def gather(self, value):
        self.board.values[self.rank] = value
        self.board.barrier.wait()
        values = list(self.board.values)
        self.board.barrier.wait()
        return values

    def close(self):
        pass


class ThreadFlight:
    def __init__(self, swap, queue):
        self.swap, self.queue = swap, queue

    def wait(self, timeout_s):
        try:
            self.swap.incoming[:] = self.queue.get(timeout=timeout_s)
        except Empty as error:
            raise late(self.swap, timeout_s) from error


def on_ranks(ranks, work):
    """What work(rank, transport) returns on each rank; the board."""
    board = Board(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(work, rank, ThreadTransport(board, rank)) for rank in range(ranks)]
    return [future.result() for future in futures], board
