"""No report breaks a rule of axe-core, light and dark, wide and narrow."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.diagnoses.test_labels import made
from tests.makers import browser
from tests.makers.results import EXAMPLES
from vanidl.report.html import write_html
from vanidl.run import Run

pytestmark = pytest.mark.browser
REPORTS = (("full", "light"), ("one_rank", "dark"), ("counters_only", "light"), ("hostile", "dark"))
RUN = """
const done = arguments[0];
axe.run(document, {resultTypes: ["violations"]}).then(
  (found) => done(found.violations.map((v) =>
    [v.id, v.nodes.length, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160))])),
  (error) => done(String(error)));
"""


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
    driver.execute_script(axe)
    driver.set_script_timeout(60)
    return driver.execute_async_script(RUN)


@pytest.mark.parametrize(("name", "scheme"), REPORTS)
def test_reports_break_no_rule(driver, axe, tmp_path, name, scheme):
    write_html(Run(*EXAMPLES[name]()), tmp_path / "page.html")
    browser.prefer(driver, scheme)
    assert violations(driver, axe, tmp_path / "page.html") == []


def test_a_narrow_page_with_actions_breaks_no_rule(driver, axe, tmp_path):
    write_html(made("shared_shuffle"), tmp_path / "page.html")
    assert violations(driver, axe, tmp_path / "page.html", width=390) == []


def test_the_rules_are_looked_at(driver, axe, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<title>x</title><main><img src=x><button></button></main>")
    assert {"image-alt", "button-name"} <= {v[0] for v in violations(driver, axe, page)}
