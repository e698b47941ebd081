"""Batches of a training loader that are not trained on, and loops that are no training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.makers.step_journals import CODES, MS, START, journal_of, text_rows
from vanidl.model.trace import INFERENCE, UNSURE, SpanKind
from vanidl.readers.records import ProfileTrace
from vanidl.readers.steps.journal import Journal, read_journal
from vanidl.readers.steps.loop import build_profile, find_other_loops
from vanidl.readers.steps.windows import split_passes
from vanidl.record.injected.vanidl_steps import journal as written

# Windows beside training: what validates, by loaders, by switches of models, by marks.

STEPS = "w0:0-1 o:5 w0:10-11 o:15 w0:20-21 o:25 "


def windows(found: ProfileTrace, kind: SpanKind) -> list[tuple[int, int]]:
    mine = found.kind == kind
    pairs = zip(found.start_ns[mine].tolist(), found.end_ns[mine].tolist(), strict=True)
    return [((start - START) // MS, (end - START) // MS) for start, end in pairs]


@pytest.mark.parametrize(
    ("text", "validation"),
    [
        # from eval() before the first batch to train() behind the last
        ("m7-:30 w1:32-34 w1:35-36 e1:40-41 m7+:44 w0:50-51 o:55", [(30, 44)]),
        # without them from the first call to the last, the end of the pass
        ("i1:31-32 w1:32-34 w1:35-36 e1:40-41 w0:50-51 o:55", [(31, 41)]),
        # a pass that is left before its end goes on until training does
        ("i1:31-32 w1:32-34 w0:50-51 o:55", [(31, 50)]),
        # what read for it is stopped at its end, not what is stopped later
        ("i1:31-32 w1:32-34 e1:40-41 d:41-46 w0:50-51 o:55", [(31, 46)]),
        ("i1:31-32 w1:32-34 e1:40-41 d:43-46 w0:50-51 o:55", [(31, 41)]),
        # at the end of the run nothing more is known than its last call
        ("w1:32-34 w1:35-38", [(32, 38)]),
        # two evaluations of one gap are one window
        ("w1:32-34 e1:35-36 w2:37-38 e2:40-41 w0:50-51 o:55", [(32, 41)]),
        # no loader at all
        ("m7-:30 m7+:44 w0:50-51 o:55", [(30, 44)]),
        # of one model that is switched while another is not: they are pairs of one model
        ("m7-:30 m8+:32 m7+:44 w0:50-51 o:55", [(30, 44)]),
        # a teacher that is set to evaluation once, and never back
        ("m9-:30 w0:50-51 o:55", []),
        # a model in evaluation while another trains validates nothing
        ("m9-:30 w0:50-51 o:55 m9+:60", []),
        # said by a framework: what loaders and models tell within it is a part of it
        ("m7-:31 w1:32-34 e1:35-36 m7+:37 P0:30-44 w0:50-51 o:55", [(30, 44)]),
    ],
)
def test_validation(tmp_path: Path, text: str, validation: list[tuple[int, int]]) -> None:
    path = journal_of(tmp_path, STEPS + text)
    with path.open("ab") as file:
        file.write(text_rows({"phase": 0, "label": "eval", "call": "Trainer.evaluate"}))
    found = build_profile(read_journal(path))
    assert windows(found, SpanKind.VALIDATION) == validation


def test_a_model_that_acts_in_each_step_does_not_validate(tmp_path: Path) -> None:
    acts = " ".join(
        f"m7-:{k} m7+:{k + 3} w0:{k + 4}-{k + 5} o:{k + 8}" for k in range(100, 200, 10)
    )
    found = build_profile(read_journal(journal_of(tmp_path, acts)))
    assert windows(found, SpanKind.VALIDATION) == []
    often = " ".join(f"w0:{k}-{k + 1} o:{k + 2}" for k in range(0, 60, 5))
    (tmp_path / "rarely").mkdir()
    found = build_profile(read_journal(journal_of(tmp_path / "rarely", f"{often} {acts}")))
    assert len(windows(found, SpanKind.VALIDATION)) == 10


def test_marks_of_the_program_are_what_they_say(tmp_path: Path) -> None:
    path = journal_of(tmp_path, STEPS + "P0:30-40 C9:51-52 P1:50-60 P2:61-65 P3:70-80 w0:90-91")
    with path.open("ab") as file:
        for number, label in enumerate(("upload", "save", "inference", "Validation")):
            file.write(text_rows({"phase": number, "label": label, "call": "vanidl.phase"}))
        file.write(text_rows({"checkpoint": 9, "path": "/x/model.pt", "call": "torch.save"}))
    found = build_profile(read_journal(path))
    assert windows(found, SpanKind.PHASE) == [(30, 40), (61, 65)]
    assert windows(found, SpanKind.CHECKPOINT) == [(50, 60)]
    assert windows(found, SpanKind.VALIDATION) == [(70, 80)]
    assert [call.path for call in found.checkpoint_calls] == ["/x/model.pt"]


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
    return split_passes(read_journal(path))


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
    found = build_profile(recorded(tmp_path, calls))
    assert numbers(found) == (36, 3, 3, 0)
    assert count(found, SpanKind.INPUT_WAIT, "evaluation") == 3 * 6  # __iter__, four, the end
    assert count(found, SpanKind.INPUT_WAIT, "training") == 3 * 14


def test_a_pass_before_all_training_is_skipped(tmp_path: Path) -> None:
    found = build_profile(recorded(tmp_path, [*epoch(0, 0, 12), *epoch(0, 1, 12, "b", "o")]))
    assert numbers(found) == (12, 1, 0, 1)


def test_another_loader_of_the_same_data_before_training_is_skipped(tmp_path: Path) -> None:
    """As a state is taken from one that is thrown away; an evaluation before training is none."""
    first, trained = epoch(1, 0, 5), epoch(0, 0, 3, "o")
    assert numbers(build_profile(recorded(tmp_path, [*first, *trained]))) == (3, 1, 0, 1)
    assert numbers(build_profile(recorded(tmp_path, [("m", 0, 0), *first, *trained]))) == (
        3,
        1,
        1,
        0,
    )
    assert numbers(build_profile(recorded(tmp_path, [*trained, *first]))) == (3, 1, 1, 0)


@pytest.mark.parametrize(("thrown", "windows"), [(20, 1), (4, 1), (3, 1), (2, 0)])
def test_batches_of_a_resumed_run_are_in_no_step(tmp_path: Path, thrown: int, windows: int) -> None:
    calls = epoch(0, 0, thrown)[:-1] + epoch(0, 0, 12, "b", "o")[1:]
    found = build_profile(recorded(tmp_path, calls))
    assert numbers(found) == (12, 1, 0, windows)
    skipped = (found.kind == SpanKind.PHASE) & (found.end_ns > found.start_ns)
    length = (found.end_ns - found.start_ns)[skipped].sum() // MS
    assert length == (thrown * GAP if windows else 0)  # until the next batch is asked for


def test_accumulated_batches_are_of_their_step(tmp_path: Path) -> None:
    """A step takes ten batches after others took two: each had a gradient."""
    pair = [("w", 0, 0), ("b", 0, 0)]
    calls = [*(pair * 10), ("o", 0, 0), *[*(pair * 2), ("o", 0, 0)] * 5, ("e", 0, 0)]
    assert numbers(build_profile(recorded(tmp_path, calls))) == (6, 1, 0, 0)
    left = [call for call in calls if call[0] != "b"]
    assert numbers(build_profile(recorded(tmp_path, left))) == (6, 1, 0, 1)


def test_a_loader_that_is_begun_again_within_an_epoch_makes_none(tmp_path: Path) -> None:
    calls: list[Call] = []
    for k in range(36):
        if k % 12 == 0:
            calls += [("e", 0, k // 12 - 1)] * (k > 0) + [("i", 0, k // 12)]
        calls.append(("w", 0, k // 12))
        if k % 4 == 0:
            calls += [("e", 1, k // 4 - 1)] * (k > 0) + [("i", 1, k // 4)]
        calls += [("w", 1, k // 4), ("b", 0, 0), ("o", 0, 0)]
    assert numbers(build_profile(recorded(tmp_path, calls)))[:2] == (36, 3)


def test_loaders_after_one_another_have_epochs_of_their_own(tmp_path: Path) -> None:
    calls = [*epoch(0, 0, 12, "o"), *epoch(0, 1, 12, "o"), *epoch(1, 0, 9, "o")]
    assert numbers(build_profile(recorded(tmp_path, calls)))[:2] == (33, 3)


def test_gradients_tell_of_training_where_no_optimizer_is_known(tmp_path: Path) -> None:
    calls = [call for k in range(2) for call in (*epoch(0, k, 12, "b"), *epoch(1, k, 4))]
    found = build_profile(recorded(tmp_path, calls))
    assert numbers(found)[:3] == (24, 2, 2)
    assert found.purpose == ""


def test_a_loop_without_a_loader_begins_with_its_first_gradient(tmp_path: Path) -> None:
    found = build_profile(recorded(tmp_path, [("b", 0, 0), ("o", 0, 0)] * 40))
    assert count(found, SpanKind.STEP) == 40
    found = build_profile(recorded(tmp_path, [("o", 0, 0)] * 40))
    assert count(found, SpanKind.STEP) == 39  # nothing tells when the first one began


@pytest.mark.parametrize(
    ("process", "purpose"),
    [({}, INFERENCE), ({"gradients": []}, UNSURE), ({"gradients": None}, "")],
)
def test_without_gradients_nothing_trains(tmp_path: Path, process: dict, purpose: str) -> None:
    assert build_profile(recorded(tmp_path, epoch(0, 0, 12), process)).purpose == purpose
    trained = recorded(tmp_path, epoch(0, 0, 12, "b", "o"), process)
    assert build_profile(trained).purpose == ""


def test_loops_of_other_threads_are_counted(tmp_path: Path) -> None:
    journal = recorded(tmp_path, epoch(0, 0, 12, "b", "o"))
    assert find_other_loops(journal) == []
    thread = journal.events.thread.copy()
    thread[-10:] = 3  # three steps, and the end
    events = type(journal.events)(
        *(thread if name == "thread" else getattr(journal.events, name)
          for name in journal.events.__slots__)
    )  # fmt: skip
    (other,) = find_other_loops(replace(journal, events=events))
    assert (other.steps, other.waited_ns) == (3, 3 * 5 * MS)
    assert other.took_ns == 3 * 3 * GAP * MS
