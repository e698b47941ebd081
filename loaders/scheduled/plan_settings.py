"""What a plan is made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.order import IdArray, compact_order, padded_order
from ..errors import UsageError, counted

Int64Array = NDArray[np.int64]
BALANCES = ("load", "batch", "time")
EPOCH_ORDERS = ("shuffle", "greedy", "pso")
"""How the order of epochs is chosen, see `vanidl_loaders.scheduled.epoch_orders`."""


@dataclass(frozen=True)
class PlanSettings:
    """What a plan is made from; equal settings give equal plans on every rank.

    Attributes:
        samples: N, of the dataset.
        ranks: R.
        batch: Samples of a rank in a step of the baseline; the global batch is ranks * batch.
        epochs: E.
        buffer: C, samples that all ranks hold together; node k holds C // K of them or one more.
        seed: Of the shuffles, as in the baseline.
        drop_last: Drop the incomplete global batch instead of padding, as in the baseline.
        shuffled: False: ids in order, every epoch.
        balance: "load", "batch" or "time".
        epoch_order: "shuffle" (as drawn), "greedy" or "pso": see `epoch_orders`.
        load_s: Seconds of reading a sample, for balance "time".
        compute_s: Seconds of training on a sample, for balance "time".
        node_ranks: Consecutive ranks that share a node's buffer; 1: each rank has its own, and K,
            the number of nodes, is R here and below.
        exchange: Nodes send samples to each other: every rank trains on DistributedSampler's
            batches, whichever node holds them.
    """

    samples: int
    ranks: int = 1
    batch: int = 16
    epochs: int = 1
    buffer: int = 0
    seed: int = 0
    drop_last: bool = False
    shuffled: bool = True
    balance: str = "load"
    epoch_order: str = "shuffle"
    load_s: float = 1.0
    compute_s: float = 1.0
    node_ranks: int = 1
    exchange: bool = False

    def __post_init__(self) -> None:
        least = {"samples": 1, "ranks": 1, "batch": 1, "epochs": 1, "buffer": 0, "node_ranks": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise UsageError(
                    f"expected {name} of at least {bound}, found {getattr(self, name)}: "
                    "correct the options"
                )
        if self.balance not in BALANCES:
            raise UsageError(
                f"expected a balance among {', '.join(BALANCES)}, found {self.balance}"
            )
        if self.samples < self.ranks:
            raise UsageError(
                f"expected at least one sample per rank, found "
                f"{counted(self.samples, 'sample')} for {counted(self.ranks, 'rank')}: use fewer "
                "ranks"
            )
        if self.ranks % self.node_ranks:
            raise UsageError(
                f"expected as many ranks on every node, found "
                f"{counted(self.ranks, 'rank')} and "
                f"{self.node_ranks} of a node: let each rank have its own buffer"
            )
        if self.epoch_order not in EPOCH_ORDERS:
            raise UsageError(
                f"expected an epoch order among {', '.join(EPOCH_ORDERS)}, found {self.epoch_order}"
            )

    @property
    def weights(self) -> tuple[float, float]:
        """(seconds of a load, seconds of training on a sample) that the balance weighs by.

        "load" levels what ranks read, "batch" the sizes of their batches, "time" both by their
        measured seconds per sample.
        """
        seconds = {"load": (1.0, 0.0), "batch": (0.0, 1.0), "time": (self.load_s, self.compute_s)}
        return seconds[self.balance]

    @property
    def global_batch(self) -> int:
        """Samples of a step over all ranks."""
        return self.ranks * self.batch

    @property
    def padding(self) -> int:
        """Uses of an epoch beyond one of each sample: fewer than there are ranks."""
        return 0 if self.drop_last else -self.samples % self.ranks

    @property
    def nodes(self) -> int:
        """K, buffers."""
        return self.ranks // self.node_ranks

    def node(self, rank: int) -> int:
        """Whose buffer a rank has."""
        return rank // self.node_ranks

    def capacity(self, node: int) -> int:
        """Samples that one buffer holds."""
        return self.buffer // self.nodes + (node < self.buffer % self.nodes)

    @property
    def uses(self) -> int:
        """Ids of an epoch over all ranks: the length of `shuffle`."""
        if self.drop_last:
            return self.samples // self.global_batch * self.global_batch
        return self.samples + self.padding

    def shuffle(self, number: int) -> IdArray:
        """The baseline's global sequence of ids in its epoch `number`, padded or cut."""
        order = compact_order(self.samples, seed=self.seed, epoch=number, shuffle=self.shuffled)
        return padded_order(order, ranks=self.ranks, batch=self.batch, drop_last=self.drop_last)
