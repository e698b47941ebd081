"""DeepCAM: climate images, smooth but for extreme events.

Statistics of the paper (Ibrahim & Oliker, sections IV and V.A), measured in
tests/loaders/workloads/test_workloads.py:

- 16 channels of 768 x 1152 float32 per sample (56.6 MB), one HDF5 file per sample;
- values change least along x, the direction of 1152 points;
- large smooth areas, with abrupt changes where events are: few lines hold one, and there a step
  is tens of times the usual one;
- some lines are constant (fields such as rain that are zero over large areas).

Not matched: the physics. The paper gives no figure for the share of lines with events; here it
is what `EVENTS` cyclones make of it. Labels mark the events, as the original's mask does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..data.readers import Arrays
from ..data.samples import Field, SampleSet
from ..errors import UsageError
from .making import make_smooth_noise

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..loader.loader import Batch

NAME = "deepcam"
HELP = "16 x 768 x 1152 float32 climate images with event masks, a file per sample"
SIZE = 768  # along y; x is one and a half times as long: 768 x 1152
CHANNELS = 16  # temperatures, winds, pressures, humidity (the paper, V.A)
EVENTS = 3
"""Cyclones a sample."""
SCALES = (24.0, 96.0)
"""Correlation lengths along y and x at size 768, points."""
RADIUS = 20.0
"""Of a cyclone at size 768, points."""
STRENGTH = 6.0
"""Jump at a cyclone's edge, standard deviations of the channel."""
RAIN = (14, 15)
"""Channels that are zero wherever the field is below `DRY` standard deviations."""
DRY = 1.5


def describe(folder: Path, *, samples: int, seed: int, size: int) -> SampleSet:
    """One file per sample: `climate/data` (channels, y, x) and `climate/labels_0` (y, x).

    Raises:
        UsageError: A size (of y) that is odd or below 16; x is one and a half times as long.
    """
    if size < 16 or size % 2:
        raise UsageError(f"expected an even size of at least 16, found {size}: choose another")
    shape = (size, size * 3 // 2)
    data = Field("climate/data", (CHANNELS, *shape), "<f4")
    fields = (data, Field("climate/labels_0", shape, "|i1"))
    return SampleSet(folder, NAME, samples, fields, "files", seed, size)


def sample(samples: SampleSet, sample: int) -> Arrays:
    """One time step of a climate."""
    random = np.random.default_rng((samples.seed, sample))
    size = samples.size
    shape, unit = (size, size * 3 // 2), size / SIZE
    mask = _draw_events(random, shape, RADIUS * unit)
    data = np.empty((CHANNELS, *shape), "<f4")
    for channel in range(CHANNELS):
        # Smooth along x more than along y, with abrupt events (the paper, V.A).
        field = make_smooth_noise(random, shape, (SCALES[0] * unit, SCALES[1] * unit))
        if channel in RAIN:
            field = np.maximum(field - DRY, 0.0)
        jump = mask * STRENGTH * random.choice((-1.0, 1.0))
        # Channels differ by orders of magnitude, as pressures and humidities do.
        data[channel] = 10.0 ** random.uniform(-2, 3) * (field + jump)
    return {"climate/data": data, "climate/labels_0": mask.astype("|i1")}


def _draw_events(
    random: np.random.Generator, shape: tuple[int, int], radius: float
) -> NDArray[np.bool_]:
    """True inside one of the discs."""
    y, x = np.ogrid[: shape[0], : shape[1]]
    mask = np.zeros(shape, bool)
    for _ in range(EVENTS):
        centre = random.uniform((0, 0), shape)
        mask |= (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2
    return mask


def model(samples: SampleSet) -> nn.Module:
    """A small encoder and decoder: (n, 16, y, x) -> (n, 2, y, x)."""
    from torch import nn

    shape = samples.fields[1].shape
    return nn.Sequential(
        nn.BatchNorm2d(CHANNELS),
        nn.Conv2d(CHANNELS, 8, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 2, 3, padding=1),
        nn.Upsample(size=shape, mode="bilinear"),
    )


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross entropy of event against background, over all points."""
    import torch

    predicted = model(batch["climate/data"].float())
    return torch.nn.functional.cross_entropy(predicted, batch["climate/labels_0"].long())
