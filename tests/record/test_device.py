"""Event pairs around the steps, on a device that is made up: no GPU was at hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

import vanidl
from vanidl.readers.steps.journal import DEVICE, read_journal
from vanidl.record.injected.vanidl_steps import device, journal, registry

MS = 1_000_000


class Event:
    """One of a stream that is behind: it is reached so many looks later."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.at_ms = -1.0

    def record(self) -> None:
        self.cuda.recorded += 1
        self.at_ms = self.cuda.now_ms
        self.reached_after = self.cuda.recorded + self.cuda.behind

    def query(self) -> bool:
        return self.cuda.recorded >= self.reached_after

    def elapsed_time(self, later: Event) -> float:
        assert later.query(), "this waits for the device"
        return later.at_ms - self.at_ms


@dataclass
class Cuda:
    behind: int = 0  # events that are recorded before one is reached
    initialized: bool = True
    capturing: bool = False
    now_ms: float = 0.0
    recorded: int = 0
    made: list[Event] = field(default_factory=list)

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Event(self, *, enable_timing: bool) -> Event:
        assert enable_timing
        self.made.append(Event(self))
        return self.made[-1]


def train(folder: Path, cuda: Cuda, steps: int, *, batches: int = 1) -> list[int]:
    """Steps of 1, 2, 3... ms on the device; what was recorded of them, in ms."""
    events = journal.Journal(str(folder))
    own = device.Device(registry.Channel("device", events), cuda)
    for step in range(1, steps + 1):
        for _ in range(batches):
            own.before_wait()
            own.after_wait()
        cuda.now_ms += step
        own.after_optimizer()
        own.after_optimizer()
    own.before_wait()
    events.add(journal.OPTIMIZER, 0, 1, 1)
    events.close()
    (path,) = folder.glob("*.steps")
    found = read_journal(path).events
    mine = found.pick(found.kind == DEVICE)
    assert (mine.number >= 0).all()
    return ((mine.end - mine.begin) // MS).tolist()


@pytest.mark.parametrize("batches", [1, 3])
def test_each_step_has_a_pair(tmp_path: Path, batches: int) -> None:
    cuda = Cuda()
    found = train(tmp_path, cuda, 20, batches=batches)
    assert found[-19:] == list(range(2, 21))  # until the optimizer is known a batch is a step
    assert len(cuda.made) <= 4  # they are used again


def test_a_device_that_is_behind_is_not_waited_for(tmp_path: Path) -> None:
    found = train(tmp_path, Cuda(behind=20), 40)
    assert found == list(range(1, 31))  # of the last ten steps it has not reached the end


def test_of_a_device_that_never_gets_there_no_more_is_kept(tmp_path: Path) -> None:
    cuda = Cuda(behind=10**9)
    assert train(tmp_path, cuda, 1_000) == []
    assert len(cuda.made) <= 2 * device.MOST_PENDING + 1


@pytest.mark.parametrize("cuda", [Cuda(initialized=False), Cuda(capturing=True)])
def test_nothing_is_recorded_where_that_would_do_harm(tmp_path: Path, cuda: Cuda) -> None:
    assert train(tmp_path, cuda, 5) == []
    assert not cuda.made


def test_the_steps_say_how_long_the_device_was_at_them(tmp_path: Path) -> None:
    events = journal.Journal(str(tmp_path))
    start = 1_700_000_000 * 1000 * MS
    for step in range(10):
        at = start + step * 100 * MS
        events.add(journal.DEVICE, 80 * MS, at, at + 60 * MS)
        events.add(journal.OPTIMIZER, 0, at + 90 * MS, at + 90 * MS)
    events.close()
    run = vanidl.open_run(tmp_path)
    assert run.steps is not None
    assert run.steps.device is not None
    assert run.steps.device.steps == 10
    assert run.steps.device.device_s == pytest.approx(0.6)
    assert run.steps.device.host_s == pytest.approx(0.8)
