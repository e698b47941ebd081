from __future__ import annotations

import pytest

from vanidl.formatting import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not recorded"),
        (float("nan"), "not recorded"),
        (0, "0 s"),
        (5e-8, "50 ns"),
        (3.42e-3, "3.42 ms"),
        (0.9999, "1.00 s"),
        (15.86, "15.86 s"),
        (99.999, "100 s"),
        (988.2, "988 s"),
        (7199.4, "7,199 s"),
        (11520, "3 h 12 min"),
        (-2, "-2.00 s"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not recorded"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1_620_000_000, "1.51 GiB"),
        (1024**2 - 1, "1 MiB"),
        (1024**3 * 999.9, "1000 GiB"),
    ],
)
def test_nbytes(value, text):
    assert units.nbytes(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "not recorded"),
        (0, "0 %"),
        (1, "100 %"),
        (0.0004, "< 0.1 %"),
        (0.016, "1.6 %"),
        (0.63, "63 %"),
        (0.9996, "> 99.9 %"),
        (0.994, "99.4 %"),
    ],
)
def test_percent_never_says_none_or_all_of_something(share, text):
    assert units.percent(share) == text


def test_counts_and_cells():
    assert units.plural(1, "rank") == "1 rank"
    assert units.plural(1024, "rank") == "1,024 ranks"
    assert units.shown(None, "bytes") == "not recorded"
    assert units.shown(2048, "bytes/s") == "2 KiB/s"
    assert units.shown("x", "count") == "x"
    assert units.shown(1.25, "factor") == "1.25x"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.46, "0.46"), (1, "1.00"), (1.004, "1.004"), (0.9951, "0.995"), (0.0492, "0.0492"),
     (12.345, "12.35"), (123.4, "123"), (0, "0"), (None, "not recorded")],
)  # fmt: skip
def test_ratio(value, shown):
    assert units.ratio(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.4, "2.40 steps/s"), (143.7, "144 steps/s"), (12345.6, "12,346 steps/s"),
     (0.0312, "0.0312 steps/s"), (None, "not recorded")],
)  # fmt: skip
def test_steps_per_second(value, shown):
    assert units.steps_per_second(value) == shown


def test_an_amount_brings_its_unit():
    assert units.shown(units.Amount(2048, "bytes"), "ratio") == "2 KiB"
    assert units.shown(units.Amount(None, "s"), "ratio") == "not recorded"


@pytest.mark.parametrize(
    ("value", "words"),
    [(2.41, "2.4 times"), (10.2, "10 times"), (118.6, "119 times"), (11844.36, "11,800 times")],
)
def test_large_factors_are_said_in_words(value, words):
    assert units.times(value) == words
