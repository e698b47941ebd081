"""Figures of the poster on spatial-parallel reads: 100 files, on 1 to 25 nodes.

Files of 4 x size^3 int16, all of one content (links to it), read from an emulated server by nodes
with a link each, as `benchmarks.loaders.spatial` has them; the server has three times a node's
bandwidth. Each node reads its block (`spatial`), against one node that reads all, and one that
reads all and scatters. How many bytes each rank reads is judged by the storage's own log; so is,
as storage and links are emulated, that more nodes are faster than one.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.loaders.spatial import Found, Place, measure_row, write
from benchmarks.loaders.spatial import Row as Setting
from benchmarks.papers.study import Part, Row
from vanidl_loaders.data.samples import SampleSet

SERVER_LINKS = 3
REPORTED = {5: "about 3 times", 1: "1"}


def write_linked(folder: Path, samples: int, size: int) -> SampleSet:
    """So many files that are one on the disk: the emulated file system keeps no pages."""
    first = write(folder, 1, size)
    made = replace(first, samples=samples)
    for number in range(1, samples):
        made.path(number).parent.mkdir(parents=True, exist_ok=True)
        os.link(first.path(0), made.path(number))
    made.save()
    return made


def measure_nodes(
    scratch: Path, samples: int, size: int, link_mb: float, nodes: tuple[int, ...]
) -> Iterator[Row]:
    """Seconds of a file by number of nodes, of what one takes that reads all."""
    made = write_linked(scratch / f"files-{size}", samples, size)
    place = Place("emulated", made, scratch, link_mb * 1e6)
    mb = made.sample_nbytes / 1e6
    settings = {f"{count} nodes": Setting(count, (1, count, 1, 1), "posix") for count in nodes}
    most = max(nodes)
    settings[f"{most} nodes, scatter"] = Setting(most, (1, most, 1, 1), "scatter")
    seconds: dict[str, float] = {}
    for name, setting in settings.items():
        found = Found()
        measure_row(place, name, setting, found)
        seconds[name] = statistics.median(found.seconds)
        of = f"{name}, {samples} files of {mb:.0f} MB"
        yield Row(of, "ranks that read their block's bytes and no more", "each its portion",
                  float(all(found.exact)), all(found.exact))  # fmt: skip
        faster = seconds[f"{nodes[0]} nodes"] / seconds[name]
        judged = None if setting.ranks == 1 or "scatter" in name else faster > 1.3
        reported = REPORTED.get(setting.ranks, "figure without numbers")
        yield Row(of, "as fast as one that reads all", reported, faster, judged, "{:.2f} times")
        yield Row(of, "processor time of the storage's server, of the wall time", "no server",
                  statistics.median(found.busy))  # fmt: skip


def measure_files(small: bool, scratch: Path) -> Iterator[Row]:
    """100 files of 64 MiB on 1 to 8 nodes; `small`: 5 files of 17 MB.

    Nodes share this machine's cores: of smaller files, eight would show what it takes to run them.
    """
    if small:
        yield from measure_nodes(scratch, 5, 128, 10, (1, 2, 4, 8))
    else:
        yield from measure_nodes(scratch, 100, 204, 50, (1, 2, 4, 5, 8))


PARTS = {
    "files": Part("spatial-parallel reads of 100 files on 1 to 8 nodes", measure_files),
    "gigabytes": Part("the same of 5 files of 1 GiB",
                      lambda _small, scratch: measure_nodes(scratch, 5, 512, 50, (1, 2, 4, 5, 8)),
                      long=True),
}  # fmt: skip
