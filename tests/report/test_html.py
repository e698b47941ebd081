from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tests.advice.labeled import made
from tests.makers.results import EXAMPLES, NASTY
from vanidl.errors import VanidlError
from vanidl.report import page as page_module
from vanidl.report.html import render_html, write_html
from vanidl.report.page import embedded, tight, unbroken
from vanidl.sections.registry import figures

LIMIT = 4_000_000
VOID = {"meta", "input", "br", "wbr", "img"}


class Page(HTMLParser):
    """Elements, their attributes, the text of scripts, and whether tags balance."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def _check_quiet_sections(text: str) -> None:
    """The first section and those with something to act on are open, warnings never closed."""
    bands = re.findall(r'<section class="band( quiet)?" aria-labelledby="section-([a-z-]+)"', text)
    closed = {name for quiet, name in bands if quiet}
    shown = [name for _, name in bands if name not in {"what-if", "missing"}]
    assert not closed & set(re.findall(r'href="#section-([a-z-]+)" class="marked"', text))
    assert closed <= {name for _, name in bands} - {*shown[:1]}
    if "coverage" in closed:
        assert '<ul class="warnings">' not in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_page_of_every_run(name):
    run = EXAMPLES[name]().run
    text = render_html(run)
    page = parsed(text)
    assert len(text.encode("utf-8", "backslashreplace")) < LIMIT
    names = [tag for tag, _ in page.tags]
    assert names.count("h1") == 1
    figure_ids = {a["id"] for _, a in page.tags if "id" in a}
    assert figure_ids >= {figure.id for figure in figures(run) if figure.applies}
    viewers = sum("viewer" in (a.get("class") or "").split() for _, a in page.tags)
    own = len(page_module.SCRIPTS) + len(page_module.VIEWER_SCRIPTS) * viewers
    assert names.count("script") == own + 1
    _check_quiet_sections(text)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    hrefs = {a["href"][1:] for _, a in page.tags if a.get("href", "").startswith("#")}
    assert {href for href in hrefs if not href.startswith("t=")} <= set(ids)
    levels = [int(n[1]) for n in names if n in ("h1", "h2", "h3", "h4")]
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_nothing_is_fetched():
    page = parsed(render_html(EXAMPLES["hostile"]().run))
    for tag, attributes in page.tags:
        assert tag not in {"img", "link", "iframe", "object", "embed", "base", "svg"}
        assert not set(attributes) & {"src", "onerror", "onload", "onclick"}
        assert attributes.get("href", "#").startswith("#")


def test_policy_admits_only_the_own_scripts():
    page = parsed(render_html(EXAMPLES["full"]().run))
    metas = [a for t, a in page.tags if t == "meta" and "http-equiv" in a]
    policy = metas[0]["content"]
    assert "default-src 'none'" in policy
    scripts = policy.split("script-src ")[1].split(";")[0]
    own = (*page_module.SCRIPTS, *page_module.VIEWER_SCRIPTS)
    assert scripts.count("sha256-") == len(own)
    assert "unsafe" not in scripts


def test_hostile_names_arrive_whole_as_data():
    page = parsed(render_html(EXAMPLES["hostile"]().run))
    data = json.loads(page.scripts[0])
    files = next(f for f in data["figures"] if f["id"] == "files")["table"]["rows"]
    paths = [row[0] for row in files]
    assert NASTY[0] in paths
    assert "/data/{{7*7}}{% raw %}.npz" in paths
    assert "/data/line\\nbreak\\ttab\\r.tfrecord" in paths
    assert not any("49" in part for part in page.text if "{{" in part)


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "\u2028\u2029", "&lt;", '"\\'])
def test_embedded_json_is_inert_and_exact(text):
    encoded = embedded({text: text})
    assert not set(encoded) & set("<>&\u2028\u2029")
    assert json.loads(encoded) == {text: text}


def test_embedded_refuses_what_json_cannot_say():
    with pytest.raises(ValueError, match="JSON"):
        embedded(float("nan"))


def test_unknown_sections_say_why():
    text = " ".join(parsed(render_html(EXAMPLES["counters_only"]().run)).text)
    assert "No steps were recorded" in text
    assert "No single operation was traced" in text


def test_written_whole_and_readable(tmp_path):
    target = tmp_path / "report.html"
    write_html(EXAMPLES["hostile"]().run, target)
    assert "\\udcff" in target.read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_missing_folder_is_one_clear_line(tmp_path):
    with pytest.raises(VanidlError, match=r"cannot write the report to .*No such file") as error:
        write_html(EXAMPLES["nothing"]().run, tmp_path / "missing" / "report.html")
    assert "\n" not in str(error.value)


def test_failing_disk_leaves_the_old_report(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(VanidlError, match="No space left"):
        write_html(EXAMPLES["nothing"]().run, target)
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_numbers_keep_their_units_on_one_line():
    assert tight("16.2 s of 3 GiB (63 %)") == "16.2\u00a0s of 3\u00a0GiB (63\u00a0%)"
    assert tight("4 ranks") == "4 ranks"


def test_no_style_of_an_element_around_it_reaches_an_option():
    styles = "".join(p.read_text() for p in Path(page_module.__file__).parent.rglob("*.css"))
    assert not re.findall(r"[\w\])] span[^,{]*[,{]", styles.replace(".brand span", ""))


def test_options_keep_their_hyphens_and_nothing_else_is_let_through():
    option = '<span class="option">--data</span>'
    assert unbroken("give (--data PATH)") == f"give ({option} PATH)"
    assert unbroken("a--b, --, --9, <b>--data") == f"a--b, --, --9, &lt;b&gt;{option}"


@pytest.mark.parametrize("name", ["one_rank", "counters_only"])
def test_a_switch_over_time_has_something_to_choose(name):
    page = render_html(EXAMPLES[name]().run)
    choices = [len(ids.split()) for ids in re.findall(r'data-figures="([^"]*)"', page)]
    assert page.count('<fieldset class="switch">') == sum(n > 1 for n in choices)


def test_what_would_change_little_is_one_line_until_it_is_opened():
    assert '<section class="band quiet" aria-labelledby="section-what-if">' in (
        render_html(made("healthy"))
    )
    assert '<section class="band" aria-labelledby="section-what-if">' in (
        render_html(made("in_process_slow_storage"))
    )
