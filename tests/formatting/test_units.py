from __future__ import annotations

import re

import pytest

from vanidl.formatting import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not recorded"),
        (float("nan"), "not recorded"),
        (0, "0 s"),
        (5e-8, "50.0 ns"),
        (3.2e-3, "3.20 ms"),
        (3.42e-3, "3.42 ms"),
        (0.9999, "1.00 s"),
        (9.995, "10.0 s"),
        (15.86, "15.9 s"),
        (99.999, "100 s"),
        (988.2, "988 s"),
        (1479, "1,480 s"),
        (7194.9, "7,190 s"),
        (7195, "2 h 0 min"),
        (11520, "3 h 12 min"),
        (100_000, "27.8 h"),
        (-2, "-2.00 s"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


def test_borders_have_no_zeros_that_nobody_measured():
    values = (2e-7, 1e-6, 2.5e-3, 0.02, 1, 50, 0, None)
    texts = ["200 ns", "1 µs", "2.5 ms", "20 ms", "1 s", "50 s", "0 s", "not recorded"]
    assert [units.border(value) for value in values] == texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not recorded"),
        (0, "0 B"),
        (1023, "1,023 B"),
        (0.3, "< 1 B"),
        (1024, "1 KiB"),
        (1_620_000_000, "1.51 GiB"),
        (1024**2 - 1, "1.00 MiB"),
        (1024**2, "1 MiB"),
        (8.3 * 1024**2, "8.30 MiB"),
        (1000.2 * 1024, "1,000 KiB"),
        (1023 * 1024, "1,020 KiB"),
        (1024**3 * 999.9, "1,000 GiB"),
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
        (0.01, "1 %"),
        (0.07, "7 %"),
        (0.0101, "1.0 %"),
        (0.0996, "10 %"),
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
    [(0.46, "0.460"), (1, "1.00"), (1.004, "1.00"), (0.9951, "0.995"), (0.0492, "0.0492"),
     (12.345, "12.3"), (1e-9, "< 0.001"), (123.4, "123"), (0, "0"), (None, "not recorded")],
)  # fmt: skip
def test_numbers_whose_unit_is_elsewhere(value, shown):
    assert units.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.4, "2.40 steps/s"), (143.7, "144 steps/s"), (12345.6, "12,300 steps/s"),
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


MEASURED = ("s", "bytes/s", "share", "factor", "ratio", "relative", "steps/s", "number")
BORDERS = (0.99949, 0.9995, 0.99995, 9.94, 9.95, 9.995, 99.94, 99.95, 99.995, 999.4, 999.5, 999.95)


@pytest.mark.parametrize("unit", MEASURED)
def test_no_quantity_has_more_than_three_digits(unit):
    """Whatever it is, and at the borders where it rounds up to the next power of ten."""
    for border in (0.0, 1.0, 7199.5, *BORDERS):
        for power in range(-12, 10):
            for sign in (1, -1) if unit == "s" else (1,):
                text = units.shown(sign * border * 10.0**power, unit)
                if "min" not in text and "<" not in text and not text.startswith((">", "equal")):
                    assert digits(text) <= 3 or text.endswith(" B/s"), (border, power, text)
                assert "e+" not in text
                assert "e-" not in text


def digits(text: str) -> int:
    """Significant digits of the one number in a text; zeros at the end of a whole one are none."""
    (number,) = re.findall(r"[\d.,]+", text)
    whole, _, part = number.replace(",", "").partition(".")
    return len((whole + part).lstrip("0") if part else whole.strip("0"))


def test_factors_have_three_digits_whatever_they_are():
    texts = [units.relative(value) for value in (2.18, 9.996, 11.02, 118.6, 11844.36)]
    assert texts == ["2.18 times", "10.0 times", "11.0 times", "119 times", "11,800 times"]


@pytest.mark.parametrize("unit", ["s", "bytes", "number"])
def test_what_is_measured_keeps_its_zeros(unit):
    """`8.30 MiB` beside `4.97 MiB`: three digits each; only a whole amount of data has fewer."""
    for value in (8.3, 8.0001, 0.46, 0.5, 12.04, 99.9, 1.0001):
        text = units.shown(value * (1024**2 if unit == "bytes" else 1), unit)
        (number,) = re.findall(r"[\d.,]+", text)
        assert len(number.replace(".", "").lstrip("0")) == 3, text


@pytest.mark.parametrize("border", BORDERS)
def test_one_value_is_one_unit_further_only_where_it_rounds_to_it(border):
    """No `1,000 ms` beside `1.00 s`."""
    for scale in (1e-9, 1e-6, 1e-3, 1.0):
        text = units.seconds(border * scale)
        if not text.endswith(" s"):
            assert float(text.split()[0]) < 1000


def test_hours_have_three_digits_too():
    for value in (7195, 59_969, 59_999, 1e6, 1e9):
        text = units.seconds(value)
        hours, _, minutes = text.removesuffix(" min").partition(" h")
        assert digits(hours) <= 3
        assert not minutes.strip() or int(hours) * 60 + int(minutes) <= 999


def test_a_column_has_one_unit():
    name, values = units.scaled([0.5, None, 3.0, 7200.0], "s")
    assert (name, values) == ("s", [0.5, None, 3.0, 7200.0])
    assert units.scaled([2.0**40, 3 * 2.0**30, 2.0**31], "bytes") == ("GiB", [1024.0, 3.0, 2.0])
    assert units.scaled([0.0, None], "bytes") == ("B", [0.0, None])


def test_places_in_time_keep_their_digits():
    assert units.instant(1234.5678) == "1,234.568 s"
    assert units.range_words(0, 0) == "0 s"
    assert units.range_words(0.00050001, 0.00050002) == "500 µs"
    assert units.range_words(-0.000466, 0.0014) == "-466 µs to 1.40 ms"
    assert units.range_words(1.5, 1.500001) == "1.500000 to 1.500001 s"


def test_a_rate_of_a_benchmark_is_no_power_of_ten():
    values = (12556.64, 46500.0, 9999.96, 66.38, 5.291, 0.0035, 1.0)
    texts = ["12,557", "46,500", "10,000", "66.38", "5.291", "0.0035", "1"]
    assert [units.four_digits(value) for value in values] == texts
