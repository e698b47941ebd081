"""A headless Chromium (fixture `driver`): opens pages from disk, reports what went wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def missing() -> str:
    """Why no browser can be started, "" where one can."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed (packages chromium and chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    """A driver that logs console and network, closed at the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(300)  # scripts end by themselves; a busy machine is slow
    try:
        yield driver
    finally:
        driver.quit()
        driver.service.process.wait()


def reset(driver: Any) -> None:
    """An empty page in the light scheme; what was logged before is dropped."""
    driver.get("about:blank")
    prefer(driver, "light")
    for log in ("browser", "performance"):
        driver.get_log(log)


def prefer(driver: Any, scheme: str) -> None:
    """Pages are shown in the `light` or `dark` scheme from now on."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def opened(driver: Any, page: Path, *, width: int) -> None:
    """Open a page from disk at a width and draw everything in it."""
    resized(driver, width)
    driver.get(page.resolve().as_uri())
    scrolled(driver)


SHARED = "document.documentElement.dataset.shared"


def shown(driver: Any, page: Path, *, width: int) -> None:
    """The page, drawn: opened unless it is the one that tests before left open and whole."""
    if driver.execute_script(f"return {SHARED}") != str(page):
        reset(driver)
        opened(driver, page, width=width)
        keep(driver, page)
    resized(driver, width)


def keep(driver: Any, page: Path) -> None:
    """The page that is open may be taken by the next test: it is drawn, and left as it was."""
    driver.execute_script(f"{SHARED} = arguments[0]", str(page))


def drop(driver: Any) -> None:
    """The next test opens its page anew: this one changes it."""
    driver.execute_script(f"delete {SHARED}")


def resized(driver: Any, width: int) -> None:
    """The window is as wide from now on, that of a phone below 600 pixels."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def scrolled(driver: Any) -> None:
    """Bring every picture into view, as a reader who scrolls does, and wait for it."""
    driver.execute_async_script(
        """
        const done = arguments[0], end = Date.now() + 240000;
        for (const section of document.querySelectorAll(".quiet > details")) section.open = true;
        const poll = setInterval(() => {
          const open = ".plot:not([data-drawn]), .viewer:not([data-drawn])";
          const next = [...document.querySelectorAll(open)].find((plot) => plot.offsetParent);
          if (next && Date.now() < end) return next.scrollIntoView({block: "center"});
          clearInterval(poll);
          window.scrollTo(0, 0);
          setTimeout(done, 100);
        }, 60);
        """
    )


def scrolled_legends(driver: Any) -> list[str]:
    """Pictures whose legend is higher than its room, so that entries are out of sight."""
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll('.js-plotly-plot')]"
        ".filter((p) => p._fullLayout.legend?._height > p._fullLayout.legend?._maxHeight)"
        ".map((p) => p.closest('figure').id)"
    )
    return found


def sound_inks(driver: Any, width: int, *, before: Sequence[str] = ()) -> list[str]:
    """Colours of the text in every picture in view, of a page that is as it should be.

    It is no wider than the window, all pictures are drawn, nothing was requested, and no error
    or warning is on the console. Colours of `before` are waited out: pictures are drawn again.
    """
    assert scrolled_legends(driver) == []
    inks: list[str | bool | None] = driver.execute_async_script(
        """
        const [before, done] = arguments, end = Date.now() + 240000;
        const fits = (plot) => Number(plot.dataset.width) === plot.clientWidth;
        const inks = () => [...document.querySelectorAll(".plot")]
          .filter((plot) => plot.offsetParent)
          .map((plot) => plot.querySelector("svg.main-svg") && fits(plot)
            && plot._fullLayout.font.color);
        const poll = setInterval(() => {
          const found = inks();
          if (found.some((ink) => !ink || before.includes(ink)) && Date.now() < end) return;
          clearInterval(poll);
          done(found);
        }, 20);
        """,
        list(before),
    )
    assert all(inks), "a picture in view is not drawn, or not as wide as its place"
    assert not set(inks) & set(before), "a picture in view is in the colours of before"
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert console_errors(driver) == []
    assert requests(driver) == []
    return [ink for ink in inks if isinstance(ink, str)]


def sound_in_two_views(driver: Any, page: Path, scheme: str) -> None:
    """A page is as it should be where it is dark and wide, whichever way it came to be so.

    Opened light and wide, it becomes dark as at sunset; opened dark and narrow, it is made wide.
    """
    width = 1400 if scheme == "light" else 400
    prefer(driver, scheme)
    opened(driver, page, width=width)
    before = sound_inks(driver, width)
    if scheme == "light":
        prefer(driver, "dark")
        assert len(sound_inks(driver, width, before=before)) == len(before)
    else:
        resized(driver, 1400)
        assert len(sound_inks(driver, 1400)) == len(before)


@contextmanager
def on_paper(driver: Any) -> Iterator[None]:
    """The page as it is printed."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def tables_cut_on_paper(driver: Any) -> int:
    """Tables that run over what follows them where the page is printed."""
    with on_paper(driver):
        cut: int = driver.execute_script(
            "return [...document.querySelectorAll('.table-box')].filter((each) => each.clientHeight"
            " && each.scrollHeight > each.clientHeight + 1).length"
        )
    return cut


def tallest_row_on_paper(driver: Any) -> float:
    """Height in pixels of the tallest row of any table, on a page as wide as paper."""
    resized(driver, 720)
    with on_paper(driver):
        height: float = driver.execute_script(
            "return Math.max(...[...document.querySelectorAll('tbody tr')]"
            ".map((row) => row.getBoundingClientRect().height))"
        )
    return height


def console_errors(driver: Any) -> list[str]:
    """Messages of level warning and above since the last call."""
    return [e["message"] for e in driver.get_log("browser") if e["level"] != "INFO"]


def requests(driver: Any) -> list[str]:
    """Addresses requested since the last call, the page's own file left out."""
    messages = [json.loads(e["message"])["message"] for e in driver.get_log("performance")]
    urls = [
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    ]
    return [u for u in urls if not u.startswith(("file:", "data:", "blob:"))]


def screenshot(driver: Any, path: Path) -> None:
    """The whole page, from top to end, as a PNG."""
    import base64

    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(shot["data"]))
