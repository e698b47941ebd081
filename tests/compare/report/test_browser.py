from __future__ import annotations

from itertools import cycle

import pytest

from tests.makers import browser
from tests.makers.comparisons import EXAMPLE_COMPARISONS
from vanidl.compare.report.html import write_comparison

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparisons")
    for name in EXAMPLE_COMPARISONS:
        write_comparison(EXAMPLE_COMPARISONS[name](), folder / f"{name}.html")
    return folder


@pytest.mark.parametrize(("name", "scheme"), [*zip(EXAMPLE_COMPARISONS, cycle(("light", "dark")))])
def test_page_draws_without_error_or_request(driver, pages, name, scheme):
    browser.sound_in_two_views(driver, pages / f"{name}.html", scheme)


def test_numbers_are_a_table_of_sorted_numbers(driver, pages):
    browser.opened(driver, pages / "slower.html", width=1400)
    cells = (
        "return [...document.querySelectorAll('#metrics tbody tr')]"
        ".map((tr) => [...tr.cells].map((td) => td.textContent))"
    )
    first = driver.execute_script(cells)[0]
    assert first[0] == "throughput"
    assert first[-1] == "worse"
    assert first[1].endswith(" steps/s")


def test_hostile_names_do_nothing(driver, pages):
    browser.opened(driver, pages / "hostile.html", width=1400)
    for tag in ("img", "svg[onload]", "b", "a[href^=http]"):
        assert driver.execute_script(f"return document.querySelectorAll('{tag}').length") == 0
    facts = driver.execute_script("return document.querySelector('.facts').textContent")
    assert "<script>alert(1)</script>" in facts
