"""Makes the sample reports and the screenshot of the README.

python reports/make.py
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests import browser  # noqa: E402
from vanidl.cli import main  # noqa: E402

REPORTS = ROOT / "reports"
PAGES = {"ddp_two_hosts.html": ROOT / "tests/data/ddp_two_hosts"}
SHOWN = "ddp_two_hosts.html"
SHOWN_HEIGHT = 1420


def make() -> None:
    """Writes every page, then the screenshot where a browser is installed."""
    for page, run in PAGES.items():
        main(["report", str(run), "-o", str(REPORTS / page)])
    why_not = browser.missing()
    if why_not:
        sys.stderr.write(f"no screenshot: {why_not}\n")
        return
    with browser.chromium() as driver:
        browser.opened(driver, REPORTS / SHOWN, width=1400)
        top = {"x": 0, "y": 0, "width": 1400, "height": SHOWN_HEIGHT, "scale": 1}
        shot = driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"clip": top, "captureBeyondViewport": True}
        )
    (REPORTS / "report.png").write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    make()
