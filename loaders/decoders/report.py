"""How far a decoded array is from what was encoded, channel by channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .coding import Buffer, decode_batch, open_sample
from .container import Encoded
from .deepcam import DeepCam

FLOOR = 1 / 512
"""Of the channel's largest magnitude: below it, errors are measured against the floor."""


@dataclass(frozen=True)
class ChannelErrors:
    """Errors of one channel, over its finite values.

    Attributes:
        channel: Its number.
        over_tenth: Share of values with |decoded - x| > 0.1 |x|: the paper's figure. A value of
            exactly 0 that comes back as another counts.
        over_tenth_floored: The same with |x| no smaller than 1/512 of the channel's largest.
        largest: Largest |decoded - x|.
        largest_of_range: The same over the channel's range (max - min); 0 where it is constant.
        rms_of_range: Root of the mean square of decoded - x, over the range.
    """

    channel: int
    over_tenth: float
    over_tenth_floored: float
    largest: float
    largest_of_range: float
    rms_of_range: float


def sample_errors(
    buffer: Buffer, original: Mapping[str, NDArray[Any]]
) -> dict[str, tuple[ChannelErrors, ...]]:
    """Errors of the arrays that were encoded with loss, a tuple over channels each.

    Raises:
        InputError: The container is damaged.
        UsageError: An array of the container is not in `original`, or has another shape there.
    """
    arrays = open_sample(buffer)
    decoded = decode_batch([arrays], device="cpu")
    return {
        name: errors(_wanted(name, encoded, original), decoded[name][0].numpy())
        for name, encoded in arrays.items()
        if encoded.codec == DeepCam.NAME
    }


def errors(wanted: NDArray[Any], decoded: NDArray[Any]) -> tuple[ChannelErrors, ...]:
    """Errors a channel; both arrays have channels first and the same shape."""
    return tuple(
        _channel(number, x.astype(np.float64), found.astype(np.float64))
        for number, (x, found) in enumerate(zip(wanted, decoded, strict=True))
    )


def _channel(number: int, x: NDArray[np.float64], found: NDArray[np.float64]) -> ChannelErrors:
    kept = np.isfinite(x) & np.isfinite(found)
    x, found = x[kept], found[kept]
    if not x.size:
        return ChannelErrors(number, 0.0, 0.0, 0.0, 0.0, 0.0)
    missed, size = np.abs(found - x), np.abs(x)
    extent = float(x.max() - x.min()) or np.inf
    return ChannelErrors(
        channel=number,
        over_tenth=float((missed > 0.1 * size).mean()),
        over_tenth_floored=float((missed > 0.1 * np.maximum(size, FLOOR * size.max())).mean()),
        largest=float(missed.max()),
        largest_of_range=float(missed.max() / extent),
        rms_of_range=float(np.sqrt((missed**2).mean()) / extent),
    )


def _wanted(
    name: str, encoded: Encoded, original: Mapping[str, NDArray[Any]]
) -> NDArray[np.float32]:
    """The original array as the codec saw it: channels first, normalised."""
    if name not in original or original[name].shape != encoded.source.shape:
        found = original[name].shape if name in original else "none"
        raise UsageError(f"expected {name} of shape {encoded.source.shape}, found {found}")
    axis = encoded.parameters["channels"]
    codec = DeepCam(
        channels=axis,
        shift=tuple(encoded.parameters["shift"]),
        scale=tuple(encoded.parameters["scale"]),
    )
    planes = np.moveaxis(original[name], -1, 0) if axis == "last" else original[name]
    return codec.normalise(planes).reshape(encoded.decoded.shape)
