"""The papers' studies: what this project measures, beside what the documents report.

    python -m benchmarks.papers.run [--small] [applications scheduled shuffling decoders spatial]
    python -m benchmarks.papers.run shuffling.exchange decoders.deepcam   # parts of studies
    python -m benchmarks.papers.run --list                                # which there are

Prints a table for each, for docs/papers.md: what was run, the figure, what the document reports,
what was measured here, and whether it points the same way. `--small` leaves out the parts that
take longest, where none is named. Exit status 1 where a row points elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.papers import applications, decoders, scheduled, shuffling, spatial
from benchmarks.papers.study import Part

STUDIES = {
    "applications": applications,
    "scheduled": scheduled,
    "shuffling": shuffling,
    "decoders": decoders,
    "spatial": spatial,
}
"""Study -> its module."""


def select_parts(names: list[str], small: bool) -> list[tuple[str, Part]]:
    """Studies and parts by name, all by default; those that are long only by name when `small`."""
    parts = {f"{study}.{name}": part for study, module in STUDIES.items()
             for name, part in module.PARTS.items()}  # fmt: skip
    selected = []
    for asked in names or STUDIES:
        of_study = [name for name in parts if name.partition(".")[0] == asked]
        if asked not in parts and not of_study:
            sys.exit(f"no study or part {asked!r}: expected one of {', '.join([*STUDIES, *parts])}")
        brief = [name for name in of_study if not (small and parts[name].long)]
        selected += [(name, parts[name]) for name in brief or [asked]]
    return selected


def main() -> int:
    """Runs the studies that were asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a study or STUDY.PART")
    parser.add_argument("--small", action="store_true", help="fewer and smaller, minutes")
    parser.add_argument("--scratch", type=Path, help="folder for data and runs, with room")
    parser.add_argument("--list", action="store_true", help="print what parts there are")
    options = parser.parse_args()
    selected = select_parts(options.names, options.small)
    elsewhere = 0
    for name, part in selected:
        if options.list:
            sys.stdout.write(f"{name:<28} {part.says}\n")
            continue
        begin = time.monotonic()
        sys.stdout.write(f"\n{name}: {part.says}\n\n")
        sys.stdout.write("| of | figure | reported | here | same |\n|---|---|---|---|---|\n")
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            for row in part.measure(options.small, Path(scratch)):
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()
                elsewhere += row.agrees is False
        sys.stdout.write(f"\n{name}: {time.monotonic() - begin:.0f} s\n")
    return int(elsewhere > 0)


if __name__ == "__main__":
    sys.exit(main())
