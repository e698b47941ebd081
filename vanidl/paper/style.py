"""How figures for papers look: sizes, type, and series that differ without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from vanidl.figures import palette
from vanidl.formatting.names import elided
from vanidl.schema.dataclass import dataclass

WIDTHS_IN = {"1col": 3.5, "2col": 7.2}
"""Usual widths of one and of two columns of a paper, in inches."""

DPI = 300  # of PNG: what journals ask for
_FONT = "DejaVu Sans"  # comes with matplotlib: the same everywhere

_RC: Any = {  # settings, which matplotlib types by their names
    "font.family": _FONT,
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#444444",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 0.8,
    "figure.constrained_layout.w_pad": 0.08,  # inches: a last tick label may reach beyond its axis
    "text.parse_math": False,  # names of files and hosts may hold dollar signs
    "pdf.fonttype": 42,  # fonts embedded as TrueType: text stays text
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "vanidl",  # the same file for the same run
    "savefig.dpi": DPI,
}


@dataclass(frozen=True, slots=True)
class Series:
    """How one series is filled: differences in lightness, and a hatch where those are small."""

    name: str
    colour: str
    hatch: str = ""

    @property
    def fill(self) -> dict[str, Any]:
        """Keyword arguments of bars and areas."""
        return {
            "facecolor": self.colour,
            "edgecolor": palette.INK,
            "hatch": self.hatch,
            "linewidth": 0.4,
            "label": self.name,
        }


READS = Series("reads", "#8fcfc9")
WRITES = Series("writes", "#5b3283")
STEPS = Series("steps", "#dfe3e8")
WAITS = Series("input waits", palette.IN_WAIT)


@contextmanager
def applied() -> Iterator[None]:
    """The style, inside the block only: nothing of a caller's matplotlib changes."""
    with mpl.rc_context(_RC):
        yield


def unknown(figure: FigureBase, reason: str) -> None:
    """Why there is nothing to draw, in place of the drawing."""
    axes = figure.add_subplot()
    axes.set_axis_off()
    said = textwrap.fill(drawable(reason), 52)
    axes.text(0, 1, said, transform=axes.transAxes, va="top", color="#444444")


def legend(axes: Axes, *, columns: int = 3) -> None:
    """A legend above the drawing, where it hides nothing."""
    axes.legend(
        loc="lower right", bbox_to_anchor=(1, 1.0), ncols=columns, borderaxespad=0.2,
        columnspacing=1.0, handletextpad=0.5,
    )  # fmt: skip


def drawable(name: str, *, limit: int = 400) -> str:
    """A name with escapes for what the font has no glyph for."""
    known = _glyphs()
    short = elided(name, limit=limit)
    return "".join(
        c if ord(c) in known else c.encode("unicode_escape").decode("ascii") for c in short
    )


@cache
def _glyphs() -> frozenset[int]:
    font = font_manager.get_font(font_manager.findfont(_FONT))
    return frozenset(font.get_charmap())
