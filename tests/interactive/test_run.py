"""A run in a notebook: its line, its card, its figures, its page."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import vanidl
from tests import DATA
from vanidl.errors import UsageError
from vanidl.interactive import run
from vanidl.interactive.run import MOST_ACTIONS
from vanidl.report.overview import make_overview

RUNS = ("torch_pfs_workers0", "ddp_two_hosts", "torch_late_workers")

Opened = Callable[[Path], vanidl.Run]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_one_line(opened: Opened, name: str) -> None:
    run = opened(DATA / name)
    assert len(repr(run).splitlines()) == 1
    assert run.answer.title in repr(run)


@pytest.mark.parametrize("name", RUNS)
def test_the_card_is_whole_and_inert(opened: Opened, name: str) -> None:
    run = opened(DATA / name)
    text = run._repr_html_()
    tree = ElementTree.fromstring(text)
    assert not {"script", "style", "link", "img"} & {element.tag for element in tree.iter()}
    assert run.answer.title in "".join(tree.itertext())
    shown = [a.title for a in make_overview(run).actions[:MOST_ACTIONS]]
    assert [b.text for b in tree.iter("b") if b.text in shown] == shown


def test_the_card_s_bar_is_as_long_as_its_step(opened: Opened) -> None:
    text = opened(DATA / "torch_pfs_workers0")._repr_html_()
    shares = [float(share) for share in re.findall(r"width:([\d.]+)%", text)]
    assert sum(shares) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize("name", RUNS)
def test_the_card_has_its_bar_as_a_table(opened: Opened, name: str) -> None:
    run = opened(DATA / name)
    bar = make_overview(run).bar
    assert bar is not None
    (table,) = ElementTree.fromstring(run._repr_html_()).iter("table")
    rows = [tuple("".join(cell.itertext()) for cell in row) for row in table.iter("tr")]
    assert rows[1 : 1 + len(bar.parts)] == [(p.name, p.amount, p.percent) for p in bar.parts]
    assert [row[1] for row in rows[1 + len(bar.parts) :]] == [g.amount for g in bar.ghosts]


def test_names_from_a_log_cannot_break_out(opened: Opened) -> None:
    run = opened(DATA / "torch_pfs_workers0")
    hostile = "<script>alert(1)</script>"
    named = type(run)(run.trace, run.results, run.selection, hostile)
    assert hostile not in named._repr_html_()
    assert html.escape(hostile) in named._repr_html_()


@pytest.mark.parametrize("name", RUNS)
def test_every_figure_that_is_named_is_drawn(opened: Opened, name: str) -> None:
    pytest.importorskip("plotly")
    run = opened(DATA / name)
    assert "timeline" in run.figure_names
    for figure in run.figure_names:
        assert run.figure(figure).to_dict()["data"], figure


def test_the_timeline_holds_every_byte(opened: Opened) -> None:
    pytest.importorskip("plotly")
    run = opened(DATA / "ddp_two_hosts")
    drawn = run.figure("timeline")
    width_s = np.diff(drawn.data[0].x)[0]
    unit = {"MiB/s": 2**20, "KiB/s": 2**10}[drawn.layout.yaxis.title.text]
    assert sum(drawn.data[0].y) * width_s * unit == pytest.approx(run.summary.bytes_read)
    steps = next(trace for trace in drawn.data if trace.name == "steps")
    waited_s = np.asarray(steps.marker.color) / 100 @ np.asarray(steps.x)
    assert waited_s == pytest.approx(run.frame("steps")["input_wait_s"].sum())


def test_an_unknown_figure_names_the_known(opened: Opened) -> None:
    with pytest.raises(UsageError, match="timeline"):
        opened(DATA / "torch_pfs_workers0").figure("nothing")
    assert "nothing" not in run.list_figures(opened(DATA / "torch_pfs_workers0"))


def test_the_page_is_in_the_cell(opened: Opened) -> None:
    pytest.importorskip("IPython")
    run = opened(DATA / "torch_pfs_workers0")
    frame = run.view(height=500)
    page = base64.b64decode(frame.src.partition("base64,")[2]).decode()
    words = re.sub("<[^>]*>", "", page).replace("\N{NO-BREAK SPACE}", " ")
    assert run.answer.title.split(";")[0] in words
    assert frame.height == 500


def test_another_filter_gives_a_run_of_the_same_kind(opened: Opened) -> None:
    run = opened(DATA / "torch_pfs_workers0")
    part = run.select(vanidl.Selection(from_s=10.0, to_s=20.0))
    assert type(part) is type(run)


def test_a_bar_is_for_notebooks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*_: object) -> None: ...

    monkeypatch.delitem(run.sys.modules, "ipykernel", raising=False)  # of another test
    with run.bar_in_notebooks(None) as shown:
        assert shown is None
    pytest.importorskip("tqdm")
    monkeypatch.setitem(run.sys.modules, "ipykernel", run)
    with run.bar_in_notebooks(own) as shown:
        assert shown is own
    with run.bar_in_notebooks(None) as shown:
        assert shown is not None
        shown("logs", 1, 3)


def test_what_is_public_is_what_dir_shows() -> None:
    assert dir(vanidl) == sorted(vanidl.__all__)
