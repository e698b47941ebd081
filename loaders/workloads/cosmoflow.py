"""CosmoFlow: particle counts of a universe at four redshifts.

Statistics of the papers (Ibrahim & Oliker, section V.B and figure 5; the spatial-parallel
poster), measured in tests/loaders/workloads/test_workloads.py:

- int16 counts, 4 redshifts x size^3 voxels, one HDF5 file per sample: size 128 is the MLPerf
  sample (16.8 MB), size 512 the poster's (1.07 GB);
- a few hundred unique values a 128^3 sample (the paper shows one with 558), whose frequencies
  follow a power law;
- the four counts of a voxel are coupled: tens of thousands of unique groups of four (36,944 in
  that sample), so that 16 bits number them; a 512^3 sample has more than 65,536.

Besides, one particle a voxel in the mean, as in a simulation with as many particles as voxels.
Not matched: the real clustering (this is a lognormal field): zlib makes a 128^3 sample about 7
times smaller, the real ones about 5 times (V.B); and the boundaries of the 128^3
blocks of a larger sample, which are made one by one: no structure goes across.
"""

from __future__ import annotations

from itertools import product
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

NAME = "cosmoflow"
HELP = "int16 particle counts, 4 redshifts x 128^3 (--size 512: 4 x 512^3), a file per sample"
SIZE = 128  # the benchmark's decomposition of 512^3 (the paper, IV)
BLOCK = 128  # is made at a time, whatever the size

GROWTH = (0.55, 0.70, 0.85, 1.0)
"""Amplitude of the density's logarithm at the four redshifts, latest last."""
SCALES = (1.0, 2.0, 4.0)
"""Correlation lengths that are mixed, voxels."""
SIGMA = 2.35
"""Standard deviation of the density's logarithm today: sets the power law and the maximum."""
NOISE = 0.19
"""Part of the density that is not shared between redshifts: sets the number of groups."""
PARAMETERS = 4  # cosmological ones: the labels


def describe(folder: Path, *, samples: int, seed: int, size: int) -> SampleSet:
    """One file per sample: `counts` and the cosmological `parameters`.

    Raises:
        UsageError: A size above 128 that is no multiple of it.
    """
    if size > BLOCK and size % BLOCK:
        raise UsageError(f"expected a size up to {BLOCK} or a multiple of it, found {size}")
    counts = Field("counts", (len(GROWTH), size, size, size), "<i2")
    fields = (counts, Field("parameters", (PARAMETERS,), "<f4"))
    return SampleSet(folder, NAME, samples, fields, "files", seed, size)


def sample(samples: SampleSet, sample: int) -> Arrays:
    """One universe, block by block."""
    size = samples.size
    parameters = np.random.default_rng((samples.seed, sample)).uniform(-1, 1, PARAMETERS)
    counts = np.empty((len(GROWTH), size, size, size), "<i2")
    side = min(size, BLOCK)
    # Block by block, each with random numbers of its own: memory stays small at any size.
    for number, corner in enumerate(product(range(0, size, side), repeat=3)):
        random = np.random.default_rng((samples.seed, sample, number))
        window = tuple(slice(start, start + side) for start in corner)
        # The first parameter widens the distribution a little, so that there is something to learn.
        counts[(slice(None), *window)] = _draw_block(
            random, side, SIGMA * (1 + 0.05 * parameters[0])
        )
    return {"counts": counts, "parameters": parameters.astype("<f4")}


def _draw_block(random: np.random.Generator, side: int, sigma: float) -> NDArray[np.int16]:
    """Counts (4, side, side, side): densities with a shared shape, rounded with one dice."""
    shape = (side,) * 3
    # One shape for all redshifts, which grows: counts of a voxel hang together (the paper, V.B).
    shared = sum((make_smooth_noise(random, shape, scale) for scale in SCALES), np.zeros(shape))
    shared /= shared.std() or 1.0
    rounding = random.random(shape)
    counts = np.empty((len(GROWTH), *shape), np.int16)
    for each, growth in zip(counts, GROWTH, strict=True):
        own = random.standard_normal(shape)
        density = np.exp(sigma * growth * (np.sqrt(1 - NOISE**2) * shared + NOISE * own))
        expected = density / density.mean() + rounding
        each[...] = np.minimum(np.floor(expected), np.iinfo(np.int16).max)
    return counts


def model(_samples: SampleSet) -> nn.Module:
    """Two 3-D convolutions and a linear layer: (n, 4, s, s, s) -> (n, 4)."""
    from torch import nn

    return nn.Sequential(
        nn.AvgPool3d(2),
        nn.Conv3d(len(GROWTH), 4, 3, stride=2, padding=1),
        nn.LeakyReLU(),
        nn.Conv3d(4, 8, 3, stride=2, padding=1),
        nn.LeakyReLU(),
        nn.AdaptiveAvgPool3d(2),
        nn.Flatten(),
        nn.Linear(64, PARAMETERS),
    )


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean square error of the parameters; the counts enter as log(1 + x), as decoders give it."""
    import torch

    counts = batch["counts"]
    decoded = counts.is_floating_point()
    predicted = model(counts.float() if decoded else torch.log1p(counts.float()))
    return torch.nn.functional.mse_loss(predicted, batch["parameters"])
