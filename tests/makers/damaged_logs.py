"""Damaged logs made of whole ones, and what is read of them here and by PyDarshan."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.makers.pydarshan import counters_by_pydarshan, salvaged_log
from vanidl.errors import VanidlError
from vanidl.readers.darshan import reading
from vanidl.readers.darshan.counters import LAYERS
from vanidl.readers.darshan.header import NAMES, Region, read_header
from vanidl.readers.records import TracerLog
from vanidl.report.summary import summary_object
from vanidl.run import open_run

LOGS = ("example", "ior_hdf5_example", "sample-badost", "noposix", "sample-dxt-simple", "dxt",
        "shane_macsio_id29959_5-22-32552-7035573431850780836_1590156158")  # fmt: skip
"""Of the logs that come with PyDarshan, those of many modules."""


def damaged_logs() -> Iterator[tuple[str, bytes]]:
    """Name and content of 22 damaged logs; none where PyDarshan is not installed."""
    spec = importlib.util.find_spec("darshan")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        found = {path.stem: path for path in sorted(Path(folder).rglob("*.darshan"))}
        for i, name in enumerate(LOGS):
            content = found[name].read_bytes()
            regions = read_header(memoryview(content), name).regions
            counters = [r for r in regions.values() if r.name in LAYERS]
            last, longest = (max(counters, key=k) for k in (_start, _length))
            yield f"{name}-cut-in-{last.name}", content[: last.start + last.length * 2 // 3]
            yield f"{name}-flipped-in-{longest.name}", _flipped(content, longest)
            yield f"{name}-nine-tenths", content[: len(content) * 9 // 10]
            if i == 0:
                yield f"{name}-flipped-in-names", _flipped(content, regions[NAMES])


def _start(region: Region) -> int:
    return region.start


def _length(region: Region) -> int:
    return region.length


def _flipped(content: bytes, region: Region) -> bytes:
    """One bit in the middle of a region is another."""
    changed = bytearray(content)
    changed[region.start + region.length // 2] ^= 0x10
    return bytes(changed)


KEYS = ("storage", "layers", "io")


@dataclass(frozen=True)
class Case:
    """What was found of one log; None where nothing could be read."""

    name: str
    mine: Mapping[str, Any] | None
    theirs: Mapping[str, Any] | None
    is_damaged: bool  # and said so


def compared(folder: Path) -> Iterator[Case]:
    """Every log, read twice; the folder holds them meanwhile."""
    paths = []
    for name, content in damaged_logs():
        paths.append(folder / f"{name}.darshan")
        paths[-1].write_bytes(content)
    (folder / "salvaged").mkdir()
    whole = {path: salvaged_log(path, folder / "salvaged") for path in paths}
    counted = counters_by_pydarshan([*whole.values()])
    for path in paths:

        def by_pydarshan(logs: Sequence[TracerLog], path: Path = path) -> list[TracerLog]:
            return [replace(log, counters=counted[str(whole[path])]) for log in logs]

        mine = _summary(path)
        with patch.object(reading, "complete_counters", by_pydarshan):
            theirs = _summary(path)
        codes = {w["code"] for w in mine["coverage"]["warnings"]} if mine else set()
        picked = [found and {key: found[key] for key in KEYS} for found in (mine, theirs)]
        yield Case(path.stem, *picked, "damaged" in codes)


def _summary(path: Path) -> Mapping[str, Any] | None:
    try:
        return summary_object(open_run(path))
    except VanidlError:
        return None
