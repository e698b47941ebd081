"""Windows beside training: what validates, by loaders, by switches of models, by marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.makers.step_journals import MS, START, journal_of, text_rows
from vanidl.model.trace import SpanKind
from vanidl.readers.records import ProfileTrace
from vanidl.readers.steps.journal import read_journal
from vanidl.readers.steps.loop import profile

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
    found = profile(read_journal(path))
    assert windows(found, SpanKind.VALIDATION) == validation


def test_a_model_that_acts_in_each_step_does_not_validate(tmp_path: Path) -> None:
    acts = " ".join(
        f"m7-:{k} m7+:{k + 3} w0:{k + 4}-{k + 5} o:{k + 8}" for k in range(100, 200, 10)
    )
    found = profile(read_journal(journal_of(tmp_path, acts)))
    assert windows(found, SpanKind.VALIDATION) == []
    often = " ".join(f"w0:{k}-{k + 1} o:{k + 2}" for k in range(0, 60, 5))
    (tmp_path / "rarely").mkdir()
    found = profile(read_journal(journal_of(tmp_path / "rarely", f"{often} {acts}")))
    assert len(windows(found, SpanKind.VALIDATION)) == 10


def test_marks_of_the_program_are_what_they_say(tmp_path: Path) -> None:
    path = journal_of(tmp_path, STEPS + "P0:30-40 C9:51-52 P1:50-60 P2:61-65 P3:70-80 w0:90-91")
    with path.open("ab") as file:
        for number, label in enumerate(("upload", "save", "inference", "Validation")):
            file.write(text_rows({"phase": number, "label": label, "call": "vanidl.phase"}))
        file.write(text_rows({"checkpoint": 9, "path": "/x/model.pt", "call": "torch.save"}))
    found = profile(read_journal(path))
    assert windows(found, SpanKind.PHASE) == [(30, 40), (61, 65)]
    assert windows(found, SpanKind.CHECKPOINT) == [(50, 60)]
    assert windows(found, SpanKind.VALIDATION) == [(70, 80)]
    assert [call.path for call in found.checkpoint_calls] == ["/x/model.pt"]
