"""What the time of a training thread can go to, and intervals of how much of it did.

A cell is an interval [at least, at most] of nanoseconds: how much of a window went to one cause.
Within a window cells are consistent: what is known of the others leaves each only so much, and
they fill the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

COMPUTE = "compute"
COMMUNICATION = "communication"
WAITING_FOR_PEERS = "waiting_for_peers"
STORAGE = "storage"
INPUT_CPU = "input_cpu"
HOST_CPU = "host_cpu"
TOO_FEW_CORES = "too_few_cores"
BLOCKED = "blocked"
DELIVERY = "delivery"
WORKERS = "workers"
TRACING = "tracing"
COPY = "copy"
DEVICE_IDLE = "device_idle"

CAUSES: Mapping[str, str] = {
    COMPUTE: "device events; without them operators, or running time, inside forward, backward "
    "and optimizer",
    COMMUNICATION: "collectives under no compute",
    WAITING_FOR_PEERS: "in a collective that another rank had not reached",
    STORAGE: "inside I/O calls and page faults of files, whether page cache or device served them",
    INPUT_CPU: "decoding, augmenting and collating of samples, wherever it runs",
    HOST_CPU: "the training thread's own Python, outside operators",
    TOO_FEW_CORES: "runnable, and not running",
    BLOCKED: "on a lock, the network, a timer or a child process",
    DELIVERY: "a batch on its way from a worker to the training process",
    WORKERS: "workers being started and stopped",
    TRACING: "the tracer itself",
    COPY: "device copies under no kernel",
    DEVICE_IDLE: "no device work, outside input waits",
}
"""Every cause, and what it is, in the order in which bars show them."""

READ, WRITE, METADATA, SYNC, FAULT, OBJECT, EXCHANGE = (
    "read",
    "write",
    "metadata",
    "sync",
    "fault",
    "object",
    "exchange",
)
STORAGE_PARTS: Mapping[str, str] = {
    READ: "reads of the outermost layer of each file",
    WRITE: "writes of it, without syncs that were timed apart",
    METADATA: "open, stat, seek, close and the like",
    SYNC: "fsync and the like",
    FAULT: "page faults of mapped files",
    OBJECT: "requests to object storage",
    EXCHANGE: "of these parts what a layer above spent beyond the layer beneath: the exchange "
    "between ranks in collective I/O",
}
BLOCKED_PARTS = ("lock", "network", "sleep", "child", "other")
INPUT_CPU_PARTS = ("samples", "collate", "sampler")
WORKERS_PARTS = ("start", "stop")
QUEUED = "queued"
IDLE_PARTS: Mapping[str, str] = {
    QUEUED: "work had been handed to the device and had not begun; for the rest there was none"
}

PHASES = (
    "start_up", "compile", "training", "validation", "checkpoint", "load", "inference",
    "skipped", "other", "tail",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """How much of a window went to a cause: at least `low_ns`, at most `high_ns`.

    `evidence` names the sources of both ends, `assumed` what else must hold for them.
    """

    low_ns: int
    high_ns: int
    evidence: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def range_s(self) -> tuple[float, float]:
        """Both ends in seconds."""
        return self.low_ns / 1e9, self.high_ns / 1e9

    @property
    def middle_ns(self) -> float:
        """The middle: what causes are ranked by."""
        return (self.low_ns + self.high_ns) / 2

    @property
    def is_exact(self) -> bool:
        """Whether both ends are one."""
        return self.low_ns == self.high_ns


NOTHING = Cell(0, 0)


def narrow_bounds(
    length: Int64Array, low: Mapping[str, Int64Array], high: Mapping[str, Int64Array]
) -> tuple[dict[str, Int64Array], dict[str, Int64Array]]:
    """The tightest intervals of causes that fill windows, with what is known of each.

    What others took at least is left for none, and what others cannot have taken is a cause's
    own. Every window is taken for itself; all arrays have the shape (windows,).

    Args:
        length: of each window, ns.
        low: cause -> at least, of those that may be in the windows; nothing else is.
        high: cause -> at most, of the same.
    """
    # Causes that nothing tells apart share their arrays: each pair of them is looked at once, and
    # those that are in no window not at all.
    pairs = {cause: (id(low[cause]), id(high[cause])) for cause in low}
    count = Counter(pairs.values())
    one = {pair: cause for cause, pair in pairs.items()}
    each = {id(side[cause]): side[cause] for side in (low, high) for cause in one.values()}
    is_any = {key: bool(values.any()) for key, values in each.items()}
    nothing = np.zeros_like(length)
    lows, highs = (dict.fromkeys(one, nothing) for _ in range(2))
    live = [pair for pair in one if is_any[pair[0]] or is_any[pair[1]]]
    left = length
    for pair in live:
        if is_any[pair[0]]:
            lows[pair] = np.minimum(np.maximum(each[pair[0]], 0), length)
            left = left - count[pair] * lows[pair]
        highs[pair] = np.maximum(np.minimum(each[pair[1]], length), lows[pair])
    # What the others took at least is left for none.
    if left is not length:
        for pair in live:
            most = np.minimum(highs[pair], left + lows[pair])
            highs[pair] = np.maximum(most, lows[pair], out=most)
    # What all others cannot have taken is a cause's own: where they fill the window it is nothing.
    over = -length
    for pair in live:
        over += count[pair] * highs[pair]
    if (over < length).any():
        for pair in live:
            lows[pair] = np.minimum(np.maximum(lows[pair], highs[pair] - over), highs[pair])
    return (
        {cause: lows[pair] for cause, pair in pairs.items()},
        {cause: highs[pair] for cause, pair in pairs.items()},
    )
