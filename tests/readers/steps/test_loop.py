"""What the loop of a program becomes: journals that the recorder itself writes, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.makers.step_journals import MS, START, journal_of, text_rows
from vanidl.errors import InputError
from vanidl.model.trace import SpanKind
from vanidl.readers.records import ProfileTrace
from vanidl.readers.steps.journal import read_journal
from vanidl.readers.steps.loop import build_profile
from vanidl.record.injected.vanidl_steps import journal as written

END_ROWS = 2  # of a whole journal: a text, and that it is one


def spans(found: ProfileTrace, kind: SpanKind) -> list[tuple[int, int]]:
    mine = found.kind == kind
    times = np.stack([found.start_ns[mine], found.end_ns[mine]], axis=1)
    return [tuple(pair) for pair in ((times - START) // MS).tolist()]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        # one batch, one step; the tail after the optimizer is the step's
        ("w0:10-15 o:20 w0:30-35 o:40 w0:50-51 o:60 e0:70-72", [(10, 30), (30, 50), (50, 70)]),
        # gradient accumulation: two batches a step
        ("w0:0-1 w0:10-11 o:15 w0:20-21 w0:30-31 o:35 e0:40-41", [(0, 20), (20, 40)]),
        # two optimizers within one iteration
        ("w0:0-1 o:5 o:6 w0:10-11 o:15 o:16 e0:20-21", [(0, 10), (10, 20)]),
        # making the iterator belongs to the first step, where the first batch follows at once
        ("i0:0-8 w0:8-9 o:15 w0:20-21 o:25 e0:30-31", [(0, 20), (20, 30)]),
        ("i0:0-8 w0:2000-2001 o:2015 e0:2030-2031", [(2000, 2030)]),
        # validation between two steps, and after an epoch, is in none
        ("w0:0-1 o:5 i1:10-11 w1:11-12 e1:20-21 w0:30-31 o:35 e0:40-41", [(0, 10), (30, 40)]),
        ("w0:0-1 o:5 e0:10-11 w1:20-21 w1:22-23 e1:30-31 w0:50-51 o:60", [(0, 10), (50, 60)]),
        # no optimizer: each batch is a step; an epoch's end, and another loader, end one
        (
            "w0:0-1 w0:10-11 e0:20-21 w1:30-31 w1:35-36 e1:40-41",
            [(0, 10), (10, 20), (30, 35), (35, 40)],
        ),
        # two loaders side by side make one step
        ("w0:0-1 w1:2-3 o:5 w0:10-11 w1:12-13 o:15 e0:20-21", [(0, 10), (10, 20)]),
        ("w0:0-1 w1:2-3 w0:10-11 w1:12-13 e0:20-21", [(0, 10), (10, 20)]),
        # killed: what is there counts, up to the last event
        ("w0:0-1 o:5 w0:10-11 o:15 w0:20-24", [(0, 10), (10, 20), (20, 24)]),
        # a loop without a loader: between optimizer steps
        ("o:10 o:20 o:35", [(10, 20), (20, 35)]),
        # the next batch is asked for before the step of the last one (accelerate)
        ("w0:0-1 w0:2-3 o:5 w0:10-11 o:15 e0:20-21 o:25", [(0, 10), (10, 20), (20, 25)]),
        (
            "w0:0-1 w0:2-3 o:5 e0:10-11 o:15 i1:20-21 w1:21-22 i0:30-30 w0:30-31 w0:31-32 o:40",
            [(0, 10), (10, 20), (30, 40)],
        ),
        # what is left of an epoch is a step, made within the loop or after it
        (
            "w0:0-1 w0:2-3 o:5 w0:10-11 o:12 e0:20-21 "
            "w0:30-31 w0:32-33 o:35 w0:40-41 e0:42-43 o:45",
            [(0, 10), (10, 20), (30, 40), (40, 45)],
        ),
        # the shorter of two loaders begins again in the middle of a step
        (
            "w0:0-1 w1:2-3 o:5 w0:10-11 e1:11-12 i1:12-13 w1:13-14 o:15 w0:20-21 w1:22-23 o:25 "
            "e0:30-31",
            [(0, 10), (10, 20), (20, 30)],
        ),
        # a pass of known length, of which nobody asks for the end (Keras)
        (
            "i0:0-0 w0:0-1 o:5 w0:10-11 o:15 i0:20-20 i1:50-50 w1:50-51 i0:80-80 w0:80-81 o:90",
            [(0, 10), (10, 20), (80, 90)],
        ),
        # validation is begun again at its end (Keras on TensorFlow): that is of no step of training
        (
            "i0:0-1 w0:1-2 o:5 i1:10-11 w1:11-12 i1:20-21 i0:30-31 w0:31-32 o:40",
            [(0, 10), (30, 40)],
        ),
        # a loader that asks another one: the calls of that are parts of its own
        ("w1:1-4 w0:0-5 o:8 w1:11-12 w0:10-13 o:18 e1:21-22 e0:20-23", [(0, 10), (10, 20)]),
    ],
)
def test_steps(tmp_path: Path, text: str, steps: list[tuple[int, int]]) -> None:
    found = build_profile(read_journal(journal_of(tmp_path, text)))
    assert spans(found, SpanKind.STEP) == steps


def test_every_call_is_waited_for_and_loaders_are_told_apart(tmp_path: Path) -> None:
    text = "i0:0-8 w0:8-9 o:15 w0:20-21 o:25 e0:30-31 w1:40-44 e1:50-51"
    found = build_profile(read_journal(journal_of(tmp_path, text)))
    assert spans(found, SpanKind.INPUT_WAIT) == [(0, 9), (20, 21), (30, 31), (40, 44), (50, 51)]
    names = [found.names[k] for k in found.name[found.kind == SpanKind.INPUT_WAIT].tolist()]
    training, evaluation = "DataLoader 0 (D0, training)", "DataLoader 1 (D1, evaluation)"
    assert names == [training] * 3 + [evaluation] * 2
    assert spans(found, SpanKind.EPOCH) == [(0, 31)]


def test_what_lies_between_iterator_and_first_batch_is_no_wait(tmp_path: Path) -> None:
    found = build_profile(
        read_journal(journal_of(tmp_path, "i0:0-5 w0:6-9 o:10 e0:20-21 i0:30-35 w0:40-41"))
    )
    assert spans(found, SpanKind.INPUT_WAIT) == [(0, 9), (20, 21), (30, 35), (40, 41)]


def test_a_thread_that_fetches_ahead_does_not_make_training_wait(tmp_path: Path) -> None:
    path = journal_of(tmp_path, "o:5 o:15 o:25")
    other = 1 << written.THREAD_SHIFT | written.WAIT
    rows = [(other, 0, START + k * MS, START + (k + 1) * MS) for k in (0, 7, 17)]
    with path.open("ab") as file:
        file.write(np.array(rows, "<i8").tobytes())
    found = build_profile(read_journal(path))
    assert not spans(found, SpanKind.INPUT_WAIT)
    assert spans(found, SpanKind.STEP) == [(5, 15), (15, 25)]


def test_saves_and_loads_are_windows_of_the_thread_that_trains(tmp_path: Path) -> None:
    path = journal_of(
        tmp_path,
        # a load before training and one of a sample; a save that is renamed, one that is not yet
        "L1:0-9 L2:11-12 w0:10-13 o:15 C3:20-40 C3:45-46 w0:50-51 o:55 C4:60-70 w0:71-72 o:75 "
        "C4:76-77",
    )
    with path.open("ab") as file:
        for number in (1, 2, 3, 4):
            file.write(text_rows({"checkpoint": number, "path": f"/x/{number}", "call": "save"}))
        file.write(text_rows({"checkpoint": 3, "path": "/x/final", "call": "save"}))
        aside = written.CHECKPOINT | 5 << written.LOADER_SHIFT | 1 << written.THREAD_SHIFT
        file.write(np.array([(aside, 7, START, START + 70 * MS)], "<i8").tobytes())
    found = build_profile(read_journal(path))
    assert spans(found, SpanKind.LOAD) == [(0, 9)]
    assert spans(found, SpanKind.CHECKPOINT) == [(20, 46), (60, 70), (76, 77)]
    former = {call.path: call.former for call in found.checkpoint_calls if call.former}
    assert former == {"/x/final": ("/x/3",)}
    names = {call.path: (call.in_loop, call.nbytes) for call in found.checkpoint_calls}
    assert names == {
        "/x/1": (True, None), "/x/final": (True, None), "/x/4": (True, None), "": (False, 7),
    }  # fmt: skip


def test_collectives_are_those_of_the_thread_that_trains(tmp_path: Path) -> None:
    path = journal_of(tmp_path, "w0:0-5 x:6-9 o:10 w0:11-12 o:15 x:15-16")
    other = 1 << written.THREAD_SHIFT | written.COLLECTIVE
    with path.open("ab") as file:
        file.write(np.array([(other, 0, START, START + 3 * MS)], "<i8").tobytes())
    found = build_profile(read_journal(path))
    assert spans(found, SpanKind.COMMUNICATION) == [(6, 9), (15, 16)]
    assert spans(found, SpanKind.STEP) == [(0, 11), (11, 15)]


def test_a_cut_file_is_used_up_to_the_cut(tmp_path: Path) -> None:
    path = journal_of(tmp_path, "w0:0-1 o:5 w0:10-11 o:15")
    content = path.read_bytes()
    first = content.index(b"}") // 32 + 1  # rows until the process is described
    for size in range(32 * first, len(content)):
        path.write_bytes(content[:size])
        found = read_journal(path)
        assert len(found.events) == min(max(0, (size - len(content)) // 32 + 4 + END_ROWS), 4)
        assert bool(found.losses) == bool(size % 32)
        assert not found.ended
    path.write_bytes(content)
    assert read_journal(path).ended


@pytest.mark.parametrize("content", [b"", b"x" * 64, b"vanidl-steps 9".ljust(64)])
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "host-1.steps"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"expected steps recorded by vanidl record"):
        read_journal(path)
