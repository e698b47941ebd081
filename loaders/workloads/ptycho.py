"""Ptychography: diffraction patterns, and the object's amplitude and phase (PtychoNN's data).

Statistics of the paper (SurrogateTrain poster: 262,896 images, that is 87,632 samples of three
images; sizes from the code released for SOLAR), measured in
tests/loaders/workloads/test_workloads.py:

- three float32 arrays of 128 x 128 a sample, 196,608 bytes; `SAMPLES` of them are 17.2 GB;
- all samples in one HDF5 file, one contiguous dataset an array.

Not from a paper, but as physics makes them: the diffraction pattern is the square root of
Poisson photon counts of |FFT(probe x object)|^2, so it is bright in the centre and mostly near
zero elsewhere; amplitude lies in [0, 1], phase in [-pi, pi], both smooth.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data.readers import Arrays
from ..data.samples import Field, SampleSet
from .making import make_smooth_noise

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..loader.loader import Batch

NAME = "ptycho"
HELP = "three 128 x 128 float32 arrays a sample in one HDF5 file"
SIZE = 128
SAMPLES = 87_632
"""Samples in the paper's set."""

FEATURE = 12.0
"""Size of the object's smooth features, pixels."""
PHOTONS = 1e5
"""Mean photons a pattern at size 128."""


def describe(folder: Path, *, samples: int, seed: int, size: int) -> SampleSet:
    """Rows of three datasets of one file."""
    names = ("diffraction", "amplitude", "phase")
    fields = tuple(Field(name, (size, size), "<f4") for name in names)
    return SampleSet(folder, NAME, samples, fields, "rows", seed, size)


def sample(samples: SampleSet, sample: int) -> Arrays:
    """One scan position: an object patch and the pattern that it diffracts."""
    random = np.random.default_rng((samples.seed, sample))
    size = samples.size
    # An object whose amplitude lies in (0, 1) and whose phase in (-pi, pi), both smooth.
    amplitude = 1 / (1 + np.exp(-1.5 * make_smooth_noise(random, (size, size), FEATURE)))
    phase = np.pi * np.tanh(make_smooth_noise(random, (size, size), FEATURE))
    # Far-field diffraction: the intensity of the exit wave's Fourier transform, counted in photons.
    wave = _make_probe(size) * amplitude * np.exp(1j * phase)
    intensity = np.abs(np.fft.fftshift(np.fft.fft2(wave))) ** 2
    counts = random.poisson(intensity * (PHOTONS / intensity.sum()))
    arrays: dict[str, NDArray[Any]] = {
        "diffraction": np.sqrt(counts),
        "amplitude": amplitude,
        "phase": phase,
    }
    return {name: array.astype("<f4") for name, array in arrays.items()}


def model(samples: SampleSet) -> nn.Module:
    """An encoder with two decoders, PtychoNN's shape in small: (n, 1, s, s) -> (n, 2, s, s)."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(16, 8, 3, padding=1),
        nn.ReLU(),
        nn.Upsample(size=(samples.size, samples.size)),
        nn.Conv2d(8, 2, 3, padding=1),
    )


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean absolute error of amplitude and phase."""
    import torch

    predicted = model(batch["diffraction"][:, None])
    wanted = torch.stack((batch["amplitude"], batch["phase"]), 1)
    return torch.nn.functional.l1_loss(predicted, wanted)


def _make_probe(size: int) -> NDArray[np.float64]:
    """A Gaussian beam a quarter of the field wide."""
    axis = np.arange(size) - (size - 1) / 2
    row = np.exp(-((axis / (size / 4)) ** 2) / 2)
    return np.outer(row, row)
