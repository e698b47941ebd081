"""`python -m vanidl_loaders encode`: one file, or every sample of a folder, to containers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..console import show_progress
from ..errors import InputError, UsageError

if TYPE_CHECKING:
    from ..decoders import Codec
    from ..decoders.container import Spec
    from ..decoders.convert import Arrays

NAME = "encode"
HELP = "encode .npy, .h5 or .tfrecord, or a folder of samples, to .vdl containers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to encode, where to, and how."""
    add = parser.add_argument
    add("input", metavar="INPUT", help="a file, or a folder of samples")
    add("output", metavar="OUTPUT", help="a .vdl file, or a folder")
    add("--codec", choices=("auto", "cosmoflow", "deepcam", "lossless"), default="auto")
    add("--channels", choices=("last", "first"), default="last", help="axis of the channels")
    add("--normalise", choices=("log", "mean"), default="log", help="CosmoFlow: log(1 + x) or mean")
    add("--mode", choices=("closed", "open"), default="closed", help="DeepCAM: see the module")
    add("--stats", metavar="H5", help="DeepCAM: file of climate/minval and climate/maxval")
    add("--shape", help="of raw bytes in a TFRecord that does not say, as 128,128,128,4")
    add("--dtype", default="<i2", help="of those bytes (default <i2)")
    add("--threads", type=int, help="samples of a folder at a time (default: one per core)")


def run(options: argparse.Namespace) -> int:
    """Encodes and says how much smaller it became; exit status 0."""
    if Path(options.input).is_dir():
        return _encode_folder(options)
    from ..decoders import encode_sample
    from ..decoders.convert import read_sample
    from ..decoders.folders import SUFFIX, write_whole

    target = Path(options.output)
    if target.suffix != SUFFIX:
        raise UsageError(f"expected an output with suffix {SUFFIX}, found {target}: rename it")
    arrays = read_sample(options.input, _parse_raw_spec(options))
    content = encode_sample(arrays, _choose_codecs(options, arrays))
    write_whole(target, content)
    nbytes = sum(array.nbytes for array in arrays.values())
    sys.stdout.write(_format_counts(1, 0, nbytes, len(content)))
    return 0


def _encode_folder(options: argparse.Namespace) -> int:
    from ..decoders.deepcam import FORMAT
    from ..decoders.folders import encode_folder

    # What decides the containers is kept beside them: other settings are refused later.
    chosen = ("codec", "channels", "normalise", "mode", "stats")
    settings = " ".join(f"{name}={getattr(options, name)}" for name in chosen)
    if options.codec == "deepcam":
        settings += f" format={FORMAT}"
    with show_progress(f"encoding {options.input}") as progress:
        done = encode_folder(
            options.input,
            options.output,
            codecs=None
            if options.codec == "auto"
            else lambda arrays: _choose_codecs(options, arrays),
            settings=settings,
            threads=options.threads,
            progress=progress,
        )
    sys.stdout.write(_format_counts(done.encoded, done.skipped, done.nbytes, done.encoded_nbytes))
    return 0


def _format_counts(encoded: int, skipped: int, nbytes: int, encoded_nbytes: int) -> str:
    ratio = f", {nbytes / encoded_nbytes:.2f} times smaller" if encoded_nbytes else ""
    there = f"; {skipped} were there" if skipped else ""
    return f"{encoded} encoded, {nbytes} bytes to {encoded_nbytes}{ratio}{there}\n"


def _parse_raw_spec(options: argparse.Namespace) -> Spec | None:
    from ..decoders.container import Spec

    if options.shape is None:
        return None
    try:
        return Spec(tuple(int(n) for n in options.shape.split(",")), options.dtype)
    except ValueError as error:
        raise UsageError(f"expected --shape as 128,128,128,4, found {options.shape}") from error


def _choose_codecs(options: argparse.Namespace, arrays: Arrays) -> Mapping[str, Codec]:
    """The chosen codec for the arrays it is for; lossless for the others."""
    from ..decoders import CosmoFlow, DeepCam, Lossless, codec_for

    if options.codec == "auto":
        return {name: codec_for(array, name) for name, array in arrays.items()}
    shift, scale = _read_stats(options.stats)
    codecs: dict[str, Codec] = {
        "cosmoflow": CosmoFlow(normalisation=options.normalise, redshifts=options.channels),
        "deepcam": DeepCam(mode=options.mode, channels=options.channels, shift=shift, scale=scale),
        "lossless": Lossless(),
    }

    # Arrays of two axes and more, of the kind of number that the codec takes; any for lossless.
    kinds = {"cosmoflow": "iu", "deepcam": "f", "lossless": ""}[options.codec]
    return {
        name: codecs[options.codec] if array.ndim >= 2 and array.dtype.kind in kinds else Lossless()
        for name, array in arrays.items()
    }


def _read_stats(path: str | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Shift and scale of each channel that bring it to [0, 1], (x - min) / (max - min)."""
    if path is None:
        return (), ()
    import h5py
    import numpy as np

    try:
        with h5py.File(path, "r") as file:
            least, most = (file[f"climate/{name}"][()] for name in ("minval", "maxval"))
    except (OSError, KeyError) as error:
        raise InputError(
            f"expected climate/minval and climate/maxval in {path}, found: {error}"
        ) from error
    extent = np.where(most > least, most - least, 1.0)  # a channel of one value becomes 0
    return tuple(map(float, least)), tuple(map(float, 1.0 / extent))
