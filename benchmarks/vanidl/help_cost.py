"""What `vanidl COMMAND --help` costs: CPU time against `import numpy`, in turn, medians.

    python benchmarks/vanidl/help_cost.py [ROUNDS]

An interpreter each; user and system time of the child. Ratios are those of each round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

LINES = {
    "vanidl": ["-m", "vanidl"],
    "vanidl --help": ["-m", "vanidl", "--help"],
    "summary --help": ["-m", "vanidl", "summary", "--help"],
    "report --help": ["-m", "vanidl", "report", "--help"],
    "compare --help": ["-m", "vanidl", "compare", "--help"],
    "record --help": ["-m", "vanidl", "record", "--help"],
    "export --help": ["-m", "vanidl", "export", "--help"],
    "survey --help": ["-m", "vanidl", "survey", "--help"],
    "completion bash": ["-m", "vanidl", "completion", "bash"],
    "loaders train --help": ["-m", "vanidl_loaders", "train", "--help"],
    "loaders list --help": ["-m", "vanidl_loaders", "list", "--help"],
}
NUMPY = ["-c", "import numpy"]


def cpu_s(arguments: Sequence[str]) -> float:
    """User and system time of one interpreter."""
    nowhere = subprocess.DEVNULL
    child = subprocess.Popen([sys.executable, *arguments], stdout=nowhere, stderr=nowhere)
    _, _, used = os.wait4(child.pid, 0)
    child.returncode = 0  # it is gone
    return used.ru_utime + used.ru_stime


def main(rounds: int) -> None:
    """Prints a line a command: its median in ms, and the median of its ratios to NumPy."""
    seconds: dict[str, list[float]] = {name: [] for name in LINES}
    numpy: list[float] = []
    for _ in range(rounds):
        numpy.append(cpu_s(NUMPY))
        for name, arguments in LINES.items():
            seconds[name].append(cpu_s(arguments))
    print(f"{'import numpy':22}{1000 * statistics.median(numpy):7.0f} ms")
    for name, some in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(some, numpy, strict=True))
        print(f"{name:22}{1000 * statistics.median(some):7.0f} ms  {ratio:5.2f} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 11)
