"""One colour a meaning, in all figures, and its twin for dark pages.

Hues differ for the colour-blind (blue, orange, purple) and lightness differs in greyscale;
where bars are stacked, patterns tell the parts apart once more.
"""

from __future__ import annotations

from vanidl.figures.figure import Spec

READ = "#2b9a92"
WRITE = "#6d3f98"
HIDDEN = "#79acd9"
IN_WAIT = "#d5540e"
COMMUNICATION = "#d9a632"
OTHER = "#8a6a55"
UNOBSERVED = "#c6cacf"
STEP = "#9fb0c0"
FIRST = "#d4dae0"
CONSECUTIVE = "#3d5468"
FORWARD = "#7d97ab"
BACKWARD = "#a9b98a"
INK = "#2b2f33"
FAINT = "#e3e5e8"
BUSY = "#707b85"
SOFT = "#8b939a"
PAPER = "#fdfdfc"

SIDES = ("#5f6b76", "#2f6fb3", "#b0722a", "#7a5195", "#2e8b57")
"""What is compared: the first side in grey, the others in colours."""

BETTER = "#1f7f4d"
WORSE = "#c23b22"

RAMP = ("#e6f1f0", "#a9d3cf", "#5fada7", "#1f7f79", "#0b3f3d")
"""Little to much, for heat maps."""

WAIT_RAMP = ("#fbeee6", "#f2b48f", "#d5540e", "#6e2703")
"""Little to much, for waits."""

DARK = {
    READ: "#4dbdb5",
    WRITE: "#b48fdb",
    HIDDEN: "#4178ab",
    IN_WAIT: "#f0793a",
    COMMUNICATION: "#e3be62",
    OTHER: "#b39580",
    UNOBSERVED: "#5b6167",
    STEP: "#566677",
    FIRST: "#4a5560",
    CONSECUTIVE: "#b9cddd",
    FORWARD: "#7390a6",
    BACKWARD: "#94a672",
    INK: "#d9dcdf",
    FAINT: "#34393e",
    BUSY: "#8f9aa4",
    SOFT: "#79828a",
    PAPER: "#15181b",
    SIDES[0]: "#9aa7b3",
    SIDES[1]: "#6fb0f0",
    SIDES[2]: "#e0a868",
    SIDES[3]: "#b995d6",
    SIDES[4]: "#62c48f",
    BETTER: "#5cc48c",
    WORSE: "#f2755c",
    WAIT_RAMP[0]: "#33211a",
    WAIT_RAMP[1]: "#8a4522",
    WAIT_RAMP[3]: "#ffdcc6",
    RAMP[0]: "#17302f",
    RAMP[1]: "#1d5450",
    RAMP[2]: "#2b8a83",
    RAMP[3]: "#6cc9c1",
    RAMP[4]: "#e4fbf8",
}
"""The colour that stands for each of the above on a dark page."""

MOST_TICKS = 6
"""Axes of fewer things than this have a tick each."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def axis(title: str = "", **more: object) -> Spec:
    """An axis as all figures draw it: thin lines, no box, a title in words."""
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": FAINT,
        "linecolor": FAINT,
        "zeroline": False,
        "tickcolor": FAINT,
        "automargin": True,
        "separatethousands": True,  # 4,000 as texts and tables write it, not 4000
        "exponentformat": "none",  # nor 20k
        **more,
    }


def counts(title: str, most: int, **more: object) -> Spec:
    """An axis of how many there are, `most` of them at once: no part of one is named."""
    whole = {"dtick": 1} if most < MOST_TICKS else {}
    return axis(title, tickformat=",", **whole, **more)


def fill(colour: str, shape: str = "") -> Spec:
    """A bar's colour, with a pattern over it where bars of one stack must be told apart."""
    marker: Spec = {"color": colour, "line": {"width": 0}}
    if shape:
        marker["pattern"] = {
            "shape": shape,
            "fillmode": "overlay",
            "fgcolor": PAPER,
            "size": 6,
            "solidity": 0.25,
        }
    return marker


def layout(height: int, **more: object) -> Spec:
    """A layout as all figures share it: transparent, legend above, height in pixels."""
    return {
        "height": height,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": INK},
        "margin": {"l": 56, "r": 16, "t": 36, "b": 44},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "modebar": {"bgcolor": PAPER, "color": SOFT, "activecolor": INK},
        "separators": ".,",
        **more,
    }


def time_layout(height: int, **more: object) -> Spec:
    """A layout whose horizontal axis is time; such pictures zoom together on a page."""
    return layout(
        height,
        dragmode="zoom",
        meta={"time": True},
        **{"margin": {"l": 56, "r": 16, "t": 60, "b": 32}, **more},
    )


def time_axis(**more: object) -> Spec:
    """Seconds since the start of the job."""
    return {**axis(ticksuffix=" s"), **more}


def scale(ramp: tuple[str, ...], *, power: float = 1.0) -> list[list[float | str]]:
    """A plotly colour scale; power 2 shows little beside much."""
    last = len(ramp) - 1
    return [[(i / last) ** power, colour] for i, colour in enumerate(ramp)]


def colorbar(unit: str) -> Spec:
    """A thin bar above the picture, at its right, so that pictures of time stay aligned."""
    return {
        "ticksuffix": unit,
        "showticksuffix": "last",
        "tickangle": 0,
        "nticks": 4,
        "orientation": "h",
        "x": 1,
        "xanchor": "right",
        "y": 1,
        "yanchor": "bottom",
        "len": 0.5,
        "thickness": 8,
        "outlinewidth": 0,
    }


def rank_axis(labels: list[str]) -> Spec:
    """A vertical axis of ranks, first on top, with at most about 16 labels."""
    every = max(1, -(-len(labels) // 16))
    return axis(
        tickvals=list(range(0, len(labels), every)),
        ticktext=labels[::every],
        range=[len(labels) - 0.5, -0.5],
        showgrid=False,
        fixedrange=True,
    )
