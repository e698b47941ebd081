"""The trace viewer in a real browser: what is drawn, clicked, typed and named in the address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import DATA
from tests.makers import browser
from vanidl.report.html import write_html

pytestmark = pytest.mark.browser

VIEWER = "document.querySelector('.viewer')"
TRACE = f"{VIEWER}.trace"


@pytest.fixture(scope="module")
def run(opened):
    return opened(DATA / "torch_pfs_workers0")


@pytest.fixture(scope="module")
def page(run, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("viewer") / "page.html"
    write_html(run, target)
    return target


@pytest.fixture
def viewer(driver, page):
    opened_at(driver, page.resolve().as_uri(), width=1440)
    return driver


def opened_at(driver, address: str, *, width: int) -> None:
    """Opens a page and waits for its viewer, without the pictures below."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    driver.get("about:blank")
    driver.get(address)
    driver.execute_async_script(
        "const done = arguments[0], poll = setInterval(() => {"
        f"  if ({VIEWER}.dataset.drawn) {{ clearInterval(poll); done(); }} }}, 10)"
    )


def settled(driver) -> None:
    """Waits for the picture, the address and the table of the last change."""
    driver.execute_async_script(
        f"const done = arguments[0], v = {VIEWER};"
        "v.dataset.settled = ''; v.trace.request();"
        "const poll = setInterval(() => {"
        "  if (v.dataset.settled) { clearInterval(poll); done(); } }, 10)"
    )


def keys(driver, *pressed: str) -> None:
    for key in pressed:
        driver.execute_script(
            f"{VIEWER}.querySelector('.tv-main')"
            f".dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
        )
    settled(driver)


def panel(driver) -> dict[str, str]:
    return dict(
        driver.execute_script(
            f"return [...{VIEWER}.querySelectorAll('.tv-panel dl div')]"
            ".map((d) => [d.children[0].textContent, d.children[1].textContent])"
        )
    )


def in_view(driver) -> list[float]:
    return driver.execute_script(f"const v = {TRACE}.view; return [v.low / 1e9, v.high / 1e9]")


def test_every_slice_of_the_run_is_drawn(viewer, run):
    spans = run.trace.spans
    assert int(viewer.execute_script(f"return {VIEWER}.dataset.slices")) >= run.summary.ops
    drawn, tracks = viewer.execute_script(
        f"const t = {TRACE}, d = t.model.base;"
        "return [t.slices, t.plan.boxes.map((b) => d.byTrack.get(b.key)).filter(Boolean)"
        ".map((k) => new Set(d.owner.subarray(k.low, k.high)).size)]"
    )
    assert drawn == sum(tracks)  # operations, not the pieces that differ in their fate
    assert run.summary.ops > len(spans.start) / 100
    ink = viewer.execute_script(
        f"const c = {VIEWER}.querySelector('.tv-lanes');"
        "const p = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height)"
        ".data.buffer); return new Set(p).size"
    )
    assert ink > 4
    assert browser.console_errors(viewer) == []


def test_lanes_out_of_view_are_counted(viewer):
    """A window too low for them; each lane is in view, above it or below it."""
    told = (
        f"const t = {TRACE}, more = {VIEWER}.querySelector('.tv-more');"
        "t.draw();"
        "return [more.hidden, more.textContent, new Set(t.visible.map((b) => b.lane.index)).size,"
        " t.model.packed.lanes.length]"
    )
    hidden, _, seen, lanes = viewer.execute_script(told)
    assert (hidden, seen) == (True, lanes)
    low = {"width": 1440, "height": 90, "deviceScaleFactor": 1, "mobile": False}
    viewer.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", low)
    viewer.execute_script(f"{TRACE}.resize()")
    for place, side in ((0, "below"), (9999, "above")):
        viewer.execute_script(f"{TRACE}.scroll.scrollTop = {place}")
        hidden, words, seen, lanes = viewer.execute_script(told)
        assert not hidden
        assert 0 < seen < lanes
        missing = lanes - seen
        assert words == f"{missing} more lane{'s' * (missing > 1)} {side}"


def test_a_click_says_what_the_operation_is(viewer, run):
    part = max(run.trace.io, key=len)
    row = int(part.nbytes.argmax())
    since = run.trace.job.start_ns
    start, end = int(part.start[row]) - since, int(part.end[row]) - since
    viewer.execute_script(f"{VIEWER}.scrollIntoView(); {TRACE}.show({start - 1000}, {end + 1000})")
    settled(viewer)
    x, y = viewer.execute_script(
        f"const t = {TRACE}, b = t.plan.boxes.find((b) => b.lane.kind === 'io');"
        "const r = t.canvas.getBoundingClientRect();"
        "return [r.left + t.gutter + t.width / 2, r.top + b.y - t.scroll.scrollTop + 4]"
    )
    for kind in ("mousePressed", "mouseReleased"):
        event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
        viewer.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    said = panel(viewer)
    assert said["file"] == run.trace.files.path[part.file[row]]
    assert said["offset"] == f"{int(part.offset[row]):,}"
    assert f"({int(part.nbytes[row]):,} bytes)" in said["size"]
    assert said["start"] == f"{start / 1e9:.6f} s"


