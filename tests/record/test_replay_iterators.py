"""Iterators of any kind, of classes and functions that are named, with batches from memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import vanidl
from tests.record import counted_loop
from vanidl.ceiling import measure
from vanidl.commands.arguments import size_of
from vanidl.errors import UsageError
from vanidl.readers.steps.journal import REPLAY, WAIT, read_journal
from vanidl.record import record
from vanidl.record.injected.vanidl_steps import CEILING_VARIABLE, journal, registry
from vanidl.record.injected.vanidl_steps.waits import Waits
from vanidl.record.steps import Replay

WARM_UP, BATCHES = 4, 10


class Batches:
    """An iterable, each pass over which is a generator."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = False

    def __iter__(self) -> Iterator[list[int]]:
        try:
            for k in range(BATCHES):
                self.made += 1
                yield [k]
        finally:
            self.closed = True


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Waits]:
    def make(epoch: str = "") -> Waits:
        monkeypatch.setenv(CEILING_VARIABLE, f"{WARM_UP},1000000,{epoch}")
        channel = registry.Channel("named", journal.Journal(str(tmp_path)))
        return Waits(channel, lambda *_: {"class": "Batches"})

    return make


def test_later_passes_are_the_first_whole_one_again(waits: Callable[..., Waits]) -> None:
    data, own = Batches(), waits()
    begun = own.following(Batches.__iter__, lambda loader: loader)
    passes = []
    for _ in range(3):
        passes.append([])
        for batch in begun(data):
            passes[-1].append(list(batch))
            batch.append("changed")
    assert data.made == BATCHES
    assert passes[0] == [[k] for k in range(BATCHES)]
    assert passes[1] == passes[2] == [[k % WARM_UP] for k in range(BATCHES)]
    assert own.channel.on


def test_a_pass_of_a_given_length_ends_its_generator(waits: Callable[..., Waits]) -> None:
    data = Batches()
    begun = waits("7").following(Batches.__iter__, lambda loader: loader)
    assert len(list(begun(data))) == 7
    assert (data.made, data.closed) == (WARM_UP, True)


def test_calls_with_equal_arguments_are_passes_over_the_same(waits: Callable[..., Waits]) -> None:
    made: list[tuple] = []

    def batches(split: str, *, count: int = 3) -> Iterator[int]:
        for k in range(count):
            made.append((split, k))
            yield k

    begun = waits().following(batches, lambda _: None)
    assert [list(begun("train")), list(begun("test", count=2))] == [[0, 1, 2], [0, 1]]
    assert [list(begun("train")), list(begun("test", count=2))] == [[0, 1, 2], [0, 1]]
    assert len(made) == 5
    assert list(begun("test", count=1)) == [0]
    assert len(made) == 6


def test_the_first_call_shows_whether_a_function_gives_an_iterator_or_a_batch(
    waits: Callable[..., Waits],
) -> None:
    own = waits()
    passes = own.waiting(lambda: iter([[1], [2]]))
    assert [list(passes()) for _ in range(3)] == [[[1], [2]]] * 3
    batch = [1, 2]
    give = own.waiting(lambda: batch)
    assert all(give() is batch for _ in range(3))


def test_who_asks_the_iterator_for_more_gets_it(waits: Callable[..., Waits]) -> None:
    data = Batches()
    begun = waits().following(Batches.__iter__, lambda loader: loader)
    list(begun(data))
    again = begun(data)
    assert next(again) == [0]
    assert again.gi_code.co_name == "__iter__"  # of a generator: made for that
    with pytest.raises(AttributeError, match="no_such"):
        _ = again.no_such


def test_what_is_recorded_is_what_was_waited_for(
    waits: Callable[..., Waits], tmp_path: Path
) -> None:
    data, own = Batches(), waits()
    begun = own.following(Batches.__iter__, lambda loader: loader)
    for _ in range(3):
        list(begun(data))
    own.channel.journal.close()
    (path,) = tmp_path.glob("*.steps")
    found = read_journal(path)
    assert len(found.loaders) == 1
    assert int((found.events.kind == WAIT).sum()) == 3 * BATCHES
    assert int((found.events.kind == REPLAY).sum()) == 2 * BATCHES


def test_a_program_is_measured_from_end_to_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command's output and status are its own; RUN has the ceiling afterwards."""
    from vanidl.cli import main

    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    words = ["--wait", "__main__:Slow", "--warm-up", "3", "--tracer", "none"]
    run = tmp_path / "RUN"
    status = main(
        ["ceiling", "-o", str(run), *words, "--", sys.executable, str(program), "{run}/made"]
    )
    out, err = capfd.readouterr()
    assert status == 0
    assert out == "60 batches\n" * 2
    assert "is of no value" in err
    assert [int((tmp_path / f"{name}/made").read_text()) for name in ("RUN", "RUN-ceiling")] == [
        60, 20,
    ]  # fmt: skip
    found = vanidl.open_run(run)
    assert found.ceiling.steps == 40
    assert found.ceiling.kept == 3
    assert found.ceiling.copying_s < found.ceiling.step_s
    assert "of the wall time of steps" in found.headline


PROGRAM = """
import pathlib, sys, time

class Slow:
    made = 0

    def __iter__(self):
        for k in range(20):
            time.sleep(0.002)
            self.made += 1
            yield [k]

data = Slow()
count = sum(len(batch) for _ in range(3) for batch in data)
print(count, "batches")
pathlib.Path(sys.argv[1]).write_text(str(data.made))
"""


def test_a_program_that_fails_has_no_ceiling(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from vanidl.cli import main

    words = ["-o", str(tmp_path / "RUN"), "--tracer", "none", "--", "sh", "-c", "exit 7"]
    assert main(["ceiling", *words]) == 7
    assert "exit status 7: no ceiling" in capfd.readouterr().err
    assert not (tmp_path / "RUN-ceiling").exists()


def test_a_loop_of_one_pass_has_no_ceiling(tmp_path: Path) -> None:
    command = [sys.executable, counted_loop.__file__, "alone", str(tmp_path)]
    named = ["__main__:Batches"]
    for name, replay in (("run", None), ("free", Replay(1))):
        record(command, tmp_path / name, tracer="none", waits=named, replay=replay)
    with pytest.raises(vanidl.InputError, match=r"Batches stayed real: .* \(--epoch-batches N"):
        measure(tmp_path / "run", tmp_path / "free")


@pytest.mark.parametrize(("text", "expected"), [("1GiB", 1 << 30), ("512 MB", 512 << 20), ("7", 7)])
def test_sizes(text: str, expected: int) -> None:
    assert size_of(text, "--memory") == expected


@pytest.mark.parametrize("text", ["", "3 apples", "-1", "1.5G"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="such as 512MiB"):
        size_of(text, "--memory")


@pytest.mark.parametrize("values", [(0, 1, None), (1, 0, None), (1, 1, 0)])
def test_numbers_that_make_no_sense(values: tuple) -> None:
    with pytest.raises(UsageError, match="expected at least 1 batch of warm-up"):
        Replay(*values)
