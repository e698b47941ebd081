"""The limits that a user sets for any loader: memory, and waiting for storage."""

from __future__ import annotations

import argparse
import re

from .stalls import READ_TIMEOUT_S


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Options `memory` and `read_timeout_s`, as `Settings` has them."""
    add = parser.add_argument
    add("--memory", type=memory_nbytes, metavar="BYTES", help="of samples kept by a rank (4GiB)")
    add(
        "--read-timeout-s",
        type=float,
        default=READ_TIMEOUT_S,
        help="for storage that does not answer, before it is asked again (default 300)",
    )


def memory_nbytes(text: str) -> int:
    """Bytes of a size such as 4GiB, 500MB or 1048576.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([kKMGT]?)(i?)B?", text.strip())
    if found is None or (found[3] and not found[2]):
        raise argparse.ArgumentTypeError(
            f"expected a size such as 4GiB, 500MB or 1048576, found {text}"
        )
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** " kMGT".find(found[2].replace("K", "k") or " "))
