"""Smooth random fields: white noise through a Gaussian filter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def smooth_noise(
    random: np.random.Generator, shape: tuple[int, ...], scale: float | tuple[float, ...]
) -> NDArray[np.float64]:
    """A periodic Gaussian field of mean 0 and variance 1 (over its points).

    Args:
        random: Where the white noise comes from.
        shape: Of the field.
        scale: Correlation length in points, one for all axes or one each; 0 leaves an axis white.
    """
    scales = scale if isinstance(scale, tuple) else (scale,) * len(shape)
    spectrum = np.fft.rfftn(random.standard_normal(shape))
    for axis, (points, length) in enumerate(zip(shape, scales, strict=True)):
        last = axis == len(shape) - 1
        frequency = np.fft.rfftfreq(points) if last else np.fft.fftfreq(points)
        gain = np.exp(-2 * (np.pi * length * frequency) ** 2)
        spectrum *= gain.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    field: NDArray[np.float64] = np.fft.irfftn(spectrum, shape, axes=range(len(shape)))
    field -= field.mean()
    deviation = field.std()
    return field / deviation if deviation else field
