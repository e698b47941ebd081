"""What a training run leaves behind: a PyTorch profiler trace and TensorBoard event files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from ..ranks.world import World

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
def recorder(places: Places, world: World, *, steps: int) -> Iterator[Recorder]:
    """A recorder for a run of `steps` steps; its files are complete when the context ends.

    The first step warms the profiler up and is not in the trace.
    """
    with ExitStack() as stack:
        writer = _writer(places.events, world) if places.events else None
        if writer:
            stack.callback(writer.close)
        profiler = _profiler(places.profile, steps) if places.profile else None
        if profiler:
            stack.enter_context(profiler)
        yield Recorder(profiler, writer)


def _writer(folder: Path, world: World) -> SummaryWriter:
    from torch.utils.tensorboard import SummaryWriter

    own = folder / f"rank{world.rank}" if world.ranks > 1 else folder
    return SummaryWriter(str(own))


def _profiler(folder: Path, steps: int) -> profile:
    from torch.profiler import supported_activities

    return profile(
        activities=[each for each in _ACTIVITIES if each in supported_activities()],
        schedule=schedule(wait=0, warmup=1, active=max(steps - 1, 1), repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(folder), use_gzip=True),
    )
