"""One train loop for every workload and loader: alone, under torchrun, under mpiexec.

What it leaves behind, where asked for: a PyTorch profiler trace and TensorBoard event files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from .data.pread import written_whole
from .data.samples import SampleSet
from .errors import LoadersError
from .loader.loader import WEIGHT, Batch, Loader, Settings, Stats
from .ranks.messages import is_same_on_all_ranks, name_lost_ranks, process_group
from .ranks.world import World
from .workloads.registry import Workload, find_workload

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter
RUN_VARIABLE = "VANIDL_RUN"
"""Environment variable: folder of the run that is being recorded."""
_ACTIVITIES = (ProfilerActivity.CPU, ProfilerActivity.CUDA)


@dataclass(frozen=True)
class Places:
    """Folders for the profiler trace and the event files; None: not written."""

    profile: Path | None = None
    events: Path | None = None

    @classmethod
    def chosen(
        cls, profile: str | None, events: str | None, environment: Mapping[str, str]
    ) -> Places:
        """What was asked for; where nothing was, `tb` in the folder that VANIDL_RUN names."""
        if profile is None and events is None and environment.get(RUN_VARIABLE):
            folder = Path(environment[RUN_VARIABLE]) / "tb"
            return cls(folder, folder)
        return cls(Path(profile) if profile else None, Path(events) if events else None)

    @classmethod
    def from_environment(cls) -> Places:
        """The places that VANIDL_RUN names, if it is set."""
        return cls.chosen(None, None, os.environ)


@dataclass(frozen=True)
class Plan:
    """How to train.

    Attributes:
        places: Where profiler trace and event files go.
        checkpoints: Folder for the model after each epoch, written by rank 0; None: none.
        learning_rate: Of Adam.
        most_steps: Steps of an epoch are cut to that many; None: all.
    """

    places: Places = field(default_factory=Places)
    checkpoints: Path | None = None
    learning_rate: float = 1e-3
    most_steps: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What training gave on one rank.

    Attributes:
        losses: Loss of this rank, one entry a step over all epochs.
        samples: Samples that this rank trained on.
        seconds: From the first step's begin to the last step's end.
        stats: What the loader did.
    """

    losses: tuple[float, ...]
    samples: int
    seconds: float
    stats: Stats


def train(samples: SampleSet, loader: Loader, settings: Settings, plan: Plan) -> Outcome:
    """Trains the workload's model on a loader's batches, `settings.epochs` times.

    The model starts from `settings.seed`, the same on every rank. A batch with `weight` has its
    loss scaled by it, so that ranks with unequal shares average to the global mean gradient.

    Raises:
        LoadersError: Ranks have different numbers of steps, or one is gone: training would hang.
    """
    with name_lost_ranks(settings.world), process_group(settings.world) as device:
        # A rank with one step more would wait for gradients that nobody sends.
        if not is_same_on_all_ranks(len(loader)):
            raise LoadersError(
                f"expected the same number of steps on every rank, found {len(loader)} on rank "
                f"{settings.world.rank} and another elsewhere: pad or cut the epoch"
            )
        return _Training(samples, settings, plan, device).run(loader)


class _Training:
    """Model, optimiser and what has been seen so far."""

    def __init__(
        self, samples: SampleSet, settings: Settings, plan: Plan, device: torch.device
    ) -> None:
        # One seed: every rank begins with the same parameters.
        torch.manual_seed(settings.seed)
        self._workload: Workload = find_workload(samples.workload)
        self._model: nn.Module = self._workload.model(samples).to(device)
        if settings.world.ranks > 1:
            self._model = DistributedDataParallel(self._model)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=plan.learning_rate)
        self._settings, self._plan, self._device = settings, plan, device
        self._losses, self._samples = list[float](), 0

    def run(self, loader: Loader) -> Outcome:
        """All epochs."""
        begin = time.perf_counter()
        steps = self._settings.epochs * self._steps(loader)
        with open_recorder(self._plan.places, self._settings.world, steps=steps) as record:
            for epoch in range(self._settings.epochs):
                loader.set_epoch(epoch)
                self._epoch(loader, record)
                # A checkpoint, by rank 0, where there is a folder for them.
                folder = self._plan.checkpoints
                if folder is not None and not self._settings.world.rank:
                    folder.mkdir(parents=True, exist_ok=True)
                    with written_whole(folder / f"checkpoint-{epoch}.pt") as part:
                        torch.save(self._model.state_dict(), part)
        seconds = time.perf_counter() - begin
        return Outcome(tuple(self._losses), self._samples, seconds, loader.stats())

    def _steps(self, loader: Loader) -> int:
        return min(len(loader), self._plan.most_steps or len(loader))

    def _epoch(self, loader: Loader, record: Recorder) -> None:
        left = self._steps(loader)
        for batch in loader:
            loss = self._step(batch)
            record.step(len(self._losses), loss)
            self._losses.append(loss)
            self._samples += len(batch["sample"])
            left -= 1
            if not left:  # not by asking for one batch more: that would read it
                break

    def _step(self, batch: Batch) -> float:
        batch = {name: value.to(self._device, non_blocking=True) for name, value in batch.items()}
        self._optimizer.zero_grad()
        loss = self._workload.loss(self._model, batch)
        # Ranks may have unequal shares of the global batch: the weight makes the averaged gradient
        # its mean.
        weighted = loss * batch[WEIGHT] if WEIGHT in batch else loss
        weighted.backward()
        self._optimizer.step()
        return float(loss.item())


class Recorder:
    """Told of every step."""

    def __init__(self, profiler: profile | None, writer: SummaryWriter | None) -> None:
        self._profiler, self._writer = profiler, writer

    def step(self, step: int, loss: float) -> None:
        """Ends a step: one scalar in the event file, one ProfilerStep in the trace."""
        if self._writer:
            self._writer.add_scalar("loss", loss, step)
        if self._profiler:
            self._profiler.step()


@contextmanager
def open_recorder(places: Places, world: World, *, steps: int) -> Iterator[Recorder]:
    """A recorder for a run of `steps` steps; its files are complete when the context ends.

    The first step warms the profiler up and is not in the trace.
    """
    with ExitStack() as stack:
        # Closed in reverse order: the profiler writes its trace while the event file is still open.
        writer = _open_writer(places.events, world) if places.events else None
        if writer:
            stack.callback(writer.close)
        profiler = _make_profiler(places.profile, steps) if places.profile else None
        if profiler:
            stack.enter_context(profiler)
        yield Recorder(profiler, writer)


def _open_writer(folder: Path, world: World) -> SummaryWriter:
    from torch.utils.tensorboard import SummaryWriter

    own = folder / f"rank{world.rank}" if world.ranks > 1 else folder
    return SummaryWriter(str(own))


def _make_profiler(folder: Path, steps: int) -> profile:
    from torch.profiler import supported_activities

    return profile(
        activities=[each for each in _ACTIVITIES if each in supported_activities()],
        schedule=schedule(wait=0, warmup=1, active=max(steps - 1, 1), repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(folder), use_gzip=True),
    )
