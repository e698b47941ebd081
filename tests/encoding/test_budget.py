"""The law of every reader: what a file costs is bounded by its size, whatever it says.

Memory: at most 64 MB + 40 x the file's size + what the result holds. Time is bounded by the same
budgets, as every byte and object takes a bounded number of steps; these are counted instead of
seconds. `python -m benchmarks.vanidl.hostile_shapes` measures the seconds.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.fuzz import costs, verdicts
from tests.fuzz.readers import READERS
from tests.fuzz.shapes import SHAPES, Shape, darshan
from tests.makers.darshan_logs import Log, log_parts
from vanidl.check import check
from vanidl.encoding import budget
from vanidl.encoding.budget import Budget, bounded_name, read_whole, whole_number
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError
from vanidl.readers import verdict
from vanidl.readers.registry import FORMATS

MB = 1 << 20


def written(tmp_path: Path, shape: Shape, count: int) -> tuple[Path, int]:
    """The file of a shape, and its size."""
    path = tmp_path / READERS[shape.reader].name
    path.parent.mkdir(exist_ok=True)
    return path, path.write_bytes(shape.make(count))


@pytest.mark.parametrize(
    ("take", "field"),
    [("inflate", "text_bytes"), ("hold", "held_bytes"), ("parse", "values"), ("divide", "pieces")],
)
@pytest.mark.parametrize("size", [0, 511, 512, 10_000])
def test_a_budget_is_used_up_by_its_last_unit_and_overdrawn_by_one_more(take, field, size) -> None:
    left = {
        "text_bytes": budget.FREE_TEXT_BYTES + 64 * size,
        "held_bytes": budget.FREE_BYTES + 32 * size,
        "values": budget.FREE_VALUES + size,
        "pieces": budget.FREE_PIECES + size // 512,
    }[field]
    assert getattr(Budget.of_file(size), field) == left
    for more, fits in ((-1, True), (0, True), (1, False)):
        assert getattr(Budget.of_file(size), take)(left + more) == fits
    twice = Budget.of_file(size)
    assert getattr(twice, take)(left - 1)
    assert getattr(twice, take)(1)
    assert not getattr(twice, take)(1)


@pytest.mark.parametrize("digits", [18, 19])
def test_a_number_of_more_digits_than_64_bits_hold_is_none(digits) -> None:
    text = "9" * digits
    assert whole_number(text) == (int(text) if digits == 18 else None)


@pytest.mark.parametrize("more", [0, 1])
def test_a_name_is_kept_up_to_the_longest_path(more) -> None:
    name = "n" * (4096 + more)
    assert (bounded_name(name) == name) == (more == 0)


@pytest.mark.parametrize("character", ["n", "é", "\U0001f600"])
def test_a_long_name_in_bytes_is_bounded_as_it_is_in_text(character) -> None:
    name = character * (budget.MOST_NAME_BYTES + 1)
    assert budget.decode_long_name(memoryview(name.encode())) == bounded_name(name)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a fork's memory by itself")
@pytest.mark.parametrize("name", SHAPES)
def test_a_file_costs_no_more_memory_than_its_size_allows(tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    path, size = written(tmp_path, shape, shape.count)
    peak, held = verdicts.memory(path, shape.reader)
    assert peak - held <= 64 * MB + 40 * size


FEWEST = 50  # things: where a square would show beside what every file costs
NOISE = 3000  # steps


@pytest.mark.parametrize("name", SHAPES)
def test_steps_grow_with_the_number_of_things_and_not_with_its_square(
    tmp_path: Path, name: str
) -> None:
    """Lines of Python and calls in C instead of seconds, which no test can rely on."""
    shape = SHAPES[name]
    least = shape.few or max(min(shape.count // 16, max(FEWEST, shape.count // 1000)), 1)
    read = READERS[shape.reader].read
    # The first one imports and fills caches.
    found = [costs.steps(read, written(tmp_path, shape, least * k)[0]) for k in (1, 1, 2, 4)]
    assert found[3] - found[2] <= 2.5 * max(found[2] - found[1], 0) + NOISE


@pytest.mark.parametrize(
    "name", ["members of events", "an array of nothing", "empty traces", "planes of nothing"]
)
def test_a_limit_is_named_with_its_number_and_the_option_that_raises_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shape = SHAPES[name]
    path, _ = written(tmp_path, shape, shape.count)
    (limited,) = check.check([path])
    assert limited.state == verdict.LIMITED
    said = " ".join(limited.missing)
    assert re.search(r"more than [\d,.]+ \w+.*\(--max-memory raises it\)", said)
    assert "is cut" not in said
    monkeypatch.setenv(budget.VARIABLE, str(8 << 30))
    (raised,) = check.check([path])
    assert raised.state != verdict.LIMITED
    assert not any("--max-memory" in text for text in raised.missing)


def test_every_format_has_hostile_files() -> None:
    of_format = {
        "darshan": "darshan", "pytorch": "kineto", "tensorboard": "tfevents", "xprof": "xplane",
        "dftracer": "dftracer", "steps": "steps", "objects": "objects", "dlio": "dlio",
        "vanidl": "calls", "states": "states", "rocprof": "rocprof",
    }  # fmt: skip
    tried = {shape.reader for shape in SHAPES.values()}
    assert {of_format[known.name] for known in FORMATS} <= {name.split()[0] for name in tried}
    assert {name.removesuffix(" gzip") for name in READERS} == {
        name.removesuffix(" gzip") for name in tried
    }


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a fork's memory by itself")
def test_memory_is_what_was_taken(tmp_path: Path) -> None:
    """A reader that holds a fifth of what it takes."""

    def read(path: Path) -> list[bytes]:
        taken = bytes(b"x" * 50 * MB)
        return [taken[: 10 * MB]]

    peak, held = costs.memory(read, tmp_path)
    assert 55 * MB < peak < 70 * MB
    assert 10 * MB <= held < 10 * MB + 1000


def test_the_budget_is_one_for_all_regions_of_a_log(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(budget, "FREE_TEXT_BYTES", 1 * MB)
    monkeypatch.setattr(budget, "TEXT_BYTES_A_BYTE", 0)
    inflated = 0
    keep = Budget.inflate

    def count(self: Budget, nbytes: int) -> bool:
        nonlocal inflated
        inflated += nbytes
        return keep(self, nbytes)

    monkeypatch.setattr(Budget, "inflate", count)
    path = tmp_path / "x.darshan"
    path.write_bytes(darshan(*((n, 1, bytes(MB // 2)) for n in range(20, 60))))
    READERS["darshan"].read(path)
    # The last to be refused gives one byte too many; each after it one more.
    assert inflated <= MB + MB // 2 + 100


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), MemoryError(), RecursionError(), ZeroDivisionError(), StopIteration()],
)
def test_whatever_goes_wrong_is_the_verdict_of_the_file(error: Exception) -> None:
    def read(path: Path) -> None:
        raise error

    with pytest.raises(InputError, match=r"^/x/log: expected") as found:
        read_one(read, Path("/x/log"))
    assert found.value.__cause__ is error


def test_an_interruption_is_no_verdict() -> None:
    def read(path: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_one(read, Path("x"))


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("17", 17), ("", None), ("-1", None), ("²", None), ("٣", None), ("9" * 5001, None)],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_long_names_stay_different() -> None:
    names = ["a" * 5000 + end for end in ("b", "c", "\ud800")]
    short = [bounded_name(name) for name in names]
    assert len(set(short)) == 3
    assert all(len(name) <= budget.MOST_NAME_CHARACTERS for name in short)
    assert bounded_name("a" * 4096) == "a" * 4096


def test_a_sparse_file_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(budget, "_memory_bytes", lambda: 1000)
    (tmp_path / "x").write_bytes(bytes(501))
    with pytest.raises(InputError, match="fits into memory"):
        read_whole(tmp_path / "x")


def test_many_unreadable_logs_give_few_warnings(tmp_path: Path) -> None:
    from vanidl.merge.pipeline import Inputs, read_trace

    (tmp_path / "x.pfw").write_bytes(READERS["dftracer"].content)
    for i in range(130):
        (tmp_path / f"{i}.darshan").touch()
    warnings = read_trace(tmp_path, Inputs()).warnings
    found = [w.message for w in warnings if w.code == "unreadable"]
    assert len(found) == 101
    assert found[-1].startswith("and 30 more files")


def test_many_unreadable_logs_are_counted(tmp_path: Path) -> None:
    from vanidl.merge.pipeline import Inputs, read_trace

    for i in range(130):
        (tmp_path / f"{i}.darshan").touch()
    with pytest.raises(InputError, match="none of 130 files could be read"):
        read_trace(tmp_path, Inputs())


def test_parts_of_a_log_still_come_together() -> None:
    """The writer above is the one that the other tests use, with regions of any number."""
    assert darshan() == b"".join(log_parts(Log()))
