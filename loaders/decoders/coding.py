"""Encoding arrays to containers, decoding them on the CPU or a GPU, and what encoding lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, UsageError, require_choice
from .container import Encoded, Spec, describe_damage, pack, unpack
from .cosmoflow import REDSHIFTS_MOST, CosmoFlow
from .deepcam import DeepCam, normalize
from .lossless import Lossless

if TYPE_CHECKING:
    import torch

Buffer = bytes | bytearray | memoryview
ARRAY = "array"
"""Name of the array in a container of one."""


class Codec(Protocol):
    """One way to encode an array: a frozen record of its settings.

    Decoding needs no settings: the container holds them.
    """

    NAME: ClassVar[str]

    def encode(self, array: NDArray[Any]) -> Encoded:
        """The encoded array.

        Raises:
            UsageError: The codec is not for such an array.
        """

    @staticmethod
    def check(encoded: Encoded) -> None:
        """Nothing; raises InputError where the sections contradict the shape or each other."""

    @staticmethod
    def decode(encoded: Encoded, out: NDArray[Any], *, threads: int | None = None) -> None:
        """Fills `out`, C-contiguous, of the decoded shape and type."""


DEEPCAM_NAME, DEEPCAM_CHANNELS = "climate/data", 16
"""The array of DeepCAM's files that its codec is for, and how many channels it has."""

CODECS: dict[str, type[Codec]] = {
    CosmoFlow.NAME: CosmoFlow,
    DeepCam.NAME: DeepCam,
    Lossless.NAME: Lossless,
}
"""Name of each codec -> its class."""


def find_codec(name: str) -> type[Codec]:
    """The class of a codec.

    Raises:
        UsageError: No codec of that name.
    """
    require_choice("a codec", name, CODECS)
    return CODECS[name]


def codec_for(array: NDArray[Any], name: str = "") -> Codec:
    """The codec for an array that the user chose none for.

    CosmoFlow for integers of two bytes or more whose last axis holds four redshifts. DeepCam,
    which rounds, only for what DeepCAM's files hold under `DEEPCAM_NAME`: 16 channels, first or
    last, of a map. Lossless for all else, with its axes as they are.
    """
    kind = array.dtype
    # Counts of four redshifts a voxel (the paper, V.B).
    if kind.kind in "iu" and kind.itemsize > 1 and array.shape[-1:] == (REDSHIFTS_MOST,):
        return CosmoFlow()
    # Maps of 16 channels (the paper, V.A); by name, as what rounds must not be taken by chance.
    if name == DEEPCAM_NAME and kind.kind == "f" and kind.itemsize >= 4 and array.ndim == 3:
        for axis, place in (("last", -1), ("first", 0)):
            if array.shape[place] == DEEPCAM_CHANNELS:
                return DeepCam(channels=axis)
    return Lossless()


def encode(array: NDArray[Any], codec: Codec | None = None) -> bytes:
    """The container of one array; by `codec_for` where no codec is given.

    Raises:
        UsageError: The codec is not for such an array.
    """
    return encode_sample({ARRAY: array}, {ARRAY: codec} if codec else {})


def encode_sample(
    arrays: Mapping[str, NDArray[Any]], codecs: Mapping[str, Codec] | None = None
) -> bytes:
    """The container of the named arrays of a sample; an array without codec by `codec_for`.

    Raises:
        UsageError: A codec for an array that is not there, or not for such an array.
    """
    codecs = codecs or {}
    if strange := set(codecs) - set(arrays):
        raise UsageError(f"expected codecs for {', '.join(arrays)}, found one for {strange}")
    named = {name: np.asarray(array) for name, array in arrays.items()}
    return pack(
        {
            name: (codecs.get(name) or codec_for(array, name)).encode(array)
            for name, array in named.items()
        }
    )


def open_sample(buffer: Buffer) -> dict[str, Encoded]:
    """The arrays of a container, whole and consistent: ready to be decoded anywhere.

    Raises:
        InputError: Foreign, cut or damaged.
    """
    arrays = unpack(buffer)
    for encoded in arrays.values():
        require_known(encoded.codec)
        CODECS[encoded.codec].check(encoded)
    return arrays


def require_known(codec: str) -> None:
    """Nothing; raises InputError where a container names a codec that is not there."""
    if codec not in CODECS:
        raise describe_damage(f"a codec among {', '.join(CODECS)}", codec)


def decode(
    buffer: Buffer, out: torch.Tensor | None = None, *, device: str | torch.device | None = None
) -> torch.Tensor:
    """The array of a container of one, as a tensor (which speaks DLPack) on the device.

    Args:
        buffer: The container.
        out: Written to and returned; C-contiguous, of the decoded shape and type.
        device: None: that of `out`, else a CUDA device where there is one, else the CPU.

    Raises:
        InputError: Foreign, cut or damaged, or several arrays.
        UsageError: `out` is of another shape, type or device.
    """
    arrays = open_sample(buffer)
    if len(arrays) != 1:
        raise InputError(
            f"expected one array in the container, found {', '.join(arrays) or 'none'}: "
            "use decode_sample"
        )
    ((name, encoded),) = arrays.items()
    # As a batch of one, written straight to `out`.
    outs = None if out is None else {name: out[None]}
    if out is not None and tuple(out.shape) != encoded.decoded.shape:
        raise UsageError(f"expected out of shape {encoded.decoded.shape}, found {out.shape}")
    return decode_batch([{name: encoded}], outs, device=device)[name][0]


def decode_sample(
    buffer: Buffer, *, device: str | torch.device | None = None
) -> dict[str, torch.Tensor]:
    """All arrays of a container by name; see `decode`.

    Raises:
        InputError: Foreign, cut or damaged.
    """
    batch = decode_batch([open_sample(buffer)], device=device)
    return {name: tensor[0] for name, tensor in batch.items()}


