"""`python -m vanidl_loaders inspect`: what a container holds."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..decoders import Encoded

NAME = "inspect"
HELP = "say what a .vdl container holds; with --original, how far it is off"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which container, and in what form."""
    add = parser.add_argument
    add("input", metavar="INPUT", help="a .vdl container")
    add("--original", metavar="FILE", help="what was encoded: errors a channel are shown")
    add("--json", action="store_true", help="for programs")


def run(options: argparse.Namespace) -> int:
    """Checks the container and prints what it holds; exit status 0."""
    from ..decoders import open_sample

    path = Path(options.input)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"expected a container {path}, found: {error.strerror}") from error
    arrays = {name: _describe_container(each) for name, each in open_sample(content).items()}

    # What decoding loses, measured against the original.
    if options.original:
        from ..decoders.coding import sample_errors
        from ..decoders.convert import read_sample

        errors = sample_errors(content, read_sample(options.original))
        for name, channels in errors.items():
            arrays[name]["errors"] = [asdict(each) for each in channels]
    if options.json:
        sys.stdout.write(json.dumps({"nbytes": len(content), "arrays": arrays}) + "\n")
        return 0
    sys.stdout.write(f"{path}: {len(content)} bytes, whole\n")
    sys.stdout.writelines(_format_array(name, each) for name, each in arrays.items())
    return 0


def _describe_container(encoded: Encoded) -> dict[str, Any]:
    from dataclasses import asdict

    from ..decoders import DeepCam
    from ..decoders.coding import gather_channel_values

    lossy = encoded.codec == DeepCam.NAME
    return {
        "codec": encoded.codec,
        "source": {"shape": encoded.source.shape, "dtype": encoded.source.dtype},
        "decoded": {"shape": encoded.decoded.shape, "dtype": encoded.decoded.dtype},
        "parameters": dict(encoded.parameters),
        "source_nbytes": encoded.source.nbytes,
        "nbytes": encoded.nbytes,
        "sections": {name: each.shape for name, each in encoded.sections.items()},
        **(
            {"channels": [asdict(each) for each in gather_channel_values(encoded)]} if lossy else {}
        ),
    }


def _format_array(name: str, array: dict[str, Any]) -> str:
    source, decoded = array["source"], array["decoded"]
    ratio = array["source_nbytes"] / array["nbytes"] if array["nbytes"] else 1.0
    lines = [
        f"{name}: {array['codec']}, {source['dtype']} {source['shape']} -> "
        f"{decoded['dtype']} {decoded['shape']}, {array['nbytes']} bytes, "
        f"{ratio:.2f} times smaller",
        *(f"  {section} {shape}" for section, shape in array["sections"].items()),
    ]
    if "channels" in array:
        lines.append("  channel      nan   infinite   largest error as encoded")
    lines.extend(
        f"  {each['channel']:>7}   {each['nan']:>6}   {each['infinite']:>8}   "
        + ("not known" if each["largest_error"] is None else f"{each['largest_error']:.3g}")
        for each in array.get("channels", ())
    )
    if "errors" in array:
        lines.append("  channel   lost   over 10 %   with floor   largest / range   rms / range")
    lines.extend(
        f"  {each['channel']:>7}   {each['lost']:>4}   {each['over_tenth']:9.4%}   "
        f"{each['over_tenth_floored']:10.4%}   {each['largest_of_range']:15.2e}   "
        f"{each['rms_of_range']:11.2e}"
        for each in array.get("errors", ())
    )
    return "\n".join(lines) + "\n"