def test_the_address_holds_the_time_and_leads_back_to_it(driver, page):
    opened_at(driver, page.resolve().as_uri() + "#t=11.2-11.9", width=1440)
    assert in_view(driver) == [pytest.approx(11.2), pytest.approx(11.9)]
    keys(driver, "d")
    low, high = (float(x) for x in driver.execute_script("return location.hash")[3:].split("-"))
    assert low == pytest.approx(11.2 + 0.15 * 0.7, abs=1e-3)
    assert high - low == pytest.approx(0.7, abs=2e-3)
    keys(driver, "0")
    assert driver.execute_script("return location.hash") == ""


def test_keys_move_zoom_and_select(viewer, run):
    low, high = in_view(viewer)
    keys(viewer, "w", "w")
    assert in_view(viewer)[1] - in_view(viewer)[0] == pytest.approx((high - low) / 1.25**2)
    before = in_view(viewer)
    keys(viewer, "a")
    assert in_view(viewer)[0] < before[0]
    keys(viewer, "0", "ArrowRight", "ArrowRight")
    assert panel(viewer)["step"] == str(run.steps.table.step[1])
    keys(viewer, "ArrowDown", "f")
    assert "duration" in panel(viewer)
    assert in_view(viewer)[1] - in_view(viewer)[0] < 5
    keys(viewer, "Escape")
    assert panel(viewer) == {}


def test_j_and_k_go_through_the_worst_steps(viewer, run):
    table = run.steps.table
    order = (-table.input_wait_s).argsort(kind="stable")
    for key, place in (("j", 0), ("j", 1), ("k", 0)):
        viewer.execute_script(
            "document.body.dispatchEvent("
            f"new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
        )
        settled(viewer)
        row = order[place]
        assert panel(viewer)["step"] == str(table.step[row])
        low, high = in_view(viewer)
        assert low < table.start_s[row] < table.end_s[row] < high


@pytest.mark.parametrize("words", ["17", "ptycho"])
def test_search_finds_steps_and_files(viewer, run, words):
    viewer.execute_script(
        f"const i = {VIEWER}.querySelector('input[type=search]'); i.value = '{words}';"
        "i.dispatchEvent(new Event('input'))"
    )
    settled(viewer)
    status = viewer.execute_script(f"return {VIEWER}.querySelector('.tv-status').textContent")
    if words == "17":
        assert status.startswith("Step 17.")
        assert panel(viewer)["step"] == "17"
    else:
        path = next(p for p in run.trace.files.path if words in p)
        count = sum(
            int((part.file == run.trace.files.path.index(path)).sum()) for part in run.trace.io
        )
        assert status.startswith(f"{count:,} operations on {path}")
        assert panel(viewer)["file"] == path


def test_what_is_in_view_is_a_table(viewer, run):
    table = run.steps.table
    start, end = float(table.start_s[3]), float(table.end_s[3])
    viewer.execute_script(
        f"{TRACE}.show({start * 1e9}, {end * 1e9}); {VIEWER}.querySelector('.tv-table').open = true"
    )
    settled(viewer)
    rows = viewer.execute_script(
        f"return [...{VIEWER}.querySelectorAll('.tv-table tbody tr')]"
        ".map((tr) => [...tr.cells].map((c) => c.textContent))"
    )
    assert any(row[1] == f"Step {table.step[3]}" for row in rows)
    assert any(row[1].startswith("read /") for row in rows)


def test_the_legend_names_every_colour_of_the_rates(viewer):
    """Bytes read and written over time have colours of their own above the lanes."""
    names, rates = viewer.execute_script(
        f"const b = {TRACE}.model.bandwidth;"
        f"return [[...{VIEWER}.querySelectorAll('.tv-legend > span')].map((s) => s.textContent),"
        "  [b.read, b.written].map((all) => all.some((n) => n))]"
    )
    assert ("bytes read" in names, "bytes written" in names) == tuple(rates)
    assert any(rates)


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1024), ("light", 390)])
def test_it_fits_narrow_pages_and_dark_ones(driver, page, scheme, width):
    browser.prefer(driver, scheme)
    opened_at(driver, page.resolve().as_uri(), width=width)
    keys(driver, "ArrowRight")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    corner = driver.execute_script(
        f"const c = {VIEWER}.querySelector('.tv-lanes').getContext('2d');"
        "return [...c.getImageData(0, 0, 1, 1).data]"
    )
    assert (max(corner[:3]) < 60) == (scheme == "dark")
    assert browser.console_errors(driver) == []


def test_print_shows_every_lane_in_light(viewer):
    browser.prefer(viewer, "dark")
    viewer.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    height, wanted, corner = viewer.execute_script(
        f"const t = {TRACE};"
        "const pixel = t.canvas.getContext('2d').getImageData(0, 0, 1, 1);"
        "return [t.height, t.plan.height, pixel.data[0]]"
    )
    assert height >= wanted
    assert corner > 200
    viewer.execute_script("window.dispatchEvent(new Event('afterprint'))")
