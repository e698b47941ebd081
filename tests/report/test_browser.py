from __future__ import annotations

import re
from functools import partial
from itertools import cycle

import pytest

from tests.makers import browser
from tests.makers.accessibility import violations
from tests.makers.results import EXAMPLES
from vanidl.formatting import units
from vanidl.report.html import write_html

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name in EXAMPLES:
        write_html(EXAMPLES[name]().run, folder / f"{name}.html")
    return folder


SCHEMES = dict(zip(EXAMPLES, cycle(("light", "dark"))))


@pytest.fixture(scope="module", params=reversed(EXAMPLES))
def name(request):
    """An example; its tests follow each other, and its page is opened once for them."""
    return request.param


only = partial(pytest.mark.parametrize, "name", indirect=True)


@pytest.fixture
def full(chromium, pages):
    """The page `full`, as above: the last of the examples, it is open when they are through."""
    browser.shown(chromium, pages / "full.html", width=1400)
    return chromium


def test_page_draws_without_error_or_request(driver, pages, name):
    browser.sound_in_two_views(driver, pages / f"{name}.html", SCHEMES[name])
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    browser.keep(driver, pages / f"{name}.html")


def rows(driver) -> list[list[str]]:
    return driver.execute_script(
        "return [...document.querySelectorAll('#files tbody tr')]"
        ".map((tr) => [...tr.cells].map((td) => td.textContent))"
    )


def test_scripts_write_quantities_as_python_does(full):
    """At the borders where one has a digit or a unit more, over twelve powers of ten."""
    borders = (0.0, 1.0, 7.1995, 8.3, 0.9994, 0.9996, 9.996, 99.94, 99.96, 999.4, 999.6)
    values = [border * 10.0**power for border in borders for power in range(-9, 4)]
    sizes = [value * 1024**2 for value in values] + [3.0 * 2**20, 1023 * 2.0**10]
    script = "return [arguments[0].map(Units.seconds), arguments[1].map(Units.bytes)]"
    durations, amounts = full.execute_script(script, values, sizes)
    assert durations == [units.seconds(value) for value in values]
    assert amounts == [units.nbytes(value) for value in sizes]


def test_tables_open_under_their_pictures(full):
    full.execute_script("document.querySelector('#overlap summary').click()")
    full.execute_async_script("setTimeout(arguments[0], 50)")
    text = full.execute_script("return document.querySelector('#overlap table').textContent")
    assert "rank 3" in text
    assert "18.4 s" in text
    full.execute_script("document.querySelector('#overlap summary').click()")


def test_zoom_in_one_picture_of_time_zooms_the_others(full):
    ranges = (
        "return [...document.querySelectorAll('.plot')]"
        ".filter((p) => p.offsetParent && p.layout.meta)"
        ".map((p) => p._fullLayout.xaxis.range.map((v) => Math.round(v * 1000) / 1000))"
    )
    whole = full.execute_script(ranges)
    zoom = (
        "Plotly.relayout(document.querySelector('#heatmap .plot'), {'xaxis.range': RANGE})"
        ".then(() => setTimeout(arguments[0], 300))"
    )
    full.execute_async_script(zoom.replace("RANGE", "[10, 12]"))
    assert len(whole) == 4
    assert full.execute_script(ranges) == [[10, 12]] * 4
    full.execute_async_script(zoom.replace("RANGE", "[0, 31.4]"))
    assert full.execute_script(ranges) == whole


def test_printing_draws_and_opens_everything(full):
    full.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    closed = "return [...document.querySelectorAll('details')].filter((d) => !d.open).length"
    assert full.execute_script(closed) == 0
    full.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert full.execute_script(closed) > 0


