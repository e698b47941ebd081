"""What differs between sides, from their commands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.makers.results import EXAMPLES
from vanidl.compare import Sample, Side, compare
from vanidl.compare.text import list_differences


def side(letter: str, *commands: str, ranks: int = 1) -> Side:
    made = EXAMPLES["full"]()
    samples = tuple(
        Sample(letter, replace(made.trace.job, command=command), ("rank",) * ranks, made.results)
        for command in commands
    )
    return Side(letter, letter, samples)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("train.py --workers 0", "train.py --workers 4", "--workers 0 → --workers 4"),
        ("train.py", "train.py --fast", "nothing → --fast"),
        ("train.py --lr=1 x", "train.py --lr=2 x", "--lr=1 → --lr=2"),
        ("train.py 'a b' c", "train.py 'a d' c", "a b → a d"),
        ("train.py --a 1 --b 2", "train.py --a 3 --b 4", "--a 1 --b 2 → --a 3 --b 4"),
        ("train.py 'open", "train.py open", "'open → open"),
    ],
)
def test_words_that_differ(a: str, b: str, words: str) -> None:
    assert list_differences(compare([side("A", a), side("B", b)])) == (("command", words),)


def test_what_is_the_same_is_not_listed() -> None:
    assert list_differences(compare([side("A", "x"), side("B", "x")])) == ()


def test_repeats_that_differ_among_themselves_say_nothing() -> None:
    assert list_differences(compare([side("A", "x", "y"), side("B", "z")])) == ()


def test_ranks_and_several_sides() -> None:
    three = compare([side("A", "x"), side("B", "x", ranks=4), side("C", "y")])
    assert list_differences(three) == (("B: ranks", "1 rank → 4 ranks"), ("C: command", "x → y"))


def test_a_command_without_end_is_compared_as_a_whole() -> None:
    long = " ".join(map(str, range(5000)))
    found = list_differences(compare([side("A", long), side("B", long + " more")]))
    assert found == (("command", "one command → another"),)
