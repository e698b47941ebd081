"""Makes a sample of every kind of output from a recorded run, and the screenshot of the README.

python reports/make.py
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.makers import browser  # noqa: E402
from vanidl.cli import main  # noqa: E402

RUN = "tests/data/ddp_two_hosts"
APPLICATIONS = ("imagenet", "cosmictagger", "ffn", "cosmoflow", "frnn")
"""Those of the I/O poster, recorded in tests/data/applications."""
WRITTEN = (
    ("report", RUN, "-o", "reports/ddp_two_hosts.html"),
    ("export", RUN, "--to", "chrome", "-o", "reports/timeline.json.gz"),
    *(
        ("report", f"tests/data/applications/{name}", "-o", f"reports/poster_{name}.html")
        for name in APPLICATIONS
    ),
)
"""Commands that write the file behind -o."""
PRINTED = {
    "summary.txt": ("summary", RUN),
    "summary.json": ("summary", RUN, "--json"),
    "check.txt": ("check", RUN),
}
"""File -> the command that prints what is in it."""
SHOWN = "ddp_two_hosts.html"
SHOWN_HEIGHT = 1420


def make() -> None:
    """Writes every sample, then the screenshot where a browser is installed."""
    os.chdir(ROOT)
    for line in WRITTEN:
        Path(line[-1]).unlink(missing_ok=True)
        main(line)
    for name, line in PRINTED.items():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            main(line)
        Path("reports", name).write_text(printed.getvalue())
    panel()
    why_not = browser.missing()
    if why_not:
        sys.stderr.write(f"no screenshot: {why_not}\n")
        return
    screenshot()


def panel() -> None:
    """The panel of the figures for a paper; the other figures of the command are left out."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "figures"
        if main(("export", RUN, "--to", "figures", "-o", str(target))) == 0:
            shutil.copy(target / "panel.png", "reports/panel.png")


def screenshot() -> None:
    """The top of the page, as the README shows it."""
    with browser.chromium() as driver:
        browser.opened(driver, Path("reports", SHOWN), width=1400)
        top = {"x": 0, "y": 0, "width": 1400, "height": SHOWN_HEIGHT, "scale": 1}
        shot = driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"clip": top, "captureBeyondViewport": True}
        )
    Path("reports/report.png").write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    make()
