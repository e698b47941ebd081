"""Figures for papers: every one of every run, readable in print and without colour."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures for papers need matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

from tests.makers.results import EXAMPLES
from vanidl.paper import drawings, style
from vanidl.paper import registry as paper
from vanidl.paper.registry import DRAWINGS
from vanidl.paper.style import READS, STEPS, WAITS, WRITES, Series
from vanidl.sections.overlap import OVERLAP_PARTS
from vanidl.sections.requests import ACCESS_PARTS

SMALLEST_PT = 6.5


@cache
def example(name: str):
    return EXAMPLES[name]().run


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("figure", DRAWINGS)
def test_every_figure_of_every_run(name, figure):
    drawn = paper.draw_figure(figure, example(name), style.WIDTHS_IN["1col"])
    assert drawn.get_figwidth() == 3.5
    _fits(drawn)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_panel_of_every_run(name):
    panel = paper.draw_panel(example(name))
    assert panel.get_figwidth() == 7.2
    titles = " ".join(text.get_text() for text in panel.findobj(Text))
    for part in paper.PANEL_PARTS:
        assert DRAWINGS[part].title in titles
    _fits(panel)


def _fits(figure):
    """No text is too small to read, and nothing leaves the page."""
    sizes = [t.get_fontsize() for t in figure.findobj(Text) if t.get_text().strip()]
    assert min(sizes) >= SMALLEST_PT
    drawn = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())
    assert drawn.x0 >= -0.03
    assert drawn.y0 >= -0.03
    assert drawn.x1 <= figure.get_figwidth() + 0.03
    assert drawn.y1 <= figure.get_figheight() + 0.03


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(folder of all files of a run, what was said of them)."""
    folder = tmp_path_factory.mktemp("figures")
    return folder, paper.write_figures(example("full"), folder)


def test_every_file_is_written(written):
    folder, said = written
    names = {path.name for path in folder.iterdir()}
    alone = {f"{n}-{w}.{f}" for n in DRAWINGS for w in style.WIDTHS_IN for f in paper.FORMATS}
    assert names == alone | {f"panel.{f}" for f in paper.FORMATS}
    assert len(said) == len(DRAWINGS) + 1
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            width = 7.2 if "1col" not in path.name else 3.5
            assert image.width == pytest.approx(width * style.DPI, abs=1)


def test_fonts_are_embedded(written):
    folder, _ = written
    for path in folder.glob("*.pdf"):
        content = path.read_bytes()
        assert b"/FontFile2" in content  # TrueType, whole glyphs; Type 3 has none
        assert b"/Subtype /Type3" not in content
    for path in folder.glob("*.svg"):
        assert "<text" not in path.read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_files(written, tmp_path):
    """Each figure once: in the panel, or alone."""
    folder, _ = written
    run, width_in = example("full"), style.WIDTHS_IN["2col"]
    paper._save_figure(paper.draw_panel(run), tmp_path / paper.PANEL)
    for name in DRAWINGS.keys() - set(paper.PANEL_PARTS):
        paper._save_figure(paper.draw_figure(name, run, width_in), tmp_path / f"{name}-2col")
    again = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert len(again) == len(paper.FORMATS) * (1 + len(DRAWINGS) - len(paper.PANEL_PARTS))
    assert again == {name: (folder / name).read_bytes() for name in again}


def test_what_is_unknown_is_said_and_not_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "FORMATS", ("svg",))
    written = dict(paper.write_figures(example("counters_only"), tmp_path))
    assert written["timeline"].startswith("not drawn: Neither single operations")
    assert not list(tmp_path.glob("timeline*"))
    assert (tmp_path / "panel.svg").exists()


FILLS = {
    "operations": (READS, WRITES),
    "steps": (STEPS, WAITS),
    "access": tuple(Series(p[1], p[2], drawings._ACCESS_HATCH[p[0]]) for p in ACCESS_PARTS),
    "overlap": tuple(Series(p[1], p[2], drawings._OVERLAP_HATCH[p[0]]) for p in OVERLAP_PARTS),
}


def grey_patch(series: Series) -> np.ndarray:
    """A filled box of the series as a grey picture, 0 black to 255 white."""
    from matplotlib.figure import Figure

    with style.applied():
        figure = Figure(figsize=(1, 1), dpi=style.DPI)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.bar([0.5], [1], 1.0, **series.fill)
        axes.set_xlim(0.1, 0.9)
        axes.set_ylim(0, 0.9)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("L")
    return np.asarray(picture, float)[20:-20, 20:-20]


@pytest.mark.parametrize("group", FILLS)
def test_series_differ_in_black_and_white(group):
    """By lightness, or by a hatch that is plain to see on one of them and not on the other."""
    patches = {series.name: grey_patch(series) for series in FILLS[group]}
    hatches = {series.name: series.hatch for series in FILLS[group]}
    for a, b in combinations(patches, 2):
        lightness = abs(np.median(patches[a]) - np.median(patches[b]))
        texture = max(patches[n].std() for n in (a, b)) if hatches[a] != hatches[b] else 0
        assert lightness > 40 or texture > 12, (a, b, lightness, texture)
