"""A journal that is read while it grows: its totals are those of the whole one."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.makers.step_journals import journal_bytes, random_journal, text_rows
from vanidl.errors import InputError
from vanidl.model.trace import SpanKind
from vanidl.readers.steps import live
from vanidl.readers.steps.journal import read_journal
from vanidl.readers.steps.live import LiveJournal, LoopTotals
from vanidl.readers.steps.loop import build_profile

PROCESS = {"pid": 1, "host": "node", "rank": 0}
ALL = 1 << 20


def whole(path: Path) -> tuple[LoopTotals, dict[str, tuple[int, int]]]:
    """Totals by the analyser's way, and those of each loader by name."""
    found = build_profile(read_journal(path))
    took = found.end_ns - found.start_ns
    step, other, wait = (
        found.kind == kind for kind in (SpanKind.STEP, SpanKind.EVALUATION, SpanKind.INPUT_WAIT)
    )
    loaders = {}
    for k in np.unique(found.name[wait]).tolist():
        mine = wait & (found.name == k)
        loaders[found.names[k]] = int(mine.sum()), int(took[mine].sum())
    first, last = (int(found.start_ns.min()), int(found.end_ns.max())) if len(took) else (0, 0)
    in_steps = 0
    for since, until in zip(found.start_ns[wait], found.end_ns[wait], strict=True):
        around = step & (found.start_ns <= since) & (until <= found.end_ns)
        in_steps += int(until - since) * bool(around.any())
    totals = LoopTotals(
        int(step.sum()), int(took[step].sum()), int(other.sum()), int(took[wait].sum()), in_steps,
        first, last,
    )  # fmt: skip
    return totals, loaders


def assert_same(journal: LiveJournal) -> None:
    totals, loaders = whole(journal.path)
    found = journal.totals
    if totals.step_wait_ns != found.step_wait_ns:  # only where a clock jumped amid a step
        assert found.step_wait_ns <= found.wait_ns
        assert max(found.step_classes) > 8 * 29  # half a second, among steps of some ns
        totals = replace(totals, step_wait_ns=found.step_wait_ns)
    assert LoopTotals(*(getattr(found, name) for name in LoopTotals.__slots__[:7])) == totals
    assert {journal.name(k): each for k, each in found.by_loader.items()} == loaders
    assert journal.is_exact


def grown(path: Path, content: bytes, chance: random.Random) -> LiveJournal:
    """A journal that was read now and then while it was written, in portions of any size."""
    path.write_bytes(b"")
    journal, at = LiveJournal(path), 0
    while at < len(content):
        size = chance.choice([1, 20, 100, 700, 5000])
        with path.open("ab") as file:
            file.write(content[at : at + size])
        at += size
        journal.read(chance.choice([1, 50, ALL]))
    journal.read(0, ended=True)
    return journal


@pytest.mark.parametrize("seed", range(60))
def test_totals_are_those_of_the_whole_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(live, "MOST_ROWS", 16)
    content = random_journal(seed)
    assert_same(grown(tmp_path / "a.steps", content, random.Random(seed)))


@pytest.mark.parametrize(
    "text",
    [
        "w0:0-1 w0:10-11 o:15 w0:20-21 w0:30-31 o:35 e0:40-41",
        "w0:0-1 o:5 e0:10-11 w1:20-21 w1:22-23 e1:30-31 w0:50-51 o:60",
        "w0:0-1 o:5 w0:10-11 e0:11-12 i1:12-13 w1:13-14 o:15",
        "s:1-2 w0:3-4 s:5-9 w1:9-10 v:10-12 w0:13-14 s:15-19",
        "o:10 o:20 o:35",
    ],
)
def test_at_every_byte_of_a_journal(tmp_path: Path, text: str) -> None:
    content, path = journal_bytes(PROCESS, text), tmp_path / "a.steps"
    head = len(journal_bytes(PROCESS, ""))
    for size in range(head, len(content) + 1, 8):
        path.write_bytes(content[:size])
        journal = LiveJournal(path)
        journal.read(ALL)
        assert_same(journal)


