from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.makers.event_files import Event, crc32c, event_file
from vanidl.encoding.crc32c import masked_crcs
from vanidl.errors import InputError
from vanidl.model.trace import SpanKind
from vanidl.readers.tensorboard.event_file import read_events, read_steps

NAME = "events.out.tfevents.1700000000.node07.4242.0"
T0 = 1_700_000_000.0


def written(folder: Path, events: list[Event], name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(event_file(events))
    return path


def every(count: int, *, first: int = 0, at: float = T0, tags=("loss",), stride=1) -> list[Event]:
    return [Event(at + 0.25 * i, first + stride * i, tags) for i in range(count)]


def test_a_step_lasts_from_the_mark_before_it_to_its_own(tmp_path):
    (profile,) = read_steps(written(tmp_path, every(4, first=10)))
    assert profile.step.tolist() == [11, 12, 13]
    assert (profile.start_ns - int(T0) * 10**9).tolist() == [0, 250_000_000, 500_000_000]
    assert (profile.end_ns - profile.start_ns).tolist() == [250_000_000] * 3
    assert set(profile.kind.tolist()) == {SpanKind.STEP}
    assert (profile.host, profile.pid, profile.rank, profile.every) == ("node07", 4242, None, 1)
    assert (profile.names, profile.losses) == (("loss",), ())


def test_a_falling_step_number_starts_a_new_segment(tmp_path):
    events = [*every(4), *every(3, at=T0 + 50)]
    first, second = read_steps(written(tmp_path, events))
    assert (first.step.tolist(), second.step.tolist()) == ([1, 2, 3], [1, 2])
    assert second.start_ns[0] == round((T0 + 50) * 1e9)


def test_a_step_that_was_marked_twice_counts_once(tmp_path):
    events = [Event(T0, 0), Event(T0 + 1, 1), Event(T0 + 1.5, 1), Event(T0 + 2, 2)]
    (profile,) = read_steps(written(tmp_path, events))
    assert profile.step.tolist() == [1, 2]
    assert (profile.end_ns - profile.start_ns).tolist() == [10**9, 10**9]


def test_the_tag_with_most_steps_is_taken_unless_another_is_named(tmp_path):
    events = [*every(9, tags=("loss", "accuracy")), *every(3, at=T0 + 20, tags=("epoch:loss",))]
    path = written(tmp_path, events)
    assert [len(p.step) for p in read_steps(path)] == [8]
    assert [p.names for p in read_steps(path)] == [("loss",)]
    assert [len(p.step) for p in read_steps(path, "epoch:loss")] == [2]
    assert read_steps(path, "nothing") == ()


def test_rare_marks_stand_for_many_steps(tmp_path):
    (profile,) = read_steps(written(tmp_path, every(5, stride=50)))
    assert (profile.every, profile.step.tolist()) == (50, [50, 100, 150, 200])


def test_the_rank_is_in_the_name_of_the_folder(tmp_path):
    ranks = {"rank3": 3, "run_rank-12": 12, "frank": None, "train": None}
    for folder, rank in ranks.items():
        assert read_steps(written(tmp_path / folder, every(3)))[0].rank == rank


def test_pictures_are_stepped_over(tmp_path):
    events = every(3)
    events.insert(1, Event(T0, 7, ("picture",), padding=70_000))
    content = read_events(written(tmp_path, events))
    assert list(content.tags) == ["loss"]
    assert content.tags["loss"].step.tolist() == [0, 1, 2]


def test_negative_steps_are_read_as_such(tmp_path):
    content = read_events(written(tmp_path, [Event(T0, -1), Event(T0 + 1, 0)]))
    assert content.tags["loss"].step.tolist() == [-1, 0]


@pytest.mark.parametrize("cut", [1, 5, 20, 43, 80])
def test_a_cut_file_gives_its_whole_events(tmp_path, cut):
    path = written(tmp_path, every(10))
    whole = read_events(path).tags["loss"].step.tolist()
    path.write_bytes(path.read_bytes()[:-cut])
    content = read_events(path)
    steps = content.tags["loss"].step.tolist()
    assert steps == whole[: len(steps)]
    assert 7 <= len(steps) < 10
    assert ("missing" in content.losses[0]) or ("longer" in content.losses[0])


def test_every_flipped_bit_ends_the_reading_there(tmp_path):
    path = written(tmp_path, every(6))
    data = path.read_bytes()
    whole = read_events(path).tags["loss"]
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            content = read_events(path)
        except InputError:
            assert at < 40
            continue
        assert content.losses
        marks = content.tags.get("loss")
        if marks is not None:
            assert np.array_equal(marks.wall_ns, whole.wall_ns[: len(marks.wall_ns)])


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b"\0" * 11])
def test_what_is_no_event_file(tmp_path, content):
    path = tmp_path / NAME
    path.write_bytes(content)
    with pytest.raises(InputError, match="expected a TensorBoard event file"):
        read_events(path)


def test_no_file_and_an_empty_one(tmp_path):
    with pytest.raises(InputError, match="check the path"):
        read_events(tmp_path / NAME)
    (tmp_path / NAME).touch()
    assert read_events(tmp_path / NAME).tags == {}
    assert read_steps(tmp_path / NAME) == ()


def test_checksums_against_a_known_one_and_a_plain_loop():
    text = b"123456789"
    assert crc32c(text) == 0xE3069283
    crc = 0xE3069283
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crcs(b"__" + text, [(2, 11)]).tolist() == [masked]
    assert masked_crcs(b"", []).tolist() == []


def test_shared_event_files_equal_tensorboard(shared: Path):
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader", reason="the oracle"
    )
    paths = sorted((shared / "data").rglob("events.out.tfevents.*"))
    assert len(paths) > 10
    for path in paths:
        rows = [
            (value.tag, e.wall_time, e.step)
            for e in loader.EventFileLoader(str(path)).Load()
            for value in e.summary.value
        ]
        mine = read_events(path)
        assert mine.losses == ()
        assert sorted(mine.tags) == sorted({tag for tag, _, _ in rows})
        for tag, marks in mine.tags.items():
            wall_s, step = zip(*((w, s) for t, w, s in rows if t == tag), strict=True)
            assert marks.step.tolist() == list(step)
            assert np.abs(marks.wall_ns / 1e9 - np.array(wall_s)).max() < 1e-6
