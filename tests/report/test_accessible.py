"""No page breaks a rule of axe-core.

Reports and comparisons that a browser test draws are looked at there: tests/report/test_browser.py,
tests/compare/test_browser.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import vanidl
from tests.advice.labeled import made
from tests.makers import browser
from tests.makers.accessibility import violations
from vanidl.report.html import write_html
from vanidl.survey.fleet import Fleet
from vanidl.survey.page import write_survey_page
from vanidl.survey.rows import Job, build_unread_row
from vanidl.survey.store import build_table

pytestmark = pytest.mark.browser
LOG = "day-35/me_train_images_id1035-10035_1-2-3-4_1.darshan"
JOB = build_unread_row(Job("1", (LOG,), "", "key"), "") | {
    "problem": None, "ranks": 4, "run_time_s": 60.0, "io_share": 0.2, "io_per_rank_mean_s": 12.0,
    "start": "2026-01-01T00:00:00Z", "bytes_read": 1 << 30, "bytes_written": 0, "findings": 2,
    "warnings": "partial", "size_median": 4096.0, "command": "python train.py --epochs 90",
}  # fmt: skip
JOBS = [JOB | {"job": str(i), "io_per_rank_mean_s": 1.0 + i} for i in range(45)]
JOBS += [JOB | {"io_per_rank_mean_s": None, "io_share": None}]
JOBS += [build_unread_row(Job(None, ("b",), "", "key"), "no log")]
TAB = """<!doctype html><body><script type=module>
window.fetch = async (address) => ({
  ok: address === "./runs", status: 200, json: async () => ["a", "b"], text: async () => "damaged",
});
SCRIPT
await render();
</script>"""


def looked_at(driver, page: Path, *, width: int = 1440) -> list:
    browser.opened(driver, page, width=width)
    return violations(driver)


def test_a_narrow_page_with_actions_breaks_no_rule(driver, tmp_path):
    write_html(made("shared_shuffle"), tmp_path / "page.html")
    assert looked_at(driver, tmp_path / "page.html", width=390) == []


def test_a_survey_breaks_no_rule(driver, tmp_path):
    page = tmp_path / "page.html"
    write_survey_page(Fleet(build_table(JOBS)), "logs", page, {0: "reports/001-1.html"})
    assert looked_at(driver, page, width=1024) == []
    assert browser.tables_cut_on_paper(driver) == 0
    assert browser.tallest_row_on_paper(driver) < 60  # pixels: a log's name in three lines
    driver.find_element("tag name", "body").send_keys("/")
    assert driver.execute_script("return document.activeElement.matches('.table-tools input')")
    assert "share of time in I/O" in driver.page_source


def test_the_tab_in_tensorboard_breaks_no_rule(driver, tmp_path):
    """Its own controls, around a page as above."""
    script = (Path(vanidl.__file__).parent / "tensorboard" / "index.js").read_text("utf-8")
    page = tmp_path / "tab.html"
    page.write_text(TAB.replace("SCRIPT", script.replace("export ", "")))
    assert looked_at(driver, page) == []
    assert driver.execute_script("return document.querySelectorAll('select').length") == 2


def test_the_rules_are_looked_at(driver, tmp_path):
    page = tmp_path / "bad.html"
    pale = "<td style='color:#bbb;background:#fff'>pale</td>"
    table = "<table>" + "<tr><td>a</td><td>b</td></tr>" * 200 + f"<tr>{pale}</tr></table>"
    picture = (
        "<svg class=main-svg><g><path d='M0 0h9'/></g><g role=img><path d='M0 0h9'/></g></svg>"
    )
    wrong = f"<img src=x><button></button>{table}{picture}"
    page.write_text(f"<title>x</title><main>{wrong}</main>")
    found = {v[0] for v in looked_at(driver, page)}
    assert {"image-alt", "button-name", "color-contrast", "svg-img-alt"} <= found
