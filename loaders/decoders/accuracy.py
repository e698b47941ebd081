"""How far a decoded array is from what was encoded, channel by channel.

What was finite and is not any more counts as far off, and is counted on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .coding import Buffer, decode_batch, open_sample
from .container import Encoded
from .deepcam import DeepCam, normalize

FLOOR = 1 / 512
"""Of the channel's largest magnitude: below it, errors are measured against the floor."""


@dataclass(frozen=True)
class ChannelErrors:
    """Errors of one channel, over the values that were finite.

    Attributes:
        channel: Its number.
        nan: Decoded values that are no numbers.
        infinite: Decoded values that are infinite.
        lost: Values that were finite, and are decoded as one of these: they count in the shares
            below, and in none of the sizes.
        over_tenth: Share of values with |decoded - x| > 0.1 |x|: the paper's figure. A value of
            exactly 0 that comes back as another counts.
        over_tenth_floored: The same with |x| no smaller than 1/512 of the channel's largest.
        largest: Largest |decoded - x|.
        largest_of_range: The same over the channel's range (max - min); 0 where it is constant.
        rms_of_range: Root of the mean square of decoded - x, over the range.
    """

    channel: int
    nan: int
    infinite: int
    lost: int
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
        name: compute_errors(_select_arrays(name, encoded, original), decoded[name][0].numpy())
        for name, encoded in arrays.items()
        if encoded.codec == DeepCam.NAME
    }


@dataclass(frozen=True)
class ChannelValues:
    """What is known of one channel without the original.

    Attributes:
        channel: Its number.
        nan: Decoded values that are no numbers.
        infinite: Decoded values that are infinite.
        largest_error: No finite value is farther from what was encoded, as the encoder found;
            None: it did not say.
    """

    channel: int
    nan: int
    infinite: int
    largest_error: float | None


def gather_channel_values(encoded: Encoded) -> tuple[ChannelValues, ...]:
    """Of each channel of an array that was encoded with loss.

    Raises:
        InputError: The container is damaged.
    """
    decoded = decode_batch([{"array": encoded}], device="cpu")["array"][0].numpy()
    said = encoded.parameters.get("largest_errors", [None] * len(decoded))
    return tuple(
        ChannelValues(number, int(np.isnan(plane).sum()), int(np.isinf(plane).sum()), error)
        for number, (plane, error) in enumerate(zip(decoded, said, strict=True))
    )


def compute_errors(wanted: NDArray[Any], decoded: NDArray[Any]) -> tuple[ChannelErrors, ...]:
    """Errors a channel; both arrays have channels first and the same shape."""
    return tuple(
        _find_channel(number, x.astype(np.float64), found.astype(np.float64))
        for number, (x, found) in enumerate(zip(wanted, decoded, strict=True))
    )


def _find_channel(number: int, x: NDArray[np.float64], found: NDArray[np.float64]) -> ChannelErrors:
    nan, infinite = int(np.isnan(found).sum()), int(np.isinf(found).sum())
    was = np.isfinite(x)
    kept = was & np.isfinite(found)
    values, lost = int(was.sum()), int(was.sum() - kept.sum())
    share = lost / values if values else 0.0
    x, found = x[kept], found[kept]
    if not x.size:
        return ChannelErrors(number, nan, infinite, lost, share, share, 0.0, 0.0, 0.0)
    missed, size = np.abs(found - x), np.abs(x)
    extent = float(x.max() - x.min()) or np.inf
    floored = np.maximum(size, FLOOR * size.max())
    return ChannelErrors(
        channel=number,
        nan=nan,
        infinite=infinite,
        lost=lost,
        over_tenth=float((missed > 0.1 * size).sum() + lost) / values,
        over_tenth_floored=float((missed > 0.1 * floored).sum() + lost) / values,
        largest=float(missed.max()),
        largest_of_range=float(missed.max() / extent),
        rms_of_range=float(np.sqrt((missed**2).mean()) / extent),
    )


def _select_arrays(
    name: str, encoded: Encoded, original: Mapping[str, NDArray[Any]]
) -> NDArray[np.float32]:
    """What the decoded array should be: channels first, normalised where the user had that."""
    if name not in original or original[name].shape != encoded.source.shape:
        found = original[name].shape if name in original else "none"
        raise UsageError(f"expected {name} of shape {encoded.source.shape}, found {found}")
    told = encoded.parameters
    last = told["channels"] == "last"
    planes = np.moveaxis(original[name], -1, 0) if last else original[name]
    return normalize(planes, told["shift"], told["scale"]).reshape(encoded.decoded.shape)
