"""What a request costs on the emulated storage.

Each client has a link, the server has one too, both serve requests in the order of arrival and
one at a time, and a request crosses both at once (as a stream does):

    ready       = arrival + latency
    client_done = max(ready, client's link free) + nbytes / client bandwidth
    server_done = max(ready, server's link free) + nbytes / total bandwidth
    done        = max(client_done, server_done)

Latencies of concurrent requests overlap; transfers share the links. So do writes, with a latency
of their own, where they cost anything; syncs and metadata cost a latency alone.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from ..errors import UsageError


@dataclass(frozen=True)
class Cost:
    """Limits of the storage.

    Attributes:
        latency_s: Seconds a read request waits before its bytes move.
        client_bytes_per_s: Of each client's link; infinite by default.
        total_bytes_per_s: Of all clients together; infinite by default.
        write_s: Seconds a write request waits before its bytes move; None: writes cost nothing,
            and do not cross the links.
        sync_s: Seconds that an fsync takes beside that of the disk below.
        metadata_s: Seconds that each look at attributes, open, listing, new name or removal takes.
    """

    latency_s: float = 0.0
    client_bytes_per_s: float = math.inf
    total_bytes_per_s: float = math.inf
    write_s: float | None = None
    sync_s: float = 0.0
    metadata_s: float = 0.0

    def __post_init__(self) -> None:
        latencies = (self.latency_s, self.write_s or 0.0, self.sync_s, self.metadata_s)
        if min(latencies) < 0 or min(self.client_bytes_per_s, self.total_bytes_per_s) <= 0:
            raise UsageError(
                f"expected latencies of 0 or more and bandwidths above 0, found {self}: "
                "correct the options"
            )


class Links:
    """The state of all links. Not thread-safe: callers hold a lock."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._clients: dict[Hashable, float] = {}
        self._server = -math.inf

    def finish(
        self, client: Hashable, nbytes: int, arrival_s: float, latency_s: float | None = None
    ) -> float:
        """When a request that arrives now is done, on the clock of `arrival_s`; books the links.

        Its latency is that of a read unless another is given.
        """
        cost = self._cost
        # A request waits for its latency, then for its turn on its client's link and on the
        # server's.
        ready = arrival_s + (cost.latency_s if latency_s is None else latency_s)
        of_client = max(ready, self._clients.get(client, -math.inf))
        of_client += nbytes / cost.client_bytes_per_s
        self._server = max(ready, self._server) + nbytes / cost.total_bytes_per_s
        self._clients[client] = of_client
        return max(of_client, self._server)


def expected_s(cost: Cost, *, requests: int, nbytes: int, clients: int = 1) -> float:
    """Seconds that `clients` take, each with `requests` requests of `nbytes` one after another.

    A client's cycle is latency and transfer over the slower link; all together cannot be faster
    than the server's link: max(requests x cycle, latency + all bytes / total bandwidth).
    """
    # The client's own cycle, or the server's link where all clients keep it busy.
    slower = min(cost.client_bytes_per_s, cost.total_bytes_per_s)
    alone = requests * (cost.latency_s + nbytes / slower)
    return max(alone, cost.latency_s + clients * requests * nbytes / cost.total_bytes_per_s)
