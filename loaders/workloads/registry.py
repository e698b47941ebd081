"""The workloads: a module each with NAME, HELP, SIZE, describe, sample, model and loss.

Imported when asked for: making data needs no PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from ..errors import require_choice

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from ..data.readers import Arrays
    from ..data.samples import SampleSet
    from ..loader.loader import Batch


WORKLOADS: dict[str, str] = {
    "ptycho": "vanidl_loaders.workloads.ptycho",
    "cosmoflow": "vanidl_loaders.workloads.cosmoflow",
    "deepcam": "vanidl_loaders.workloads.deepcam",
    "images": "vanidl_loaders.workloads.images",
}
"""Name of each workload -> its module."""


def find_workload(name: str) -> Workload:
    """The module of a workload.

    Raises:
        UsageError: No workload of that name.
    """
    require_choice("a workload", name, WORKLOADS)
    return cast("Workload", import_module(WORKLOADS[name]))


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
