"""What a file lost is said: by an error, by what was read of it, or by a warning that names it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.fuzz import wire
from tests.fuzz.readers import READERS
from tests.makers.sameness import same
from vanidl.readers import discover
from vanidl.readers.format import Format, Reading, Records
from vanidl.readers.registry import FORMATS

FILES = {
    "darshan": "u_x_id7-7_1-2-3-4_1.darshan",
    "kineto": "n_10.1700000099000.pt.trace.json",
    "kineto gzip": "n_10.1700000099000.pt.trace.json.gz",
    "rocprof": "7_results.json",
    "objects": "node01-7.objects",
    "steps": "node01-7.steps",
    "tfevents": "events.out.tfevents.1.n.2.0",
    "input pipeline": "plugins/profile/2026_11_21_00_02_36/n.input_pipeline.pb",
    "xplane": "plugins/profile/2026_11_21_00_02_36/n.xplane.pb",
    "trace viewer": "plugins/profile/2026_11_21_00_02_36/n.trace.json.gz",
    "dlio": "0_output.json",
    "dlio times": "per_epoch_stats.json",
    "calls": "4711-5000000000000.calls",
    "states": "states/node01-7.states",
    "calls gzip": "4711-5000000000000.calls.gz",
    "dftracer": "x.pfw",
    "dftracer gzip": "x.pfw.gz",
}


def read(folder: Path) -> tuple[Format, Records, Reading]:
    """What the only format that has files in the folder makes of them."""
    found = discover.find(folder)
    (format_,) = [known for known in FORMATS if found.of(known)]
    reading = Reading(lambda *_: None)
    records = format_.read(found.files, reading)
    return format_, records, reading


def said(records: Records, reading: Reading) -> set[str]:
    """Everything that is said about losses."""
    files = records.counters.values()
    profiles = [*records.profiles, *(s for log in records.step_logs for s in log.segments)]
    losses = (loss for one in (*records.logs, *files, *profiles) for loss in one.losses)
    return {*map(str, reading.unreadable), *(n.message for n in records.notices), *losses}


def content(records: Records) -> tuple[object, ...]:
    steps = [log.segments for log in records.step_logs]
    return (records.logs, records.profiles, records.states, steps, records.durations)


def event_borders(whole: bytes) -> Iterator[int]:
    at = 0
    while at < len(whole):
        yield at
        at += 16 + struct.unpack_from("<Q", whole, at)[0]


def field_borders(whole: bytes) -> Iterator[int]:
    fields = wire.parse(whole) or []
    return (len(wire.encode(fields[:i])) for i in range(len(fields)))


BORDERS: dict[str, Callable[[bytes], Iterable[int]]] = {
    "steps": lambda whole: range(0, len(whole), 32),
    "objects": lambda whole: range(0, len(whole), 48),
    "tfevents": event_borders,
    "input pipeline": field_borders,
    "rocprof": lambda _: (0,),
}
"""Formats without an end: what is cut there is a whole file of a program that did less. Profiles of
rocprofv3 are known by how they begin: an empty file is none."""


@pytest.mark.parametrize("name", FILES)
def test_whatever_is_cut_off_is_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = READERS[name].content
    path.write_bytes(whole)
    _, before, reading = read(tmp_path)
    assert any(content(before))
    usual = said(before, reading)
    shorter = set(BORDERS.get(name, lambda _: ())(whole))
    for end in {*range(0, len(whole), max(1, len(whole) // 40))} - shorter:
        path.write_bytes(whole[:end])
        _, records, reading = read(tmp_path)
        assert said(records, reading) - usual or same(content(records), content(before)), end


def test_every_format_is_cut(tmp_path: Path) -> None:
    cut = set()
    for name, place in FILES.items():
        path = tmp_path / name / place
        path.parent.mkdir(parents=True)
        path.write_bytes(READERS[name].content)
        cut.add(read(tmp_path / name)[0].name)
    assert cut == {known.name for known in FORMATS}
