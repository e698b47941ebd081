"""Batches of a training loader that are not trained on, and loops that are no training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.makers.step_journals import CODES, MS, START, text_rows
from vanidl.model.trace import INFERENCE, UNSURE, SpanKind
from vanidl.readers.records import ProfileTrace
from vanidl.readers.steps.journal import Journal, read_journal
from vanidl.readers.steps.loop import other_loops, profile
from vanidl.readers.steps.passes import told_apart
from vanidl.record.injected.vanidl_steps import journal as written

GAP = 10
Call = tuple[str, int, int]
"""Kind, loader and epoch; each takes 5 ms, `o` and `b` none."""


def epoch(loader: int, number: int, batches: int, *after: str) -> list[Call]:
    """One pass: after each batch these events."""
    batch = [("w", loader, number), *((kind, 0, 0) for kind in after)]
    return [("i", loader, number), *batch * batches, ("e", loader, number)]


def recorded(folder: Path, calls: Sequence[Call], process: dict | None = None) -> Journal:
    """A journal of calls that follow each other, 10 ms apart."""
    rows, places = [], dict[tuple[int, int], int]()
    for k, (kind, loader, number) in enumerate(calls):
        at = START + (k + 1) * GAP * MS
        place = places.get((loader, number), 0)
        places[loader, number] = place + (kind == "w")
        code = CODES[kind] | loader << written.LOADER_SHIFT
        begin = at if kind in "ob" else at - 5 * MS
        rows.append((code, number << written.EPOCH_SHIFT | place, begin, at))
    described = {"pid": 1, "host": "node", "gradients": ["torch"], **(process or {})}
    texts = [described, *({"loader": k, "class": "Loader", "dataset": "D"} for k in range(3))]
    path = folder / "node-1.steps"
    body = b"".join(np.array(row, "<i8").tobytes() for row in rows)
    path.write_bytes(b"".join([written.MAGIC, *map(text_rows, texts), body]))
    return told_apart(read_journal(path))


def count(found: ProfileTrace, kind: SpanKind, word: str = "") -> int:
    """Spans of a kind whose name has a word in it."""
    named = np.array([word in name for name in found.names])
    return int(((found.kind == kind) & named[found.name]).sum())


def numbers(found: ProfileTrace) -> tuple[int, int, int, int]:
    """Steps, epochs, windows of validation and of batches that were skipped."""
    kinds = (SpanKind.STEP, SpanKind.EPOCH, SpanKind.VALIDATION, SpanKind.PHASE)
    steps, epochs, validation, skipped = (count(found, kind) for kind in kinds)
    return steps, epochs, validation, skipped


def test_one_loader_serves_training_and_validation(tmp_path: Path) -> None:
    calls = [
        call for k in range(3) for call in (*epoch(0, 2 * k, 12, "o"), *epoch(0, 2 * k + 1, 4))
    ]
    found = profile(recorded(tmp_path, calls))
    assert numbers(found) == (36, 3, 3, 0)
    assert count(found, SpanKind.INPUT_WAIT, "evaluation") == 3 * 6  # __iter__, four, the end
    assert count(found, SpanKind.INPUT_WAIT, "training") == 3 * 14


def test_a_pass_before_all_training_is_skipped(tmp_path: Path) -> None:
    found = profile(recorded(tmp_path, [*epoch(0, 0, 12), *epoch(0, 1, 12, "b", "o")]))
    assert numbers(found) == (12, 1, 0, 1)


def test_another_loader_of_the_same_data_before_training_is_skipped(tmp_path: Path) -> None:
    """As a state is taken from one that is thrown away; an evaluation before training is none."""
    first, trained = epoch(1, 0, 5), epoch(0, 0, 3, "o")
    assert numbers(profile(recorded(tmp_path, [*first, *trained]))) == (3, 1, 0, 1)
    assert numbers(profile(recorded(tmp_path, [("m", 0, 0), *first, *trained]))) == (3, 1, 1, 0)
    assert numbers(profile(recorded(tmp_path, [*trained, *first]))) == (3, 1, 1, 0)


@pytest.mark.parametrize(("thrown", "windows"), [(20, 1), (4, 1), (3, 1), (2, 0)])
def test_batches_of_a_resumed_run_are_in_no_step(tmp_path: Path, thrown: int, windows: int) -> None:
    calls = epoch(0, 0, thrown)[:-1] + epoch(0, 0, 12, "b", "o")[1:]
    found = profile(recorded(tmp_path, calls))
    assert numbers(found) == (12, 1, 0, windows)
    skipped = (found.kind == SpanKind.PHASE) & (found.end_ns > found.start_ns)
    length = (found.end_ns - found.start_ns)[skipped].sum() // MS
    assert length == (thrown * GAP if windows else 0)  # until the next batch is asked for


def test_accumulated_batches_are_of_their_step(tmp_path: Path) -> None:
    """A step takes ten batches after others took two: each had a gradient."""
    pair = [("w", 0, 0), ("b", 0, 0)]
    calls = [*(pair * 10), ("o", 0, 0), *[*(pair * 2), ("o", 0, 0)] * 5, ("e", 0, 0)]
    assert numbers(profile(recorded(tmp_path, calls))) == (6, 1, 0, 0)
    left = [call for call in calls if call[0] != "b"]
    assert numbers(profile(recorded(tmp_path, left))) == (6, 1, 0, 1)


def test_a_loader_that_is_begun_again_within_an_epoch_makes_none(tmp_path: Path) -> None:
    calls: list[Call] = []
    for k in range(36):
        if k % 12 == 0:
            calls += [("e", 0, k // 12 - 1)] * (k > 0) + [("i", 0, k // 12)]
        calls.append(("w", 0, k // 12))
        if k % 4 == 0:
            calls += [("e", 1, k // 4 - 1)] * (k > 0) + [("i", 1, k // 4)]
        calls += [("w", 1, k // 4), ("b", 0, 0), ("o", 0, 0)]
    assert numbers(profile(recorded(tmp_path, calls)))[:2] == (36, 3)


def test_loaders_after_one_another_have_epochs_of_their_own(tmp_path: Path) -> None:
    calls = [*epoch(0, 0, 12, "o"), *epoch(0, 1, 12, "o"), *epoch(1, 0, 9, "o")]
    assert numbers(profile(recorded(tmp_path, calls)))[:2] == (33, 3)


def test_gradients_tell_of_training_where_no_optimizer_is_known(tmp_path: Path) -> None:
    calls = [call for k in range(2) for call in (*epoch(0, k, 12, "b"), *epoch(1, k, 4))]
    found = profile(recorded(tmp_path, calls))
    assert numbers(found)[:3] == (24, 2, 2)
    assert found.purpose == ""


def test_a_loop_without_a_loader_begins_with_its_first_gradient(tmp_path: Path) -> None:
    found = profile(recorded(tmp_path, [("b", 0, 0), ("o", 0, 0)] * 40))
    assert count(found, SpanKind.STEP) == 40
    found = profile(recorded(tmp_path, [("o", 0, 0)] * 40))
    assert count(found, SpanKind.STEP) == 39  # nothing tells when the first one began


@pytest.mark.parametrize(
    ("process", "purpose"),
    [({}, INFERENCE), ({"gradients": []}, UNSURE), ({"gradients": None}, "")],
)
def test_without_gradients_nothing_trains(tmp_path: Path, process: dict, purpose: str) -> None:
    assert profile(recorded(tmp_path, epoch(0, 0, 12), process)).purpose == purpose
    trained = recorded(tmp_path, epoch(0, 0, 12, "b", "o"), process)
    assert profile(trained).purpose == ""


def test_loops_of_other_threads_are_counted(tmp_path: Path) -> None:
    journal = recorded(tmp_path, epoch(0, 0, 12, "b", "o"))
    assert other_loops(journal) == []
    thread = journal.events.thread.copy()
    thread[-10:] = 3  # three steps, and the end
    events = type(journal.events)(
        *(thread if name == "thread" else getattr(journal.events, name)
          for name in journal.events.__slots__)
    )  # fmt: skip
    (other,) = other_loops(replace(journal, events=events))
    assert (other.steps, other.waited_ns) == (3, 3 * 5 * MS)
    assert other.took_ns == 3 * 3 * GAP * MS