def decode_batch(
    samples: Sequence[Mapping[str, Encoded]],
    out: Mapping[str, torch.Tensor] | None = None,
    *,
    device: str | torch.device | None = None,
    threads: int | None = None,
) -> dict[str, torch.Tensor]:
    """The arrays of opened samples, stacked by name: (samples, *decoded shape).

    On a GPU all samples are decoded in one launch an array; on the CPU by `threads` threads.

    Raises:
        InputError: Samples of different arrays or shapes, or damaged where `open_sample` cannot
            see it (keys behind the table).
        UsageError: No samples, or `out` is of another shape, type or device.
    """
    if not samples:
        raise UsageError("expected at least one sample to decode, found none")
    import torch

    # On the device of what is to be filled, where none was named.
    if device is not None:
        place = torch.device(device)
    elif out:
        place = next(iter(out.values())).device
    else:
        place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoded = {}
    # One launch for each array: its samples are alike, as all were encoded with one codec.
    for name in samples[0]:
        of_name = [sample[name] for sample in samples if name in sample]
        spec = require_alike(name, of_name, len(samples))
        target = _resolve_target(spec, len(samples), place, out[name] if out else None)
        if place.type == "cuda":
            from . import kernels  # Triton, which is not needed otherwise

            kernels.decode(of_name, target)
        else:
            _decode_on_cpu(of_name, target, threads)
        decoded[name] = target
    return decoded


def require_alike(name: str, encoded: Sequence[Encoded], samples: int) -> Spec:
    """What an array is decoded to in a batch: float32 where some of its samples need that.

    Raises:
        InputError: It is not in all samples, or not alike in them.
    """
    # A channel that needs units of its own makes one sample float32: the batch then is, too.
    alike = {(each.codec, each.decoded) for each in encoded}
    wide = {spec for codec, spec in alike if codec == DeepCam.NAME and spec.dtype == "<f4"}
    spec = next(iter(wide), encoded[0].decoded)
    alike = {
        (codec, spec if codec == DeepCam.NAME and each == replace(spec, dtype="<f2") else each)
        for codec, each in alike
    }
    if len(encoded) != samples or len(alike) != 1:
        raise InputError(f"expected {name} alike in all samples of a batch, found {alike}")
    return spec


def _resolve_target(
    spec: Spec, samples: int, device: torch.device, out: torch.Tensor | None
) -> torch.Tensor:
    import torch

    shape = (samples, *spec.shape)
    kind = torch.from_numpy(np.empty(0, spec.dtype)).dtype
    if out is None:
        return torch.empty(shape, dtype=kind, device=device)
    # The caller's memory has to be what would have been made here.
    found = (tuple(out.shape), out.dtype, out.device.type, out.is_contiguous())
    if found != (shape, kind, device.type, True):
        raise UsageError(
            f"expected out contiguous of {shape}, {kind} on {device.type}, found {found[:3]}"
        )
    return out


def _decode_on_cpu(samples: Sequence[Encoded], out: torch.Tensor, threads: int | None) -> None:
    targets = out.numpy()
    for i, encoded in enumerate(samples):
        # With the ellipsis a scalar is a view, too; iterating would give copies of scalars.
        target = targets[i, ...]
        if target.dtype == np.dtype(encoded.decoded.dtype):
            CODECS[encoded.codec].decode(encoded, target, threads=threads)
        else:  # of a batch in which others are float32
            narrow = np.empty(encoded.decoded.shape, encoded.decoded.dtype)
            CODECS[encoded.codec].decode(encoded, narrow, threads=threads)
            target[...] = narrow
            target[np.isnan(target)] = np.nan


# How far a decoded array is from what was encoded, channel by channel. What was finite and is not
# any more counts as far off, and is counted on its own.

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
    # Only what was encoded with loss can be off.
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
    largest = encoded.parameters.get("largest_errors", [None] * len(decoded))
    return tuple(
        ChannelValues(number, int(np.isnan(plane).sum()), int(np.isinf(plane).sum()), error)
        for number, (plane, error) in enumerate(zip(decoded, largest, strict=True))
    )


def compute_errors(wanted: NDArray[Any], decoded: NDArray[Any]) -> tuple[ChannelErrors, ...]:
    """Errors a channel; both arrays have channels first and the same shape."""
    return tuple(
        _find_channel(number, x.astype(np.float64), found.astype(np.float64))
        for number, (x, found) in enumerate(zip(wanted, decoded, strict=True))
    )


def _find_channel(number: int, x: NDArray[np.float64], found: NDArray[np.float64]) -> ChannelErrors:
    # Values that are lost count in the shares; sizes are of those that are finite on both sides.
    nan, infinite = int(np.isnan(found).sum()), int(np.isinf(found).sum())
    was = np.isfinite(x)
    kept = was & np.isfinite(found)
    values, lost = int(was.sum()), int(was.sum() - kept.sum())
    share = lost / values if values else 0.0
    x, found = x[kept], found[kept]
    if not x.size:
        return ChannelErrors(number, nan, infinite, lost, share, share, 0.0, 0.0, 0.0)
    # Near zero a relative error says little, hence the floor (the paper, V.A: "primarily for small
    # values close to zero").
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

    # As the encoder arranged and normalised it.
    parameters = encoded.parameters
    last = parameters["channels"] == "last"
    planes = np.moveaxis(original[name], -1, 0) if last else original[name]
    return normalize(planes, parameters["shift"], parameters["scale"]).reshape(
        encoded.decoded.shape
    )
