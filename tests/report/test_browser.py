from __future__ import annotations

import pytest

from tests import browser
from tests.example_results import EXAMPLES
from vanidl.report.html import write_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "installed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium's pipes, closed by quit
]


@pytest.fixture(scope="module", params=[False, True], ids=["light", "dark"])
def driver(request):
    with browser.chromium(dark=request.param) as driver:
        driver.shots = "dark" if request.param else "light"
        yield driver


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name in EXAMPLES:
        write_html(*EXAMPLES[name](), folder / f"{name}.html")
    return folder


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [1400, 400])
def test_page_draws_without_error_or_request(driver, pages, name, width):
    browser.opened(driver, pages / f"{name}.html", width=width)
    browser.screenshot(driver, pages / f"{name}-{width}-{driver.shots}.png")
    assert browser.console_errors(driver) == []
    assert browser.requests(driver) == []
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert (
        driver.execute_script(
            "return [...document.querySelectorAll('.plot')]"
            ".filter((p) => p.offsetParent && !p.querySelector('svg.main-svg')).length"
        )
        == 0
    )
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_driver_sees_errors_and_requests(driver, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<script>fetch('http://127.0.0.1:9/x'); throw new Error('seen')</script>")
    browser.opened(driver, page, width=800)
    assert any("seen" in message for message in browser.console_errors(driver))
    assert browser.requests(driver) == ["http://127.0.0.1:9/x"]


def test_the_policy_stops_what_would_slip_in(driver, pages, tmp_path):
    text = (pages / "nothing.html").read_text(encoding="utf-8")
    page = tmp_path / "slipped.html"
    slipped = "<script>window.slipped = 1; fetch('http://127.0.0.1:9/x')</script><img src=x>"
    page.write_text(text.replace("<main>", "<main>" + slipped), encoding="utf-8")
    browser.opened(driver, page, width=800)
    assert driver.execute_script("return window.slipped") is None
    assert browser.requests(driver) == []
    assert any("Content Security Policy" in m for m in browser.console_errors(driver))


def rows(driver) -> list[list[str]]:
    return driver.execute_script(
        "return [...document.querySelectorAll('#files tbody tr')]"
        ".map((tr) => [...tr.cells].map((td) => td.textContent))"
    )


def test_files_sort_and_filter(driver, pages):
    browser.opened(driver, pages / "full.html", width=1400)
    column = 6
    button = f"document.querySelectorAll('#files th button')[{column}].click()"
    assert rows(driver)[0][column] == "10 ms"
    driver.execute_script(button)
    assert rows(driver)[0][column] == "600 ms"
    driver.execute_script(button)
    assert rows(driver)[0][column] == "10 ms"
    driver.execute_script(
        "const i = document.querySelector('#files input'); i.value = 'SHARD 00042';"
        "i.dispatchEvent(new Event('input'))"
    )
    assert [row[0] for row in rows(driver)] == ["/data/imagenet/train/shard-00042.tar"]
    status = driver.execute_script("return document.querySelector('#files .status').textContent")
    assert status.startswith("1 row")


def test_hostile_names_are_shown_and_do_nothing(driver, pages):
    browser.opened(driver, pages / "hostile.html", width=1400)
    paths = [row[0] for row in rows(driver)]
    assert "/data/</script><script>alert(1)</script>.h5" in paths
    for tag in ("img", "svg[onload]", "a[href^=http]", "b"):
        assert driver.execute_script(f"return document.querySelectorAll('{tag}').length") == 0
    assert "49" not in paths[1]


def test_tables_open_under_their_pictures(driver, pages):
    browser.opened(driver, pages / "full.html", width=1400)
    driver.execute_script("document.querySelector('#overlap summary').click()")
    driver.execute_async_script("setTimeout(arguments[0], 50)")
    text = driver.execute_script("return document.querySelector('#overlap table').textContent")
    assert "rank 3" in text
    assert "18.44 s" in text


def test_zoom_in_one_picture_of_time_zooms_the_others(driver, pages):
    browser.opened(driver, pages / "full.html", width=1400)
    ranges = (
        "return [...document.querySelectorAll('.plot')].filter((p) => p.layout && p.layout.meta)"
        ".map((p) => p._fullLayout.xaxis.range.map((v) => Math.round(v * 1000) / 1000))"
    )
    whole = driver.execute_script(ranges)
    zoom = (
        "Plotly.relayout(document.querySelector('#timeline .plot'), {'xaxis.range': RANGE})"
        ".then(() => setTimeout(arguments[0], 300))"
    )
    driver.execute_async_script(zoom.replace("RANGE", "[10, 12]"))
    assert driver.execute_script(ranges) == [[10, 12]] * 2
    driver.execute_async_script(zoom.replace("RANGE", "[0, 31.4]"))
    assert driver.execute_script(ranges) == whole


def test_printing_draws_and_opens_everything(driver, pages):
    browser.opened(driver, pages / "full.html", width=1400)
    driver.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    closed = "return [...document.querySelectorAll('details')].filter((d) => !d.open).length"
    assert driver.execute_script(closed) == 0
    driver.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert driver.execute_script(closed) > 0
