from __future__ import annotations

from functools import partial
from itertools import cycle

import pytest

from tests.makers import browser
from tests.makers.accessibility import violations
from tests.makers.comparisons import EXAMPLE_COMPARISONS
from vanidl.compare.page import write_comparison

pytestmark = pytest.mark.browser

SCHEMES = dict(zip(EXAMPLE_COMPARISONS, cycle(("light", "dark"))))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparisons")
    for name in EXAMPLE_COMPARISONS:
        write_comparison(EXAMPLE_COMPARISONS[name](), folder / f"{name}.html")
    return folder


@pytest.fixture(scope="module", params=EXAMPLE_COMPARISONS)
def name(request):
    """An example; its tests follow each other, and its page is opened once for them."""
    return request.param


only = partial(pytest.mark.parametrize, "name", indirect=True)


def test_page_draws_without_error_or_request(driver, pages, name):
    browser.sound_in_two_views(driver, pages / f"{name}.html", SCHEMES[name])
    browser.keep(driver, pages / f"{name}.html")


@only(argvalues=["unlike"])
def test_a_word_in_a_tile_stays_in_it(chromium, pages, name):
    browser.opened(chromium, pages / f"{name}.html", width=1024)
    values = chromium.execute_script(
        "return [...document.querySelectorAll('.tile .value')]"
        ".map((e) => [e.textContent.trim(), e.scrollWidth - e.clientWidth])"
    )
    browser.reset(chromium)
    assert "not comparable" in dict(values)
    assert all(beyond <= 0 for _, beyond in values)


@only(argvalues=["slower"])
def test_numbers_are_a_table_of_sorted_numbers(shown):
    cells = (
        "return [...document.querySelectorAll('#metrics tbody tr')]"
        ".map((tr) => [...tr.cells].map((td) => td.textContent))"
    )
    first = shown.execute_script(cells)[0]
    assert first[0] == "throughput"
    assert first[-1] == "worse"
    assert first[1].endswith(" steps/s")


@only(argvalues=["hostile"])
def test_hostile_names_do_nothing(shown):
    for tag in ("img", "svg[onload]", "b", "a[href^=http]"):
        assert shown.execute_script(f"return document.querySelectorAll('{tag}').length") == 0
    facts = shown.execute_script("return document.querySelector('.facts').textContent")
    assert "<script>alert(1)</script>" in facts


@only(argvalues=["one_each", "slower"])
def test_pages_break_no_rule_of_axe(shown):
    browser.drop(shown)
    browser.resized(shown, 1024)
    browser.prefer(shown, "light")
    assert violations(shown) == []
    assert browser.tables_cut_on_paper(shown) == 0
