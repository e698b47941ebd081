"""The ready loader: a plan, followed by a thread that reads ahead.

A batch carries `weight` = n_r * R / B: a loss scaled by it makes gradients that DDP averages
over ranks equal to the mean over the global batch, though ranks have batches of unequal size.
BatchNorm normalises with the statistics of a rank's own batch, whose samples and size are not
the baseline's: use SyncBatchNorm, or a normalisation that does not look at the batch, where
that matters. Dropout draws other masks, and sums are rounded in another order.

A resumed run starts with empty buffers: what the plan holds already is read again when it is
first used, and counted as `reloads`, apart from the loads of the plan.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..data.coalesce import StorageSpeed
from ..data.samples import SampleSet
from ..errors import UsageError
from ..loader.epochs import EpochLoader, Stream
from ..loader.loader import Batch, Counts, Loader, Settings, Stats
from ..loader.prefetch import BackgroundGroups
from ..loader.registry import declare_scheduled
from ..loader.stalls import ATTEMPTS, Retried
from ..ranks.messages import Alone, Transport, is_begun, launched_transport
from ..ranks.world import World
from .buffer import NodeMemory, NodeSize, StageCounts, require_memory
from .exchange import ExchangeLimits, NodeAccess, Sent, Served, connect_nodes, decide_exchange
from .node import count_node_ranks, share_memory, share_plan
from .plan import Plan, PlanSettings, load_plan, make_plan
from .stage import Stage, StageSettings, divide_budget

NAME = "scheduled"
HELP = "buffers and loads planned for all epochs (SurrogateTrain / SOLAR)"
add_arguments = declare_scheduled
MEMORY_NBYTES = 1 << 30
"""Of each rank's buffer and staging, where no option says."""
NODE_BUFFERS = ("auto", "no")
"""auto: where ranks are connected when the loader is opened, and nodes have equally many."""
READY = 1
"""Groups of batches that wait for the training process or are in the making."""


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader that the options describe. Every rank has to call it.

    Raises:
        UsageError: The options make no sense, or the plan is of another data set or run.
        InputError: The plan cannot be read.
    """
    stage = StageSettings(
        look_ahead=options.look_ahead,
        gap=options.gap,
        threads=options.read_threads,
        staging_nbytes=options.staging_bytes,
        pin_memory=settings.pin_memory,
    )
    chosen, stage = fit_within_memory(samples, settings, options, stage)
    # Ranks agree on who shares memory and whether nodes exchange: the plan depends on both.
    with _connect_ranks(settings.world, options) as transport:
        node_ranks = count_node_ranks(transport)
        saved = load_plan(Path(options.plan)).settings if options.plan else None
        sends, measured = decide_exchange(
            options.node_exchange, transport, samples, node_ranks, saved
        )
        chosen = replace(chosen, node_ranks=node_ranks, exchange=sends)
        make = partial(_find_plan, chosen, options.plan)
        # Each rank for itself: it makes the plan, and nothing is shared.
        if node_ranks == 1 and not sends:
            return ScheduledLoader(samples, settings, make(), stage)
        # Else one rank of a node makes the plan for all of it, in memory that they share.
        planned, node = share_plan(transport, node_ranks, make), None
        if planned.plan.settings.node_ranks == node_ranks:
            check_plan(planned.plan, samples, settings)
            # Its buffer and staging, in memory that the ranks of the node share.
            size = NodeSize.of(
                planned.plan.settings, stage.staging(planned.plan.settings, samples.sample_nbytes)
            )
            require_memory(size.nbytes(samples))
            shared = share_memory(transport, size.ranks, size.nbytes(samples))
            memory, exchange = NodeMemory(samples, size, shared, planned), None
            if planned.plan.settings.exchange:
                limits = ExchangeLimits(stage.threads, options.node_timeout_s)
                exchange = connect_nodes(transport, samples, planned.plan, memory, limits, measured)
            node = NodeAccess(memory, exchange)
    return ScheduledLoader(samples, settings, planned.plan, stage, node)


def _find_plan(settings: PlanSettings, saved: str | None) -> Plan:
    return load_plan(Path(saved)) if saved else make_plan(settings)


@contextmanager
def _connect_ranks(world: World, options: argparse.Namespace) -> Iterator[Transport]:
    """Messages between ranks, where they are connected and may share a buffer."""
    connected = world.source == "mpi" or is_begun(world)
    share = options.node_buffer == "auto" and connected and world.ranks > 1
    # Ranks that share nothing need no messages.
    transport = launched_transport(world) if share else Alone(world)
    try:
        yield transport
    finally:
        transport.close()


def fit_within_memory(
    samples: SampleSet, settings: Settings, options: argparse.Namespace, stage: StageSettings
) -> tuple[PlanSettings, StageSettings]:
    """Buffer and staging for these options: one budget, unless a size of the buffer is given.

    Raises:
        UsageError: A size of the buffer is given beside the budget.
    """
    plan, nbytes = plan_settings(samples, settings, options), max(samples.sample_nbytes, 1)
    sized = options.plan or options.buffer is not None or options.buffer_fraction is not None
    if sized and settings.memory_nbytes is not None:
        raise UsageError(
            "expected --memory or the size of the buffer, found both: do not set --memory beside "
            "--buffer, --buffer-fraction or --plan"
        )
    # The user has sized the buffer; staging is beside it.
    if sized:
        return plan, stage
    budget = MEMORY_NBYTES if settings.memory_nbytes is None else settings.memory_nbytes
    ranks = settings.world.ranks
    # The user has sized the staging; the buffer gets what is left of the budget.
    if stage.staging_nbytes is not None:
        places = max(budget - stage.staging_nbytes, 0) // nbytes * ranks
        return replace(plan, buffer=min(places, plan.samples)), stage
    # Neither: whatever reads least.
    plan, staged = divide_budget(plan, budget // nbytes * ranks, stage.look_ahead)
    return plan, replace(stage, staging_nbytes=staged * nbytes)


def plan_settings(
    samples: SampleSet, settings: Settings, options: argparse.Namespace
) -> PlanSettings:
    """The settings of a plan for these options, its buffer 0 where they give no size of it."""
    # Samples of all buffers together.
    if options.buffer is not None:
        buffer = int(options.buffer)
    else:
        fraction = options.buffer_fraction or 0.0
        if not 0 <= fraction < math.inf:
            raise UsageError(f"expected a buffer fraction of 0 to 1, found {fraction}: correct it")
        buffer = round(fraction * len(samples))
    return PlanSettings(
        samples=len(samples),
        ranks=settings.world.ranks,
        batch=settings.batch,
        epochs=settings.epochs,
        buffer=buffer,
        seed=settings.seed,
        drop_last=settings.drop_last,
        shuffled=settings.shuffle,
        balance=options.balance,
        epoch_order=options.epoch_order,
        load_s=options.load_s,
        compute_s=options.compute_s,
    )


@dataclass(frozen=True)
class ScheduledStats(Stats):
    """`Stats` of a planned loader. `loads` are those of the plan.

    Attributes:
        reloads: Reads beside the plan: of samples that it holds already, after a resume or
            where epochs are visited out of order.
        buffer_peak: Most samples that the buffer held: the node's, where its ranks share one.
        buffer_capacity: Samples that it may hold.
        node_ranks: Ranks that share the buffer.
        staging_peak: Most samples that waited outside the buffer.
        staging_capacity: Samples that may.
        remote_hits: Samples that came from the buffer of another node: no read.
        remote_reads: Samples that another node read from storage and sent: among its loads.
        remote_nbytes: Of both.
        exchange: True where nodes send each other samples.
    """

    reloads: int = 0
    buffer_peak: int = 0
    buffer_capacity: int = 0
    node_ranks: int = 1
    staging_peak: int = 0
    staging_capacity: int = 0
    remote_hits: int = 0
    remote_reads: int = 0
    remote_nbytes: int = 0
    exchange: bool = False


class ScheduledLoader(EpochLoader):
    """Batches of one rank as the plan has them, read ahead by a thread.

    Args:
        samples: What to load.
        settings: As for every loader; `workers` is not used, a thread reads ahead.
        plan: Made for these samples and settings.
        stage: How to read ahead.
        node: Memory that the ranks of this node share and connections to other nodes, where the
            plan has them share a buffer or exchange.

    Raises:
        UsageError: The plan is of another data set or run.
    """

    advances = True  # what is loaded when is planned for one epoch after another

    def __init__(
        self,
        samples: SampleSet,
        settings: Settings,
        plan: Plan,
        stage: StageSettings,
        node: NodeAccess | None = None,
    ) -> None:
        check_plan(plan, samples, settings)
        counts = StageCounts(Counts(), Counts())
        steps, own = settings.steps(samples), identity(plan, samples, settings)
        super().__init__(settings, counts.of_plan, steps, own)
        self.plan, self._beside_plan = plan, counts.beside_plan
        self._stage_settings, self._exchange = stage, node.exchange if node else None
        rank = settings.world.rank
        self._new_stage = partial(Stage, samples, plan, rank, stage, counts, node)
        self._stage = self._new_stage()
        self._reading: BackgroundGroups[Batch] | None = None
        # Memory that other ranks use too is not left behind: a late answer would change it.
        self._attempts = ATTEMPTS if node is None else 1

    def _batches(self, epoch: int, start: int) -> Stream:
        if not self._stage_settings.look_ahead:
            return self._stage.batches(epoch, start)
        return Retried(lambda given: self._begin_reading(epoch, start + given), self._attempts)

    def _begin_reading(self, epoch: int, start: int) -> BackgroundGroups[Batch]:
        """The batches from a step on. A stage that hangs is left behind, with all that it has."""
        if self._hangs():
            self._stage = self._new_stage()
        groups = self._stage.groups(epoch, start)
        self._reading = BackgroundGroups(groups, READY, self._settings.read_timeout_s)
        return self._reading

    def _hangs(self) -> bool:
        return self._reading is not None and self._reading.stalled

    @property
    def speed(self) -> StorageSpeed | None:
        """What was measured before the first read; None where a gap was given."""
        return self._stage.speed

    def stats(self) -> ScheduledStats:
        """What was read, served and waited for."""
        done, reloads = asdict(super().stats()), self._beside_plan.stats([]).loads
        sent, served = Sent(), Served()
        if self._exchange is not None:
            sent, served = self._exchange.sent, self._exchange.served()
        # What this rank read for other nodes was read by it, too.
        for name in ("loads", "nbytes", "requests"):
            done[name] += getattr(served, name)
        buffer, staging = self._stage.buffer, self._stage.staging
        return ScheduledStats(
            **done,
            reloads=reloads + sent.alone + served.reloads,
            buffer_peak=buffer.peak,
            buffer_capacity=buffer.capacity,
            node_ranks=self.plan.settings.node_ranks,
            staging_peak=staging.peak,
            staging_capacity=staging.capacity,
            remote_hits=sent.hits,
            remote_reads=sent.reads,
            remote_nbytes=sent.nbytes,
            exchange=self._exchange is not None,
        )

    def close(self) -> None:
        """Ends the thread, closes files. Iterating opens them no more."""
        super().close()
        if self._exchange is not None:
            self._exchange.close()
        if not self._hangs():
            self._stage.close()


def identity(plan: Plan, samples: SampleSet, settings: Settings) -> dict[str, Any]:
    """What decides the stream of ids of a rank."""
    return settings.identity(samples) | asdict(plan.settings)


def check_plan(plan: Plan, samples: SampleSet, settings: Settings) -> None:
    """Validates a plan against these samples and settings.

    Raises:
        UsageError: It is of another data set or run.
    """
    planned = plan.settings
    names = ("samples", "ranks", "batch", "epochs", "seed", "drop_last", "shuffled")
    wanted = (
        len(samples),
        settings.world.ranks,
        settings.batch,
        settings.epochs,
        settings.seed,
        settings.drop_last,
        settings.shuffle,
    )
    for name, value in zip(names, wanted, strict=True):
        if getattr(planned, name) != value:
            raise UsageError(
                f"expected a plan with {name} {value}, found {getattr(planned, name)}: plan again"
            )
