"""Filled step lines and boxes over time."""

from __future__ import annotations

import numpy as np

from vanidl.figures.downsample import rounded
from vanidl.figures.figure import Spec


def area(name: str, colour: str, x0: float, dx: float, y: list[float | int | None]) -> Spec:
    """A filled step line; each of the points, `dx` apart from `x0` on, holds until the next."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x0": x0,
        "dx": dx,
        "y": y,
        "line": {"shape": "hv", "width": 1, "color": colour},
        "fill": "tozeroy",
        "hovertemplate": "at %{x:.4g} s: %{y:.3g} %{yaxis.title.text}<extra>" + name + "</extra>",
    }


Spans = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Lane, start in seconds and length in seconds."""


def boxes(name: str, colour: str, spans: Spans) -> Spec:
    """One outline around all boxes: thin ones blend instead of growing to a whole pixel."""
    lane, start, length = spans
    gap = np.full(len(lane), np.nan)
    x = np.stack([start, start + length, start + length, start, gap], axis=1)
    y = np.stack([lane - 0.4, lane - 0.4, lane + 0.4, lane + 0.4, gap], axis=1)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [None if np.isnan(v) else v for v in np.round(x, 5).ravel().tolist()],
        "y": rounded(y.ravel()),
        "yaxis": "y2",
        "line": {"width": 0, "simplify": False, "color": colour},
        "fill": "toself",
        "fillcolor": colour,
        "hoverinfo": "skip",
    }
