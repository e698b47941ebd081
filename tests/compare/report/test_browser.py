from __future__ import annotations

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


@pytest.mark.parametrize("name", EXAMPLE_COMPARISONS)
@pytest.mark.parametrize(
    ("scheme", "other", "width"), [("light", "dark", 1400), ("dark", "light", 400)]
)
def test_page_draws_without_error_or_request(driver, pages, name, scheme, other, width):
    """Opened in one scheme, then changed to the other as at sunset."""
    browser.prefer(driver, scheme)
    browser.opened(driver, pages / f"{name}.html", width=width)
    before = browser.sound_inks(driver, width)
    browser.prefer(driver, other)
    assert len(browser.sound_inks(driver, width, before=before)) == len(before)


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
