"""What partial local shuffling stores and sends at 2,048 ranks: counted from its own tables.

    python -m benchmarks.loaders.pls_accounting [--samples 1228800] [--ranks 2048] [--fraction 0.3]

No rank runs: the ownership tables of three epochs are walked item by item, and each rank's samples
are counted, those it holds and those that have come. Global shuffling beside it: every rank can
need every sample, reads N / M of them from the shared file system in each epoch, and keeps none
(or, from local disks, all). The samples are ImageNet-1K's: 117 kB each, 600 a rank (the slides).
Limits: (1 + Q) / M of the data on a rank, Q (1 - 1/M) N / M samples sent by it in an epoch.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from vanidl_loaders.pls import Ownership, deal
from vanidl_loaders.pls.exchange_plan import NOBODY, home_fraction

EPOCHS = 3
SAMPLE_NBYTES = 117_000


def main() -> None:
    """Counts, prints the table; exit status 1 where a rank is over a limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=2048 * 600)
    parser.add_argument("--ranks", type=int, default=2048)
    parser.add_argument("--fraction", type=float, default=0.3)
    options = parser.parse_args()
    samples, ranks, fraction = options.samples, options.ranks, options.fraction
    owner = Ownership(deal(samples, ranks), fraction)
    peak, sent = count(owner)
    most = (1 + fraction) / ranks * 100
    home = at_home(owner)
    row = "{:<44}{:>14}{:>14}"
    share = samples // ranks
    print(f"{samples} samples, {ranks} ranks, Q = {fraction}, {EPOCHS} epochs")
    print(row.format("", "partial", "global"))
    print(
        row.format("of the data on a rank, at most, %", f"{peak / samples * 100:.4f}", "0 or 100")
    )
    print(row.format("  limit (1 + Q) / M, %", f"{most:.4f}", "-"))
    print(row.format("MB on a rank, at most", _mb(peak), "0 or all"))
    print(row.format("samples from storage, a rank, later epochs", "0", share))
    print(row.format("  the same in MB", "0", _mb(share)))
    print(row.format("samples sent by a rank, an epoch, mean", f"{sent:.1f}", "0"))
    print(row.format("  limit Q (1 - 1/M) N / M", f"{fraction * (1 - 1 / ranks) * share:.1f}", "-"))
    print(row.format("  the same in MB", _mb(sent), "0"))
    print(f"global reads {share / sent:.2f} times what partial sends (1 / Q = {1 / fraction:.2f})")
    law = home_fraction(ranks, fraction, EPOCHS)
    print(f"on their home rank after {EPOCHS} epochs: {home:.4f}, the law says {law:.4f}")
    sys.exit(int(peak / samples * 100 > most + 1e-12))


def count(owner: Ownership) -> tuple[int, float]:
    """Most samples on a rank at once, and samples that a rank sent in an epoch, mean."""
    peak, sent = 0, 0
    for epoch in range(EPOCHS):
        targets = owner.exchange(epoch).targets
        leaves = (targets != NOBODY) & (targets != np.arange(owner.ranks))
        coming = leaves.sum(axis=0)  # as many come as leave
        peak = max(peak, int((owner.sizes + coming).max()))
        sent += int(leaves.sum())
    return peak, sent / EPOCHS / owner.ranks


def at_home(owner: Ownership) -> float:
    """Share of samples that are on their home rank after all epochs."""
    home = np.empty(int(owner.sizes.sum()), np.int64)
    slot, rank = np.nonzero(owner.homes != NOBODY)
    home[owner.homes[slot, rank]] = rank
    return float((home[owner.held(EPOCHS)[slot, rank]] == rank).mean())


def _mb(samples: float) -> str:
    return f"{samples * SAMPLE_NBYTES / 1e6:.1f}"


if __name__ == "__main__":
    main()