def test_calls_within_a_call_that_lasts_long_are_no_waits(tmp_path: Path) -> None:
    """A loader that asks another one for hundreds of batches before it gives its first."""
    inner = " ".join(f"w1:{k}-{k + 1}" for k in range(2, 600))
    text = f"{inner} w0:0-700 o:710 w0:720-730 o:740"
    content, path = journal_bytes(PROCESS, text), tmp_path / "a.steps"
    path.write_bytes(content[: len(content) // 2])
    journal = LiveJournal(path)
    journal.read(ALL)
    assert journal.totals.steps > 2  # until the outer call ends, what it asks for is all there is
    path.write_bytes(content)
    journal.read(ALL)
    assert_same(journal)
    assert journal.totals.steps == 2


def test_what_is_held_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    path, held = tmp_path / "a.steps", []
    for steps in (200, 2000):
        text = " ".join(f"w0:{k * 10}-{k * 10 + 3} o:{k * 10 + 8}" for k in range(steps))
        path.write_bytes(journal_bytes(PROCESS, text))
        journal = LiveJournal(path)
        journal.read(ALL)
        assert_same(journal)
        held.append(len(journal._scan._held))
    assert held[0] == held[1] < 20


def test_more_than_may_be_held_is_said_to_be_approximate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_MOST_HELD", 100)
    path = tmp_path / "a.steps"
    text = " ".join(f"w0:{k}-{k}" for k in range(500))  # one step that goes on and on
    path.write_bytes(journal_bytes(PROCESS, f"w0:0-1 o:1 {text}"))
    journal = LiveJournal(path)
    journal.read(ALL)
    assert not journal.is_exact
    assert len(journal._scan._held) <= 100


def test_another_file_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.steps"
    path.write_bytes(journal_bytes(PROCESS, "w0:0-1 o:5 w0:10-11 o:15 w0:20-21 o:25"))
    journal = LiveJournal(path)
    journal.read(ALL)
    path.unlink()
    path.write_bytes(journal_bytes({**PROCESS, "pid": 2}, "w0:0-1 o:5"))
    journal.read(ALL)
    assert_same(journal)
    assert journal.process is not None
    assert journal.process["pid"] == 2


@pytest.mark.parametrize("content", [b"x", b"x" * 64, b"vanidl-steps 9".ljust(64)])
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.steps"
    path.write_bytes(content)
    with pytest.raises(InputError, match="expected steps recorded by"):
        LiveJournal(path).read(ALL)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError):
        LiveJournal(path).read(ALL)


@pytest.mark.parametrize("rows", [5000, 1 << 60, -3])
def test_lengths_that_a_journal_announces_are_not_believed(tmp_path: Path, rows: int) -> None:
    content = journal_bytes(PROCESS, "w0:0-1 o:5 w0:10-11 o:15 w0:20-21 o:25")
    lie = np.array([0, rows, 0, 0], "<i8").tobytes()
    path = tmp_path / "a.steps"
    path.write_bytes(content + lie + text_rows({"loader": 1}) + content[-64:])
    journal = LiveJournal(path)
    journal.read(ALL)
    assert_same(journal)


def test_calls_within_calls_beyond_what_may_be_held_end_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call lies within the next one, back to the beginning: no bound would be enough."""
    monkeypatch.setattr(live, "_MOST_HELD", 50)
    monkeypatch.setattr(live, "MOST_ROWS", 16)
    inner = " ".join(f"w0:{k}-{k} o:{k}" for k in range(10, 400))
    path = tmp_path / "a.steps"
    path.write_bytes(journal_bytes(PROCESS, f"{inner} w1:0-500 o:510 w1:0-600 o:610"))
    journal = LiveJournal(path)
    journal.read(0, ended=True)
    assert journal.totals.steps
    assert not journal.is_exact