def test_a_dark_page_is_printed_in_light(full):
    """Whatever is behind text: code, the bar of the step and what could be."""
    behind = (
        "return [...document.querySelectorAll('body, pre, .bar, .ghost, .key, .ghost-bar')]"
        ".map((e) => getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number))"
        ".filter((c) => c.length < 4 || c[3] > 0).map((c) => Math.min(...c.slice(0, 3)))"
    )
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    full.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    assert min(full.execute_script(behind)) < 60
    full.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark, "media": "print"})
    assert min(full.execute_script(behind)) > 200
    full.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [], "media": ""})


def test_every_control_can_be_reached_and_has_a_name(full):
    unnamed = full.execute_script(
        """
        const controls = document.querySelectorAll("a, button, input, select, summary, [tabindex]");
        return [...controls].filter((c) => {
          const name = c.getAttribute("aria-label") || c.textContent.trim()
            || (c.labels && c.labels.length && c.labels[0].textContent.trim());
          return c.tabIndex < 0 || !name;
        }).map((c) => c.outerHTML.slice(0, 120));
        """
    )
    assert unnamed == []


def test_tables_have_captions_and_heads(full):
    wrong = full.execute_script(
        """
        return [...document.querySelectorAll("table")].filter((t) =>
          !t.caption || [...t.tHead.rows[0].cells].some((c) => c.scope !== "col")
          || [...t.tBodies[0].rows].some((r) => r.cells[0].scope !== "row")).length;
        """
    )
    assert wrong == 0
    labels = full.execute_script(
        "return [...document.querySelectorAll('.plot')].map((p) => p.getAttribute('aria-label'))"
    )
    assert len(set(labels)) == len(labels)
    assert all(any(c.isdigit() for c in label) for label in labels)


def test_tables_are_filtered_by_column_and_saved(full):
    shown = "return [...document.querySelectorAll('#files tbody tr')].length"
    type_in = (
        "const box = document.querySelector('#files');"
        "box.querySelector('.table-files button').click();"
        "const i = box.querySelectorAll('.filters input')[COLUMN];"
        "i.value = 'WORDS'; i.dispatchEvent(new Event('input'));"
    )
    before = full.execute_script(shown)
    full.execute_script(type_in.replace("COLUMN", "6").replace("WORDS", ">= 0.3"))
    kept = [row for row in rows(full) if row[6]]
    assert 0 < len(kept) < before
    full.execute_script(type_in.replace("COLUMN", "0").replace("WORDS", "no such file"))
    assert full.execute_script(shown) == 0
    for column in ("0", "6"):
        full.execute_script(type_in.replace("COLUMN", column).replace("WORDS", ""))
    assert full.execute_script(shown) == before
    made = full.execute_script(
        "const columns = [['a, b', true], ['n', false]];"
        "const rows = [['=1|x', [0.5, '500 ms']], [null, null]];"
        "return [TableFiles.csv(columns, rows), JSON.parse(TableFiles.json(columns, rows)),"
        "TableFiles.markdown(columns, rows)]"
    )
    assert made[0] == '"a, b",n\r\n\'=1|x,0.5\r\n,\r\n'
    assert made[1] == [{"a, b": "=1|x", "n": 0.5}, {"a, b": None, "n": None}]
    assert made[2].splitlines()[2:] == ["| =1\\|x | 500 ms |", "| not recorded | not recorded |"]
    assert browser.console_errors(full) == []


TORN = """
    const kept = (box) => box && getComputedStyle(box).breakInside === "avoid";
    const apart = [...document.querySelectorAll("figure")].filter((figure) => {
      const [shown, words] = [".plot, .viewer", "figcaption"].map((q) => figure.querySelector(q));
      return shown && words && !(kept(shown.closest(".picture"))
        && shown.closest(".picture") === words.closest(".picture"));
    });
    const cards = [...document.querySelectorAll(".actions > li")].filter(kept);
    const heads = [...document.querySelectorAll("h2, summary:has(h2)")]
      .filter((head) => getComputedStyle(head).breakAfter !== "avoid");
    return [...apart, ...cards, ...heads].map((each) => each.id || each.textContent);
"""  # on another sheet than its caption or heading, and cards that leave half a sheet empty


