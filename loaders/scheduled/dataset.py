"""The plan for those who keep their DataLoader: a data set and the batch sampler that leads it.

    plan = make_plan(PlanSettings(samples=len(samples), ranks=ranks, batch=batch, ...))
    sampler = ScheduledBatchSampler(plan, rank)
    dataset = ScheduledDataset(samples, plan, rank)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)

The buffer lives in the process that reads: `num_workers` is 0, or 1 with
`persistent_workers=True`. A worker that ends with its epoch takes its buffer along, and all of
it is read again (counted as reloads). Several workers are refused: each would hold a part of the
buffer, and the plan deals with ranks only. torchdata's StatefulDataLoader takes the same two.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from torch.utils.data import Dataset, Sampler, default_collate, get_worker_info

from ..data.readers import reader
from ..data.samples import SampleSet
from ..errors import UsageError
from ..loader.loader import WEIGHT, Batch
from ..loader.position import Position
from ..loader.stats import Counts, Stats
from .counts import StageCounts
from .plan import Plan
from .stage import Stage
from .stage_settings import StageSettings
from .steps import rank_steps


class StepIds(list[int]):
    """The ids of one step of a rank, which step it is, and the factor of its loss."""

    def __init__(
        self, ids: Sequence[int] = (), epoch: int = -1, step: int = -1, weight: float = 1.0
    ) -> None:
        super().__init__(ids)
        self.epoch, self.step, self.weight = epoch, step, weight


def as_step(ids: list[int]) -> StepIds:
    """The ids that a DataLoader asks for, as those of a step of the plan.

    Raises:
        UsageError: They are not from a ScheduledBatchSampler.
    """
    if not isinstance(ids, StepIds):
        raise UsageError(
            "expected a batch of a ScheduledBatchSampler, found other ids: "
            "give DataLoader(batch_sampler=ScheduledBatchSampler(plan, rank))"
        )
    return ids


def require_one_process() -> None:
    """Raises UsageError in one of several workers: each would hold a part of the buffer."""
    worker = get_worker_info()
    if worker is not None and worker.num_workers > 1:
        raise UsageError(
            f"expected num_workers of 0 or 1, found {worker.num_workers}: "
            "the buffer lives in one process"
        )


class ScheduledBatchSampler(Sampler[list[int]]):
    """Lists of ids of one rank, of unequal length, as many on every rank.

    An iteration behind a whole one goes through the next epoch of the plan, unless `set_epoch`
    says otherwise. Lightning tells the epoch to the `sampler` of a batch sampler: that is this one.

    Raises:
        UsageError: The plan has no such rank.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        if not 0 <= rank < plan.settings.ranks:
            raise UsageError(f"expected a rank below {plan.settings.ranks}, found {rank}")
        self._plan, self._rank = plan, rank
        self._position = Position(asdict(plan.settings) | {"rank": rank})

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the epoch, behind a loaded state from where that was."""
        start, epoch = self._position.begin(), self._position.epoch
        steps = rank_steps(self._plan, self._rank, epoch=epoch, start=start)
        for number, step in enumerate(steps, start):
            self._position.step = number + 1
            yield StepIds(step.ids.tolist(), epoch, number, step.weight)
        self._position.end()

    @property
    def sampler(self) -> ScheduledBatchSampler:
        """Itself."""
        return self

    def __len__(self) -> int:
        """Steps of an epoch."""
        return -(-self._plan.settings.uses // self._plan.settings.global_batch)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch` of the plan."""
        self._position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Epoch, batches handed out, and the plan's settings."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind the last batch of `state`.

        Raises:
            UsageError: The state is of another plan or rank.
        """
        self._position.load_state_dict(state)


class ScheduledDataset(Dataset[Batch]):
    """Samples by id; batches of the plan through `__getitems__`, from the buffer or read ahead.

    Args:
        samples: What to load.
        plan: As the sampler's.
        rank: As the sampler's.
        stage: How to read ahead.
    """

    def __init__(
        self, samples: SampleSet, plan: Plan, rank: int, stage: StageSettings | None = None
    ) -> None:
        self._samples, self._plan, self._rank = samples, plan, rank
        self._settings = stage or StageSettings()
        self._counts = StageCounts(Counts(1), Counts(1))
        self._stage: Stage | None = None
        self._stream: Generator[Batch, None, None] | None = None
        self._next, self._process = (-1, -1), os.getpid()

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._samples)

    def __getitem__(self, sample: int) -> Batch:
        """One sample, read directly: neither buffered nor counted, without `weight`."""
        direct = reader(self._samples)
        try:
            arrays = direct.read(sample)
        finally:
            direct.close()
        return default_collate([arrays | {"sample": sample}])

    def __getitems__(self, ids: list[int]) -> list[Batch]:
        """The samples of one step of the plan, each with `sample` and `weight`.

        Raises:
            UsageError: The ids are not from a ScheduledBatchSampler, or there are several workers.
        """
        ids = as_step(ids)
        batch = next(self._at(ids.epoch, ids.step))
        assert batch["sample"].tolist() == ids, "the sampler follows another plan"
        weight = batch.pop(WEIGHT)
        rows = range(len(ids))
        return [{name: v[i] for name, v in batch.items()} | {WEIGHT: weight} for i in rows]

    def stats(self) -> Stats:
        """Reads and hits of all processes; waits are the DataLoader's to tell."""
        return self._counts.of_plan.stats([])

    def reloads(self) -> int:
        """Reads of samples that the plan holds already."""
        return self._counts.beside_plan.stats([]).loads

    def close(self) -> None:
        """Closes files and gives the buffer of this process up."""
        if self._stream is not None:
            self._stream.close()
        if self._stage is not None:
            self._stage.close()
        self._stream, self._stage = None, None

    def _at(self, epoch: int, step: int) -> Generator[Batch, None, None]:
        """The stream of batches, begun again unless the step asked for is its next."""
        if self._process != os.getpid():  # forked: threads and files stayed behind
            self._stream, self._stage, self._process = None, None, os.getpid()
        if self._stream is None or self._next != (epoch, step):
            if self._stream is not None:
                self._stream.close()
            self._stream = self._opened().batches(epoch, step)
        self._next = (epoch, step + 1)
        return self._stream

    def _opened(self) -> Stage:
        if self._stage is None:
            require_one_process()
            counts, settings = self._counts, self._settings
            self._stage = Stage(self._samples, self._plan, self._rank, settings, counts)
        return self._stage

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_stage": None, "_stream": None, "_next": (-1, -1)}


def collate(samples: list[Batch]) -> Batch:
    """The samples of `__getitems__` stacked field by field; `weight` once."""
    weight = samples[0][WEIGHT]
    batch: Batch = default_collate([{k: v for k, v in s.items() if k != WEIGHT} for s in samples])
    return batch | {WEIGHT: weight}
