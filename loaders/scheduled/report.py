"""What a plan costs, counted by walking through it, beside the bound that no plan beats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.coalesce import runs
from .plan import Plan


@dataclass(frozen=True)
class PlanReport:
    """Counts of a plan, over all ranks.

    `bound` is N - C: no epoch order and no eviction loads less in an epoch after the first
    (with `drop_last`, less by what the cut epochs leave out; where nodes exchange, more by what
    padding repeats and no buffer holds). `max_imbalance` is the largest difference of loads
    between two ranks (where they exchange, nodes) in a step, `requests_per_epoch` the reads of the
    epochs after the first where every step asks for its own, `max_batch` the largest batch of
    a rank over the baseline's. `batch_spread` is the mean over steps of the largest rank's batch
    over the mean rank's, in epochs after the first: 1 where batches are equal, else so many times
    longer does a step compute.
    """

    loads_first_epoch: int
    loads_per_epoch: float
    bound: int
    max_imbalance: int
    requests_per_epoch: float
    max_batch: float
    batch_spread: float | None  # None: no epoch after the first
    times_fewer: float | None  # loads of the DataLoader / loads of the plan, None where it loads 0


def report(plan: Plan, *, most_gap: int = 0) -> PlanReport:
    """Walks through every epoch of the plan."""
    rows = [_epoch(plan, epoch, most_gap) for epoch in range(plan.settings.epochs)]
    loads, requests, imbalance, largest, used, spread = np.array(rows).T
    later = slice(1, None) if len(rows) > 1 else slice(0, 0)
    per_epoch = float(loads[later].mean()) if len(rows) > 1 else 0.0
    return PlanReport(
        int(loads[0]),
        per_epoch,
        plan.settings.samples - min(plan.settings.buffer, plan.settings.samples),
        int(imbalance.max()),
        float(requests[later].mean()) if len(rows) > 1 else 0.0,
        float(largest.max()) / plan.settings.batch,
        float(spread[later].mean()) if len(rows) > 1 else None,
        float(used[later].mean()) / per_epoch if per_epoch else None,
    )


def _epoch(plan: Plan, epoch: int, most_gap: int) -> tuple[float, ...]:
    """(loads, requests, largest difference of loads, largest batch, samples used, batch spread)."""
    loads = requests = imbalance = largest = used = steps = 0
    spread = 0.0
    for step in plan.steps(epoch):
        of_rank = step.loads
        if step.source is not None:
            of_rank = np.bincount(step.source[step.load], minlength=plan.settings.nodes)
        loads += int(of_rank.sum())
        imbalance = max(imbalance, int(of_rank.max() - of_rank.min()))
        largest = max(largest, int(step.sizes.max()))
        used, steps = used + len(step.ids), steps + 1
        spread += float(step.sizes.max() / step.sizes.mean())
        for rank in range(plan.settings.ranks):
            ids, load = step.of_rank(rank)
            requests += len(runs(np.unique(ids[load]), most_gap)[0])
    return loads, requests, imbalance, largest, used, spread / max(steps, 1)
