"""How far and how to read ahead."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from .budget import wanted_staging
from .plan_settings import PlanSettings

TOGETHER_NBYTES, MOST_TOGETHER = 12 << 20, 8
"""Batches that are made and handed over at once: to wake a thread for a batch of 3 MiB costs as
much processor time as a third of its copies (measured in a virtual machine)."""


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
        return wanted_staging(plan, self.look_ahead)
