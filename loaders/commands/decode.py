"""`python -m vanidl_loaders decode`: a container to .npy, .h5 or .tfrecord."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import InputError, UsageError

NAME = "decode"
HELP = "decode a .vdl container to .npy, .h5 or .tfrecord"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to decode, and where to."""
    add = parser.add_argument
    add("input", metavar="INPUT", help="a .vdl container")
    add("output", metavar="OUTPUT", help="a .npy, .h5 or .tfrecord file")
    add("--array", action="append", metavar="NAME", help="only this one; may be repeated")
    add("--device", help="cpu or cuda (default: a GPU where there is one)")


def run(options: argparse.Namespace) -> int:
    """Decodes and says what; exit status 0."""
    from ..decoders import decode_sample
    from ..decoders.convert import write_sample

    path = Path(options.input)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"expected a container {path}, found: {error.strerror}") from error
    decoded = decode_sample(content, device=options.device)
    names = options.array or list(decoded)
    if strange := [name for name in names if name not in decoded]:
        raise UsageError(f"expected arrays among {', '.join(decoded)}, found {strange}")
    arrays = {name: decoded[name].cpu().numpy() for name in names}
    write_sample(options.output, arrays)
    for name, array in arrays.items():
        sys.stdout.write(f"{name}: {array.dtype} {array.shape}\n")
    return 0
