"""A program that runs other programs, as imports and libraries do: each gets a log of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(path: str) -> None:
    """Read a file here, and once more in a program that is not Python."""
    Path(path).write_bytes(bytes(65536))
    Path(path).read_bytes()
    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
