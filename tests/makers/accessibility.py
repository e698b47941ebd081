"""axe-core in the page that is open in the browser."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# axe's time grows with the elements of a page: of a table's rows that are built alike (the same
# elements, classes, styles and attributes) four are looked at, and of a picture what has a text, a
# role, a name or the focus. No rule is about lines, areas and empty groups.
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
const said = (each) => each.childElementCount || each.textContent.trim()
  || each.getAttributeNames().some((name) => /^(role|aria-.*|tabindex|href|id)$/.test(name));
for (const each of [...document.querySelectorAll(".main-svg *")].reverse()) {
  if (!said(each)) each.remove();
}
"""
# Contrast is most of axe's time: of texts that look alike (colour, size, weight, everything
# behind them) four are looked at, of all others (thousands of cells of a table) none.
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


@cache
def _axe() -> str:
    """axe-core, as the package axe-core-python brings it."""
    found = importlib.util.find_spec("axe_core_python")
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-core-python is not installed (pip install --group test)")
    script = Path(found.submodule_search_locations[0]) / "axe.min.js"
    return script.read_text(encoding="utf-8")


def violations(driver: Any) -> list[Any]:
    """Rules that the open page breaks; what it hides is opened, and parts alike are removed."""
    driver.execute_script(
        "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
    )
    driver.execute_script(ALIKE)
    driver.execute_script(_axe())
    return list(driver.execute_async_script(RUN))
