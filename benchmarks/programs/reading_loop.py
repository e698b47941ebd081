"""A training that reads some files and prints what it has read: the same, whoever records it.

python benchmarks/programs/reading_loop.py DATA [SECONDS]
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import vanidl

STEPS = 30


def main() -> int:
    """Prints a digest of the bytes and how many reads failed, by error."""
    data, seconds = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    digest, failed = hashlib.sha256(), []
    for number in range(STEPS):
        with vanidl.step():
            with vanidl.wait():
                try:
                    content = (data / f"{number % 5}.bin").read_bytes()
                except OSError as error:
                    failed.append(error.errno)
                    content = b""
            digest.update(content)
            time.sleep(seconds / STEPS)
    print("read", digest.hexdigest()[:16], failed)
    return 3


if __name__ == "__main__":
    sys.exit(main())
