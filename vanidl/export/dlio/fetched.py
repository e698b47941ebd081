"""What recorded fetches of the training loader say: batches, samples, workers, epochs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vanidl.model.fetches import Fetches
from vanidl.model.trace import Trace

_FOR_TRAINING = ", training)"  # the end of a loader's name, where a run has several


@dataclass(frozen=True, slots=True)
class Fetched:
    """One loader, over all ranks."""

    name: str
    others: tuple[str, ...]  # loaders that these figures leave out
    batches: int
    batch_size: int  # samples of most batches
    short: int  # batches of fewer samples
    workers: int  # of one rank
    epochs: int
    samples_per_epoch: int | None  # over all ranks; None: epochs differ


def fetched(trace: Trace) -> Fetched | None:
    """The loader that training takes most samples from; None where no fetch was recorded."""
    fetches = trace.fetches
    if not len(fetches):
        return None
    names = np.unique(fetches.name).tolist()
    own = [k for k in names if fetches.names[k].endswith(_FOR_TRAINING)] or names
    samples = {k: int(fetches.samples[fetches.name == k].sum()) for k in own}
    chosen = max(own, key=lambda k: samples[k])
    others = tuple(fetches.names[k] for k in names if k != chosen)
    return _of_loader(fetches.pick(fetches.name == chosen), fetches.names[chosen], others)


def _of_loader(fetches: Fetches, name: str, others: tuple[str, ...]) -> Fetched:
    sizes, counts = np.unique(fetches.samples[fetches.samples >= 0], return_counts=True)
    size = int(sizes[np.argmax(counts)]) if len(sizes) else 0
    numbers = np.unique(fetches.epoch)
    in_epoch = {int(fetches.samples[fetches.epoch == e].sum()) for e in numbers.tolist()}
    return Fetched(
        name=name,
        others=others,
        batches=len(fetches),
        batch_size=size,
        short=int(counts[sizes < size].sum()),
        workers=int(fetches.worker.max()) + 1,
        epochs=len(numbers),
        samples_per_epoch=in_epoch.pop() if len(in_epoch) == 1 and (sizes > 0).all() else None,
    )
