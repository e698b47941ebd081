"""No report breaks a rule of axe-core, light and dark, wide and narrow."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import vanidl
from tests.findings.labeled import made
from tests.makers import browser
from tests.makers.comparisons import EXAMPLE_COMPARISONS
from tests.makers.results import EXAMPLES
from vanidl.compare.report.html import write_comparison
from vanidl.report.html import write_html
from vanidl.run import Run
from vanidl.survey.jobs import Job
from vanidl.survey.page import write_survey_page
from vanidl.survey.rows import missing

pytestmark = pytest.mark.browser
REPORTS = (("full", "light"), ("one_rank", "dark"), ("counters_only", "light"), ("hostile", "dark"))
JOB = missing(Job("1", ("a",), "a", "key"), "") | {
    "problem": None, "ranks": 4, "run_time_s": 60.0, "io_share": 0.2, "io_per_rank_mean_s": 12.0,
    "start": "2026-01-01T00:00:00Z", "bytes_read": 1 << 30, "bytes_written": 0, "findings": 2,
    "warnings": "partial", "size_median": 4096.0, "command": "python train.py --epochs 90",
}  # fmt: skip
JOBS = [JOB | {"job": str(i), "io_per_rank_mean_s": 1.0 + i} for i in range(45)]
JOBS += [JOB | {"io_per_rank_mean_s": None, "io_share": None}]
JOBS += [missing(Job(None, ("b",), "b", "key"), "no log")]
PAGES = {
    "comparison": lambda path: write_comparison(EXAMPLE_COMPARISONS["one_each"](), path),
    "ab": lambda path: write_comparison(EXAMPLE_COMPARISONS["slower"](), path),
    "survey": lambda path: write_survey_page(JOBS, "logs", path, {0: "reports/001-1.html"}),
}
TAB = """<!doctype html><body><script type=module>
window.fetch = async (address) => ({
  ok: address === "./runs", status: 200, json: async () => ["a", "b"], text: async () => "damaged",
});
SCRIPT
await render();
</script>"""
ALIKE = """
for (const body of document.querySelectorAll("tbody")) {
  const built = new Map();
  for (const row of [...body.rows]) {
    const key = [row, ...row.querySelectorAll("*")].map((each) =>
      [each.tagName, each.className, each.getAttribute("style"), each.getAttributeNames()]).join();
    built.set(key, (built.get(key) || 0) + 1);
    if (built.get(key) > 4) row.remove();
  }
}
"""
# axe's time grows with the elements of a page: of a table's rows that are built alike (the same
# elements, classes, styles and attributes) four are looked at.
RUN = """
const done = arguments[0], looks = new Map(), texts = new Map();
const look = (each) => {
  if (!each) return "";
  if (!looks.has(each)) {
    const style = getComputedStyle(each);
    looks.set(each, [look(each.parentElement), style.backgroundColor, style.backgroundImage,
                     style.opacity, style.position, style.overflow].join(" "));
  }
  return looks.get(each);
};
for (const each of document.body.querySelectorAll("*")) {
  const written = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!written || !each.getClientRects().length) continue;
  const style = getComputedStyle(each);
  const key = [look(each), style.color, style.fontSize, style.fontWeight, style.visibility].join();
  texts.set(key, [...(texts.get(key) || []), each].slice(0, 4));
}
const options = {resultTypes: ["violations"], iframes: false};
const others = {...options, rules: {"color-contrast": {enabled: false}}};
const contrast = {...options, runOnly: {type: "rule", values: ["color-contrast"]}};
axe.run(document, others)
  .then((first) => axe.run([...texts.values()].flat(), contrast).then((second) =>
    done([...first.violations, ...second.violations].map((v) =>
      [v.id, v.nodes.length, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160))]))))
  .catch((error) => done(String(error)));
"""
# Contrast is most of axe's time: of texts that look alike (colour, size, weight, everything
# behind them) four are looked at, of all others (thousands of cells of a table) none.


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core, as the package axe-core-python brings it."""
    found = importlib.util.find_spec("axe_core_python")
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-core-python is not installed (pip install 'vanidl-io[test]')")
    script = Path(found.submodule_search_locations[0]) / "axe.min.js"
    return script.read_text(encoding="utf-8")


def violations(driver, axe: str, page: Path, *, width: int = 1440) -> list:
    browser.opened(driver, page, width=width)
    driver.execute_script(
        "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
    )
    driver.execute_script(ALIKE)
    driver.execute_script(axe)
    return driver.execute_async_script(RUN)


@pytest.mark.parametrize(("name", "scheme"), REPORTS)
def test_reports_break_no_rule(driver, axe, tmp_path, name, scheme):
    write_html(Run(*EXAMPLES[name]()), tmp_path / "page.html")
    browser.prefer(driver, scheme)
    assert violations(driver, axe, tmp_path / "page.html") == []


def test_a_narrow_page_with_actions_breaks_no_rule(driver, axe, tmp_path):
    write_html(made("shared_shuffle"), tmp_path / "page.html")
    assert violations(driver, axe, tmp_path / "page.html", width=390) == []


@pytest.mark.parametrize("page", PAGES)
def test_other_pages_break_no_rule(driver, axe, tmp_path, page):
    PAGES[page](tmp_path / "page.html")
    assert violations(driver, axe, tmp_path / "page.html", width=1024) == []
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    cut = driver.execute_script(
        "return [...document.querySelectorAll('.table-box')].filter((each) => each.clientHeight"
        " && each.scrollHeight > each.clientHeight + 1).length"
    )
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert cut == 0, "printed on paper, a table runs over what follows it"


def test_the_tab_in_tensorboard_breaks_no_rule(driver, axe, tmp_path):
    """Its own controls, around a page as above."""
    script = (Path(vanidl.__file__).parent / "tensorboard" / "index.js").read_text("utf-8")
    page = tmp_path / "tab.html"
    page.write_text(TAB.replace("SCRIPT", script.replace("export ", "")))
    assert violations(driver, axe, page) == []
    assert driver.execute_script("return document.querySelectorAll('select').length") == 2


def test_the_rules_are_looked_at(driver, axe, tmp_path):
    page = tmp_path / "bad.html"
    pale = "<td style='color:#bbb;background:#fff'>pale</td>"
    table = "<table>" + "<tr><td>a</td><td>b</td></tr>" * 200 + f"<tr>{pale}</tr></table>"
    page.write_text(f"<title>x</title><main><img src=x><button></button>{table}</main>")
    found = {v[0] for v in violations(driver, axe, page)}
    assert {"image-alt", "button-name", "color-contrast"} <= found