def test_a_printed_page_holds_every_picture(full):
    import base64

    printed = full.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    with browser.on_paper(full):
        heads = "getComputedStyle(document.querySelector('thead button')).display"
        assert full.execute_script(f"return {heads}") == "contents"  # buttons are not repeated
        assert full.execute_script(TORN) == []
    missing = full.execute_script(
        "return [...document.querySelectorAll('.plot')].filter((p) => !p.dataset.drawn).length"
    )
    assert missing == 0
    assert browser.console_errors(full) == []


def test_files_sort_and_filter(full):
    column = 6
    button = f"document.querySelectorAll('#files th button')[{column}].click()"
    assert rows(full)[0][column] == "600 ms"  # by time, the longest first
    full.execute_script(button)
    assert rows(full)[0][column] == "600 ms"
    full.execute_script(button)
    assert rows(full)[0][column] == "10.0 ms"
    full.execute_script(
        "const i = document.querySelector('#files input'); i.value = 'SHARD 00042';"
        "i.dispatchEvent(new Event('input'))"
    )
    assert [row[0] for row in rows(full)] == ["/data/imagenet/train/shard-00042.tar"]
    status = full.execute_script("return document.querySelector('#files .status').textContent")
    assert status.startswith("1 row")
    full.execute_script(
        "const i = document.querySelector('#files input'); i.value = '';"
        "i.dispatchEvent(new Event('input'))"
    )
    full.execute_script(button)
    assert rows(full)[0][column] == "600 ms"


@only(argvalues=["hostile"])
def test_hostile_names_are_shown_and_do_nothing(shown):
    paths = [row[0] for row in rows(shown)]
    assert "/data/</script><script>alert(1)</script>.h5" in paths
    for tag in ("img", "svg[onload]", "a[href^=http]", "b"):
        assert shown.execute_script(f"return document.querySelectorAll('{tag}').length") == 0
    assert "49" not in paths[1]


LEVELS = """
    const host = document.querySelector("#ID .plot");
    const figure = JSON.parse(document.getElementById("report-data").textContent)
      .figures.find((f) => f.id === "ID");
    const trace = host.data[0], values = trace.z ? trace.z.flat() : trace.y;
    return [Number(host.dataset.bins), host.clientWidth, trace.dx,
            values.reduce((a, b) => a + (b || 0), 0) * trace.dx * figure.levels.divisor];
"""


def test_every_level_of_the_zoom_holds_all_bytes_of_files(full):
    full.execute_script("document.querySelector('input[value=filemap]').click()")
    browser.scrolled(full)
    check_levels(full, "full", "filemap")
    full.execute_script("document.querySelector('input[value=heatmap]').click()")


@only(argvalues=["many_ranks"])
def test_every_level_of_the_zoom_holds_all_bytes_of_ranks(shown, name):
    check_levels(shown, name, "heatmap")


def check_levels(driver, name, figure):
    results = EXAMPLES[name]().results
    line = results.filetimeline if figure == "filemap" else results.timeline
    total = line.bytes_read.sum() + line.bytes_written.sum()
    _, run_s = driver.execute_script(
        f"return document.querySelector('#{figure} .plot')._fullLayout.xaxis.range"
    )
    bins_seen = set()
    for divisor in (1, 2, 4, 8, 16, 32, 64):
        driver.execute_async_script(
            f"Plots.zoom([0, {run_s / divisor}]).then(() => setTimeout(arguments[0], 60))"
        )
        bins, pixels, width, shown = driver.execute_script(LEVELS.replace("ID", figure))
        bins_seen.add(bins)
        assert shown == pytest.approx(total, rel=1e-9)
        assert bins * width == pytest.approx(run_s)
        finest = max(bins_seen)
        assert bins <= pixels * divisor or bins == finest
    driver.execute_async_script("Plots.zoom(null).then(() => setTimeout(arguments[0], 60))")
    assert browser.console_errors(driver) == []
    assert browser.requests(driver) == []


