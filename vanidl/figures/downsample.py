"""Making long things short enough to draw, without changing what they add up to."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.timeline import build_pyramid, sum_neighbouring_bins
from vanidl.figures.figure import Figure, Levels, Spec
from vanidl.formatting.units import count

# Amounts over time at every zoom: which bins a picture holds, and how they travel.

Int64Array = NDArray[np.int64]

COARSEST = 256
CELLS = 1 << 16
"""Most cells of the finest level of a picture with rows, so that a page stays small."""


def build_levels(
    edges_s: NDArray[np.float64],
    series: tuple[Int64Array, ...],
    divisor: int,
    *,
    cells: int = CELLS,
) -> Levels:
    """The levels of series of shape (rows, bins), the finest with at most `cells` cells a series.

    Bins are halved in number until they fit, so each level sums exactly.
    """
    rows = max(len(series[0]), 1)
    limit = max(cells // rows, 1)
    fitting = [_fit_bins(amounts, limit) for amounts in series]
    return Levels(
        float(edges_s[0]),
        float(edges_s[-1]),
        divisor,
        tuple(build_pyramid(amounts, COARSEST) for amounts in fitting),
    )


def fill_level(figure: Figure, level: int = -1) -> Spec:
    """The figure's spec with the amounts of one of its levels drawn in; -1 is the coarsest.

    This is what the page does as a reader zooms.
    """
    spec = deepcopy(figure.spec or {})
    if figure.levels is None:
        return spec
    for trace, series in zip(spec["data"], figure.levels.series, strict=False):
        amounts = series[level]
        width = (figure.levels.end_s - figure.levels.start_s) / amounts.shape[1]
        speed = amounts / (width * figure.levels.divisor)
        trace["dx"] = width
        if trace["type"] == "heatmap":
            # A heat map is placed by the centres of its cells; a curve of steps has an end, too.
            trace["x0"] = figure.levels.start_s + width / 2
            trace["z"] = [[v or None for v in row] for row in speed.tolist()]
        else:
            trace["x0"] = figure.levels.start_s
            trace["y"] = [*speed[0].tolist(), 0]
    return spec


def pack_levels(found: Levels) -> Spec:
    """The levels as a page carries them: the finest, and how many bins each level has.

    The page adds neighbours for the others, which is what they are the sums of. Numbers are
    whole, of as many bytes as the largest needs.
    """
    return {
        "start": found.start_s,
        "end": found.end_s,
        "divisor": found.divisor,
        "bins": [amounts.shape[1] for amounts in found.series[0]],
        "series": [_pack(series[0]) for series in found.series],
    }


def _pack(amounts: Int64Array) -> Spec:
    """Little-endian, row by row, in base64."""
    width = max(1, -(-int(amounts.max(initial=0)).bit_length() // 8))
    raw = np.ascontiguousarray(amounts, "<i8").view(np.uint8).reshape(-1, 8)[:, :width]
    text = base64.b64encode(raw.tobytes()).decode("ascii")
    return {"rows": amounts.shape[0], "bytes": width, "data": text}


def _fit_bins(amounts: Int64Array, limit: int) -> Int64Array:
    bins = amounts.shape[1]
    while bins > limit and bins % 2 == 0:
        bins //= 2
    return sum_neighbouring_bins(amounts, bins)


def fold_bins(
    edges: NDArray[np.float64], values: NDArray[np.int64], limit: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """At most `limit` bins, shape (rows, bins), each the exact sum of neighbouring bins."""
    bins = values.shape[1]
    width = -(-bins // limit)
    if width <= 1:
        return edges, values
    starts = np.arange(0, bins, width)
    sums = np.add.reduceat(values, starts, axis=1)
    return np.append(edges[starts], edges[-1]), sums


def compute_rates(edges: NDArray[np.float64], sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Amount per second in each bin, 0 in bins without length, shape as `sums`."""
    lengths = np.broadcast_to(np.diff(edges), sums.shape)
    return np.divide(sums, lengths, out=np.zeros(sums.shape), where=lengths > 0)


def pick_spread(total: int, limit: int) -> NDArray[np.intp]:
    """At most `limit` positions out of `total`, first and last among them."""
    if total <= limit:
        return np.arange(total, dtype=np.intp)
    return np.unique(np.linspace(0, total - 1, limit).round().astype(np.intp))


def round_values(values: Iterable[float]) -> list[float | int | None]:
    """Values with four significant digits, compact in JSON; what is not a number is None."""
    return [_round_value(value) for value in values]


def _round_value(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def n_of_m(shown: int, total: int, noun: str) -> str:
    """`64 of 1,024 ranks`, or "" where all are shown."""
    return "" if shown >= total else f"{count(shown)} of {count(total)} {noun}"
