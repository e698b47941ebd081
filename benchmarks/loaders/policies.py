"""What other policies would load, counted on the same streams of ids.

Each: (settings) -> samples read from storage in each epoch, shape (epochs,). Buffers are those
of all ranks together, and a hit on any rank counts as one, unless the policy says otherwise:
that flatters the others.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vanidl_loaders.scheduled.plan import PlanSettings, make_plan

Int64Array = NDArray[np.int64]


def dataloader(settings: PlanSettings) -> Int64Array:
    """PyTorch's DataLoader: everything, every epoch."""
    return np.array([len(settings.shuffle(e)) for e in range(settings.epochs)])


def planned(settings: PlanSettings) -> Int64Array:
    """This package's plan."""
    plan = make_plan(settings)
    epochs = range(settings.epochs)
    return np.array([sum(int(step.load.sum()) for step in plan.steps(e)) for e in epochs])


def fifo(settings: PlanSettings) -> Int64Array:
    """The oldest sample leaves."""
    return _recency(settings, renew=False)


def lru(settings: PlanSettings) -> Int64Array:
    """The least recently used sample leaves."""
    return _recency(settings, renew=True)


def belady(settings: PlanSettings) -> Int64Array:
    """The sample whose next use is farthest leaves, or is not kept at all (MIN with bypass)."""
    streams = [settings.shuffle(e) for e in range(settings.epochs)]
    next_use = _next_uses(np.concatenate(streams), settings.samples)
    resident: dict[int, int] = {}
    farthest: list[tuple[int, int]] = []
    loads, at = [], 0
    for stream in streams:
        missed = 0
        for sample in stream.tolist():
            missed += sample not in resident
            _keep(sample, int(next_use[at]), resident, farthest, settings.buffer)
            at += 1
        loads.append(missed)
    return np.array(loads)


def solar_release(settings: PlanSettings) -> Int64Array:
    """The authors' release: only what the last C of an epoch and the first C of the next share.

    Hits are counted in the first floor(C / B) steps of an epoch, the last C samples of the
    epoch before being what its FIFO buffer holds.
    """
    reach = settings.buffer // settings.global_batch * settings.global_batch
    loads = [len(settings.shuffle(0))]
    for epoch in range(1, settings.epochs):
        held = settings.shuffle(epoch - 1)[::-1][: settings.buffer]
        stream = settings.shuffle(epoch)
        loads.append(len(stream) - int(np.isin(stream[:reach], held).sum()))
    return np.array(loads)


def nopfs(settings: PlanSettings) -> Int64Array:
    """NoPFS: every rank caches the samples that it itself uses most often over all epochs.

    Re-implemented from the description of its sampler (get_prefetch_string). Ranks choose
    alone and so duplicate each other; a sample that another rank caches comes from there.
    """
    frequency = np.zeros((settings.ranks, settings.samples), np.int32)
    for epoch in range(settings.epochs):
        stream = settings.shuffle(epoch)
        for rank in range(settings.ranks):
            frequency[rank] += np.bincount(
                stream[rank :: settings.ranks], minlength=settings.samples
            ).astype(np.int32)
    cached = np.zeros(settings.samples, bool)
    for rank in range(settings.ranks):
        order = np.argsort(-frequency[rank], kind="stable")[: settings.capacity(rank)]
        cached[order[frequency[rank][order] > 0]] = True
    later = [int((~cached[settings.shuffle(e)]).sum()) for e in range(1, settings.epochs)]
    return np.array([len(settings.shuffle(0)), *later])


POLICIES: dict[str, Callable[[PlanSettings], Int64Array]] = {
    "dataloader": dataloader,
    "planned": planned,
    "belady": belady,
    "fifo": fifo,
    "lru": lru,
    "solar_release": solar_release,
    "nopfs": nopfs,
}


def _recency(settings: PlanSettings, *, renew: bool) -> Int64Array:
    resident: OrderedDict[int, None] = OrderedDict()
    loads = []
    for epoch in range(settings.epochs):
        missed = 0
        for sample in settings.shuffle(epoch).tolist():
            if sample in resident:
                if renew:
                    resident.move_to_end(sample)
                continue
            missed += 1
            if settings.buffer:
                resident[sample] = None
                if len(resident) > settings.buffer:
                    resident.popitem(last=False)
        loads.append(missed)
    return np.array(loads)


def _next_uses(stream: Int64Array, samples: int) -> Int64Array:
    """For each access the place of the next access to the same sample, or past the end."""
    after = np.full(samples, len(stream) + samples, np.int64)
    result = np.empty(len(stream), np.int64)
    for at in range(len(stream) - 1, -1, -1):
        result[at] = after[stream[at]]
        after[stream[at]] = at
    return result


def _keep(
    sample: int,
    next_use: int,
    resident: dict[int, int],
    farthest: list[tuple[int, int]],
    capacity: int,
) -> None:
    """Puts a used sample in, or throws the one with the farthest next use out."""
    resident[sample] = next_use
    heapq.heappush(farthest, (-next_use, sample))
    while len(resident) > capacity:
        use, candidate = heapq.heappop(farthest)
        if resident.get(candidate) == -use:
            del resident[candidate]
