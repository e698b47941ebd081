"""The papers' studies: what this project measures, beside what the documents report.

    python -m benchmarks.papers.run [--small] [applications scheduled shuffling decoders spatial]

Prints a table for each, for docs/papers.md: what was run, the figure, what the document reports,
what was measured here, and whether it points the same way. Exit status 1 where a row points
elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.papers import applications, decoders, scheduled, shuffling, spatial

STUDIES = {
    "applications": applications,
    "scheduled": scheduled,
    "shuffling": shuffling,
    "decoders": decoders,
    "spatial": spatial,
}
"""Study -> its module."""


def main() -> int:
    """Runs the studies that were asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", choices=[*STUDIES, []], metavar="NAME")
    parser.add_argument("--small", action="store_true", help="fewer and smaller, minutes")
    parser.add_argument("--scratch", type=Path, help="folder for data and runs, with room")
    options = parser.parse_args()
    elsewhere = 0
    for name in options.names or STUDIES:
        begin = time.monotonic()
        sys.stdout.write(f"\n{STUDIES[name].__doc__.splitlines()[0]}\n\n")
        sys.stdout.write("| of | figure | reported | here | same |\n|---|---|---|---|---|\n")
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            for row in STUDIES[name].measure(options.small, Path(scratch)):
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()
                elsewhere += row.agrees is False
        sys.stdout.write(f"\n{name}: {time.monotonic() - begin:.0f} s\n")
    return int(elsewhere > 0)


if __name__ == "__main__":
    sys.exit(main())
