"""`python -m vanidl_loaders convert`: the samples in a peer's format, beside the data."""

from __future__ import annotations

import argparse
import sys

from ..console import show_progress

NAME = "convert"
HELP = "write the samples as shards of MosaicML Streaming (mds) or WebDataset (tar)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which samples, which format."""
    parser.add_argument("--data", required=True, metavar="DIR", help="folder written by make")
    parser.add_argument("--to", required=True, choices=("mds", "tar"))


def run(options: argparse.Namespace) -> int:
    """Writes the shards, if they are not there; exit status 0."""
    from ..data.samples import open_samples
    from ..peers.shards import convert

    with show_progress(f"converting to {options.to}") as progress:
        folder = convert(open_samples(options.data), options.to, progress)
    sys.stdout.write(f"{folder}\n")
    return 0