@only(argvalues=["long_run"])
def test_the_switch_shows_one_picture_and_keeps_the_zoom(shown):
    browser.drop(shown)
    visible = (
        "return [...document.querySelectorAll('figure.view')]"
        ".filter((f) => f.offsetParent).map((f) => f.id)"
    )
    assert shown.execute_script(visible) == ["heatmap"]
    shown.execute_async_script("Plots.zoom([410, 430]).then(() => setTimeout(arguments[0], 60))")
    shown.execute_script("document.querySelector('input[value=filemap]').click()")
    assert shown.execute_script(visible) == ["filemap"]
    browser.scrolled(shown)
    low, high = shown.execute_script(
        "return document.querySelector('#filemap .plot')._fullLayout.xaxis.range"
    )
    assert (low, high) == (410, 430)
    status = shown.execute_script("return document.querySelector('.shown').textContent")
    assert "bins of" in status


def test_zoom_works_from_the_keyboard(full):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    button = full.find_element(By.CSS_SELECTOR, "[data-zoom=in]")
    button.send_keys(Keys.ENTER)
    full.execute_async_script("setTimeout(arguments[0], 400)")
    low, high = full.execute_script(
        "return document.querySelector('#heatmap .plot')._fullLayout.xaxis.range"
    )
    assert high - low == pytest.approx(15.7, rel=1e-3)
    outline = full.execute_script(
        "const s = getComputedStyle(document.activeElement); return s.outlineStyle + s.outlineWidth"
    )
    assert outline == "solid2px"
    full.find_element(By.CSS_SELECTOR, "input[value=heatmap]").send_keys(Keys.ARROW_RIGHT)
    assert full.execute_script("return document.activeElement.value") == "filemap"
    full.find_element(By.CSS_SELECTOR, "input[value=filemap]").send_keys(Keys.ARROW_LEFT)
    full.execute_async_script("Plots.zoom(null).then(() => setTimeout(arguments[0], 60))")


def test_a_long_name_in_a_caption_widens_no_page(full):
    captions = "document.querySelectorAll('figcaption')"
    full.execute_script(f"{captions}.forEach((each) => each.prepend('{'x' * 90} '))")
    browser.resized(full, 390)
    browser.sound_inks(full, 390)
    assert full.execute_script("return document.documentElement.scrollWidth") == 390
    bars = full.execute_script(
        "return [...document.querySelectorAll('.cbaxis')].filter((b) => b.checkVisibility())"
        ".map((b) => [...b.querySelectorAll('text')].map((t) => t.textContent))"
    )
    assert bars
    for first, *others in bars:  # short bars of colours keep a number with its unit
        assert first == "0"
        assert re.fullmatch(r"[\d.]+ .*[A-Za-z]", others[-1])
    full.execute_script(f"{captions}.forEach((each) => each.firstChild.remove())")


def test_the_full_page_breaks_no_rule_of_axe(full):
    """In the light scheme; narrow, and pages that are drawn nowhere else: test_accessible.py."""
    browser.drop(full)
    browser.prefer(full, "light")
    assert violations(full) == []


AXE = {"one_rank": "dark", "counters_only": "light", "hostile": "dark"}


@only(argvalues=AXE)
def test_other_pages_break_no_rule_of_axe(shown, name):
    browser.drop(shown)
    browser.prefer(shown, AXE[name])
    assert violations(shown) == []


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


def test_a_link_opens_the_section_that_it_leads_into(driver, pages):
    from selenium.webdriver.support.ui import WebDriverWait

    browser.resized(driver, 1400)
    driver.get((pages / "full.html").as_uri())
    section = driver.execute_script(
        "const s = document.querySelector('.quiet > details:has(figure .plot)');"
        "location.hash = s.querySelector('figure:has(.plot)').id; return s"
    )
    drawn = "return arguments[0].open && arguments[0].querySelector('[data-drawn]') !== null"
    assert WebDriverWait(driver, 120).until(lambda _: driver.execute_script(drawn, section))
