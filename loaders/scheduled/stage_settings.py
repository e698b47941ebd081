"""How far and how to read ahead, the memory for it, and counters of what was read.

One budget of memory is divided into buffer and staging. Each place of staging is one that the
buffer lacks, and costs a read per epoch. What finds no place is read straight into its batch, so
staging is only worth what looking further ahead than the next two steps hides: it gets what the
look-ahead can use, at most one in `STAGED_SHARE` of what is read anyway, and nothing where that
would not hold what a step reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..data.pread import ReadTotals
from ..errors import UsageError
from ..loader.stats import Counts
from .plan import PlanSettings

TOGETHER_NBYTES, MOST_TOGETHER = 12 << 20, 8
"""Batches that are made and handed over at once: to wake a thread for a batch of 3 MiB costs as
much processor time as a third of its copies (measured in a virtual machine)."""
EXTRA_SHARE = 5
"""One in so many places of staging is for rows that a gap brought early."""
STAGED_SHARE = 20
"""Staging adds at most one read to so many that an epoch has anyway."""


@dataclass(frozen=True)
class StageSettings:
    """How far and how to read ahead.

    Attributes:
        look_ahead: Steps whose reads are merged into one window; while one is used the next is
            read. 0: a step is read when it is asked for.
        gap: Rows read through rather than asking again; None: by the measured speed.
        threads: Reads under way at once.
        staging_nbytes: Most bytes of samples that wait outside buffer and batches; None: as many
            as two windows can use.
        pin_memory: Batches in page-locked memory, where there is a CUDA device.
    """

    look_ahead: int = 8
    gap: int | None = None
    threads: int = 8
    staging_nbytes: int | None = None
    pin_memory: bool = False

    def __post_init__(self) -> None:
        if self.look_ahead < 0 or self.threads < 1 or (self.gap or 0) < 0:
            raise UsageError(
                f"expected look-ahead and gap of at least 0 and a thread or more, found "
                f"{self.look_ahead}, {self.gap}, {self.threads}: correct the options"
            )

    def together(self, batch_nbytes: int) -> int:
        """Batches that are made and handed over at once."""
        fit = TOGETHER_NBYTES // max(batch_nbytes, 1)
        return max(1, min(fit, MOST_TOGETHER)) if self.look_ahead else 1

    def staging(self, plan: PlanSettings, sample_nbytes: int) -> int:
        """Samples of a rank that may wait outside buffer and batches."""
        if self.staging_nbytes is not None:
            return self.staging_nbytes // max(sample_nbytes, 1)
        return size_staging(plan, self.look_ahead)


def size_staging(settings: PlanSettings, look_ahead: int) -> int:
    """Places of a rank's staging that hold two windows of the samples that no buffer has."""
    of_step = _count_reads_of_step(settings)
    if not of_step:
        return settings.padding
    two_windows = 2 * max(look_ahead, 1) * (of_step + 1)
    return two_windows * EXTRA_SHARE // (EXTRA_SHARE - 1) + settings.padding


def divide_budget(settings: PlanSettings, places: int, look_ahead: int) -> tuple[PlanSettings, int]:
    """The plan's settings with a buffer, and each rank's staging, in so many places of all ranks.

    With N samples and M places an epoch after the first reads at most (1 + 1 / `STAGED_SHARE`) *
    (N - M) samples, where no policy reads fewer than N - M.
    """
    ranks, free = settings.ranks, max(settings.samples - places, 0)
    full = replace(settings, buffer=min(places, settings.samples))
    wanted = size_staging(full, look_ahead)
    staged = min(wanted, free // (STAGED_SHARE * ranks), places // ranks)
    if staged < _count_reads_of_step(full):
        return full, 0
    return replace(settings, buffer=min(places - staged * ranks, settings.samples)), staged


def _count_reads_of_step(settings: PlanSettings) -> int:
    """Samples that a rank reads, or is sent, in a step on average, rounded up."""
    at_hand = settings.buffer // settings.nodes if settings.exchange else settings.buffer
    free = max(settings.samples - at_hand, 0)
    return -(-settings.batch * free // settings.samples)


@dataclass(frozen=True)
class StageCounts:
    """Counters of a stage, shared with the process that shows them.

    Attributes:
        of_plan: Loads, hits, bytes and requests.
        beside_plan: Its loads are the reloads: reads of samples that the plan holds already.
    """

    of_plan: Counts
    beside_plan: Counts

    def planned(self, *, loads: int, reloads: int) -> None:
        """Counts samples whose reads were submitted."""
        self.of_plan.add(loads=loads)
        if reloads:
            self.beside_plan.add(loads=reloads)

    def hits(self, hits: int) -> None:
        """Counts uses that needed no read."""
        self.of_plan.add(hits=hits)

    def read(self, done: ReadTotals) -> None:
        """Counts a read that is done."""
        if done.requests:
            self.of_plan.add(nbytes=done.nbytes, requests=done.requests)
