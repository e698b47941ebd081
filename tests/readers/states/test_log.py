"""Files of sampled states: against a writer of what their description says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.makers import states_files
from tests.makers.states_files import START_NS, StatesFile
from vanidl.errors import InputError
from vanidl.model.states import READ_BYTES
from vanidl.readers import states
from vanidl.readers.format import Reading
from vanidl.readers.states.log import StatesLog, read_states


def read(folder: Path, content: bytes) -> StatesLog:
    path = folder / "node01-7.states"
    path.write_bytes(content)
    return read_states(path)


def test_every_thread_has_its_samples_in_order_of_time(tmp_path: Path) -> None:
    written = StatesFile(late=frozenset({2}))
    log = read(tmp_path, written.content())
    assert (log.period_us, log.ended, log.left_out, log.forbidden) == (5000, True, False, ())
    assert not log.losses
    assert [(t.host, t.pid, t.tid, t.parent_pid) for t in log.states.threads] == [
        ("node01", *row) for row in written.threads
    ]
    for number, thread in enumerate(log.states.threads):
        mine = [(k, s) for k, s in enumerate(written.samples) if s[0] == number]
        found = thread.samples
        assert found.time.tolist() == [START_NS + s[1] * 10**6 for _, s in mine]
        assert found.kind.tolist() == [s[2] for _, s in mine]
        assert found.delay_us.tolist() == [s[4] for _, s in mine]
        assert found.late.tolist() == [k == 2 for k, _ in mine]
        names = [thread.paths[f].encode() if f >= 0 else b"" for f in found.file.tolist()]
        known = [written.names[s[3] - 1] if s[3] else b"" for _, s in mine]
        assert [name[:6] for name in names] == [name[:6] for name in known]
    first = log.states.threads[0]
    assert first.ticks.tolist() == [[START_NS + 12 * 10**6, 70, 30]]
    assert first.moved.tolist() == [[START_NS + 12 * 10**6, READ_BYTES, (1 << 40) + 5]]
    assert [t.is_first for t in log.states.threads] == [True, False, True]


@pytest.mark.filterwarnings("error")
def test_the_thread_of_the_largest_number_has_its_samples(tmp_path: Path) -> None:
    last = (1 << 16) - 1
    more = states_files.row(states_files.THREAD, 60, last, 1, 60, 42)
    more += states_files.row(states_files.READ, 20_000, last, 0, 0, 0)
    log = read(tmp_path, StatesFile(more=more).content())
    assert [len(t.samples) for t in log.states.threads if t.tid == 60] == [1]


@pytest.mark.parametrize(("flags", "missed"), [(0, -1), (1, -1), (2, 0), (30, 28), (255, 253)])
def test_in_how_many_rounds_a_thread_was_not_known(tmp_path: Path, flags: int, missed: int) -> None:
    """Files of before say nothing of it."""
    more = states_files.row(states_files.THREAD, 60, 9, flags, 61, 42)
    log = read(tmp_path, StatesFile(more=more).content())
    assert [t.missed for t in log.states.threads if t.tid == 61] == [missed]


def test_a_file_that_is_cut_has_what_lies_before(tmp_path: Path) -> None:
    content = StatesFile().content()
    whole = [len(t.samples) for t in read(tmp_path, content).states.threads]
    for end in range(16, len(content), 5):
        log = read(tmp_path, content[:end])
        assert bool(log.losses) == bool(end % 16)
        assert not log.ended
        found = [len(t.samples) for t in log.states.threads]
        assert all(a <= b for a, b in zip(found, whole, strict=False))


def test_samples_before_any_time_are_left_out_and_counted(tmp_path: Path) -> None:
    early = states_files.row(states_files.READ, 5, 0, 0, 0, 0)
    content = StatesFile().content()
    at = len(states_files.MAGIC) + len(states_files.text(5000, b"node01", 1))
    log = read(tmp_path, content[:at] + early + content[at:])
    assert log.losses == ("samples left out as their time is not known: 1",)


def test_what_the_system_forbids_is_said_and_other_kinds_are_passed_over(tmp_path: Path) -> None:
    left = states_files.row(states_files.LEFT_OUT, 77, 0, 1, 0, 0)
    many = states_files.row(states_files.LEFT_OUT)
    later = states_files.row(0xF9, 1, 2, 3, 4, 5)
    path = tmp_path / "x.states"
    path.write_bytes(StatesFile(more=left + left + many + later).content())
    log = read_states(path)
    assert log.forbidden == (77,)
    assert log.left_out
    records = states.FORMAT.read({"states": (path,)}, Reading(lambda *_: None))
    assert [n.code for n in records.notices] == ["states_forbidden"] * 2
    assert len(records.states) == 3


@pytest.mark.parametrize("content", [b"", b"vanidl-states 2\n", b"something else entirely"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match="expected states of threads"):
        read(tmp_path, content)
