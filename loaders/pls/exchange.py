"""A thread that swaps samples with other ranks while this one trains.

Items go in the order of their numbers, on every rank the same. The lowest item that is not
through yet is therefore under way on both its ends, however few bytes may be under way at once:
no rank can wait for one that waits for it.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from ..data.pool import Outcome
from ..errors import LoadersError, UsageError
from ..ranks.messages import Bytes, Pending, Transport
from .exchange_plan import Int64Array
from .storage import HEADER_NBYTES, Measured, is_broken, new_message, sample_of, seal

IN_FLIGHT_NBYTES = 256 << 20
TIMEOUT_S = 300.0  # for one sample
_JOIN_S = 1.0  # a thread that waits for a rank that is gone is left behind
ANNOUNCED = -1
"""Tag of what no item is."""


@dataclass(frozen=True)
class Order:
    """One item of this rank: which sample it gives to whom, and from whom it gets one."""

    item: int
    target: int
    gives: int
    source: int


@dataclass(frozen=True)
class Coming:
    """What a rank says that it will send: a sample, and its bytes."""

    sample: int
    nbytes: int


@dataclass(frozen=True)
class Swap:
    """The messages of an order: the sample that is sent, and memory for the one that comes."""

    order: Order
    coming: Coming
    outgoing: Bytes
    incoming: Bytes

    @property
    def nbytes(self) -> int:
        """Bytes under way, both directions."""
        return self.outgoing.nbytes + self.incoming.nbytes

    def start(self, transport: Transport) -> Pending:
        """Begins to send and receive."""
        order = self.order
        return transport.start(
            [(order.target, self.outgoing)], [(order.source, self.incoming)], order.item
        )


@dataclass(frozen=True)
class Limits:
    """What an exchange may take.

    Attributes:
        in_flight_nbytes: Bytes under way at once, both directions together; one item always may.
        timeout_s: An item that takes longer is an error.
    """

    in_flight_nbytes: int = IN_FLIGHT_NBYTES
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        if not (self.in_flight_nbytes >= 0 and self.timeout_s > 0):  # NaN is neither
            raise UsageError(
                "expected bytes under way of at least 0 and a timeout above 0, found "
                f"{self.in_flight_nbytes} and {self.timeout_s}: correct the options"
            )


@dataclass
class Traffic:
    """What was swapped so far: samples each way, bytes of messages, and the most bytes at once."""

    swapped: int = 0
    sent_nbytes: int = 0
    received_nbytes: int = 0
    peak_in_flight_nbytes: int = 0


class ExchangeThread:
    """Executes orders in a thread, first in, first out.

    Args:
        transport: To the other ranks; only the thread uses it from now on.
        store: Where samples are taken from and put.
        limits: What may be under way, and for how long.
    """

    def __init__(self, transport: Transport, store: Measured, limits: Limits) -> None:
        self._transport, self._store = transport, store
        self._limits, self.traffic = limits, Traffic()
        self._coming = dict[int, Coming]()
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._broken = False
        # A daemon: a rank that ends early is not held up by one that is gone.
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def announce(self, epoch: int, orders: Sequence[Order]) -> Future[Int64Array]:
        """Queues telling other ranks what they will get in an epoch; what this one gets, in order.

        All ranks do it, before the epoch's first `submit`.
        """
        future: Future[Int64Array] = Future()
        self._jobs.put((partial(self._announce, epoch, orders), future))
        return future

    def submit(self, orders: Sequence[Order]) -> Future[None]:
        """Queues orders; the future is done when all are through, or has what went wrong."""
        future: Future[None] = Future()
        self._jobs.put((partial(self._execute, orders), future))
        return future

    def close(self) -> None:
        """Ends the thread; one that still waits for a rank is left behind."""
        self._broken = True
        self._jobs.put(None)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            with Outcome(future):
                # Behind a failure ranks are no longer in step: no further job may begin.
                if self._broken:
                    raise LoadersError(
                        "expected an exchange that works, found one that failed: start again"
                    )
                future.set_result(work())
            if future.exception() is not None:
                self._broken = True

    def _announce(self, epoch: int, orders: Sequence[Order]) -> Int64Array:
        """One message to each rank that gets something: the epoch, then ids and bytes by item."""
        # How long each message will be: samples may be of any size.
        sends, receives = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for order in orders:
            sends[order.target] += [order.gives, self._store.nbytes(order.gives)]
            receives[order.source].append(order.item)
        messages = {rank: np.array([epoch, *words], np.int64) for rank, words in sends.items()}
        heard = {rank: np.empty(1 + 2 * len(items), np.int64) for rank, items in receives.items()}
        pending = self._transport.start(
            [(rank, words.view(np.uint8)) for rank, words in messages.items()],
            [(rank, words.view(np.uint8)) for rank, words in heard.items()],
            ANNOUNCED,
        )
        self._wait(pending, f"what epoch {epoch} brings from ranks {sorted(heard)[:8]}")
        # Those of an item: who is in another epoch would send other samples.
        self._coming = {}
        for rank, items in receives.items():
            found = int(heard[rank][0])
            if found != epoch:
                raise LoadersError(
                    f"expected epoch {epoch} on rank {rank}, found epoch {found}: ranks are not in "
                    "the same epoch; start all of them again"
                )
            rows = heard[rank][1:].reshape(-1, 2).tolist()
            self._coming.update((i, Coming(*row)) for i, row in zip(items, rows, strict=True))
        return np.array([self._coming[order.item].sample for order in orders], np.int64)

    def _execute(self, orders: Sequence[Order]) -> None:
        waiting, in_flight = deque(orders), deque[tuple[Swap, Pending]]()
        under_way = 0
        while waiting or in_flight:
            # As many swaps under way as the limit of bytes allows, one in any case.
            while waiting and (not in_flight or self._fits(waiting[0], under_way)):
                in_flight.append(self._start(waiting.popleft()))
                under_way += in_flight[-1][0].nbytes
                peak = max(self.traffic.peak_in_flight_nbytes, under_way)
                self.traffic.peak_in_flight_nbytes = peak
            # They end in the order in which all ranks began them, so no two ranks wait for each
            # other.
            swap, pending = in_flight.popleft()
            order = swap.order
            self._wait(
                pending,
                f"item {order.item} from rank {order.source} and to rank {order.target}",
            )
            sample, source = sample_of(swap.incoming), swap.order.source
            wanted = f"expected sample {swap.coming.sample}"
            # The sample that was announced, with the bytes that its CRC was made of.
            if sample != swap.coming.sample:
                raise LoadersError(
                    f"{wanted} from rank {source}, found sample {sample}: ranks are not in "
                    "the same epoch; start all of them again"
                )
            if is_broken(swap.incoming):
                raise LoadersError(
                    f"{wanted} as rank {source} sent it, found it changed on the way: see to the "
                    "network and start again"
                )
            self._store.add(swap.incoming)
            self.traffic.swapped += 1
            self.traffic.sent_nbytes += swap.outgoing.nbytes
            self.traffic.received_nbytes += swap.incoming.nbytes
            under_way -= swap.nbytes

    def _fits(self, order: Order, under_way: int) -> bool:
        coming = self._coming[order.item].nbytes
        nbytes = self._store.nbytes(order.gives) + coming + 2 * HEADER_NBYTES
        return under_way + nbytes <= self._limits.in_flight_nbytes

    def _start(self, order: Order) -> tuple[Swap, Pending]:
        coming = self._coming[order.item]
        incoming = new_message(-1, coming.nbytes)
        swap = Swap(order, coming, self._store.message(order.gives), incoming)
        # The checksum of what is sent is in its header: the network is not trusted.
        seal(swap.outgoing)
        return swap, swap.start(self._transport)

    def _wait(self, pending: Pending, what: str) -> None:
        timeout_s = self._limits.timeout_s
        try:
            pending.wait(timeout_s)
        except TimeoutError as error:
            raise LoadersError(
                f"expected {what} within {timeout_s:g} s, found none: a rank ended or is "
                "slow; raise --exchange-timeout-s"
            ) from error
