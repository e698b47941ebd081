"""What a module of this folder offers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..data.readers import Arrays
from ..data.samples import SampleSet

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..loader.loader import Batch


class Workload(Protocol):
    """Samples to make, and what to train on them."""

    NAME: str
    HELP: str
    SIZE: int
    """Pixels or voxels a side unless told otherwise: the paper's."""

    def describe(self, folder: Path, *, samples: int, seed: int, size: int) -> SampleSet:
        """The set of samples that `make` writes: fields and layout.

        Raises:
            UsageError: No samples of that size can be made.
        """

    def sample(self, samples: SampleSet, sample: int) -> Arrays:
        """The arrays of one sample: a function of (seed, size, id) alone."""

    def model(self, samples: SampleSet) -> nn.Module:
        """A small model of the workload's kind."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean loss over the samples of a batch, a scalar."""
