"""Contrast of text and lines on the page, light and dark (WCAG 2.2, 1.4.3 and 1.4.11)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vanidl.report.html
from vanidl.figures import palette

CSS = (Path(vanidl.report.html.__file__).parent / "templates/page.css").read_text()
TEXT = 4.5
LINE = 3.0


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def variables(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)[:2]
    return dict(re.findall(r"--(\w+): (#\w{6});", dark if scheme == "dark" else light))


def shown(colour: str, scheme: str) -> str:
    return palette.DARK[colour] if scheme == "dark" else colour


def test_black_on_white_is_21():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "wash"])
@pytest.mark.parametrize("name", ["ink", "soft", "link", "alert"])
def test_text_of_the_page(scheme, ground, name):
    colours = variables(scheme)
    assert contrast(colours[name], colours[ground]) >= TEXT


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_in_pictures(scheme):
    assert contrast(shown(palette.INK, scheme), shown(palette.PAPER, scheme)) >= TEXT
    assert shown(palette.PAPER, scheme) == variables(scheme)["paper"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["READ", "WRITE", "IN_WAIT", "SOFT", "BUSY", "CONSECUTIVE"])
def test_lines_and_buttons_of_pictures(scheme, name):
    colour = shown(getattr(palette, name), scheme)
    assert contrast(colour, shown(palette.PAPER, scheme)) >= LINE


def test_an_axis_of_few_things_names_no_part_of_one():
    few, many = palette.counts("files", 3), palette.counts("files", 4000)
    assert few["dtick"] == 1
    assert "dtick" not in many
    assert few["tickformat"] == many["tickformat"] == ","
