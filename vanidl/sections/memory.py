"""Memory of the run's processes over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vanidl.analyses.memory import FloatArray, Memory, MemorySeries
from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.terminal import named_values
from vanidl.formatting.units import byte_scale, nbytes, percent
from vanidl.run import Run
from vanidl.schema.schema import Maybe
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.results import describe_peak, explain_memory

_MEMORY_TITLE = "Memory over time"
_MOST_POINTS = 1000
_MOST_ROWS = 200
_AREAS = (
    ("training", "training process", palette.OTHER),
    ("workers", "workers", palette.READ),
    ("shared_memory", "shared memory (batches)", palette.HIDDEN),
    ("other", "other processes", palette.UNOBSERVED),
)
_MEMORY_COLUMNS = (
    Column("at", "s"), Column("training process", "bytes"), Column("workers", "bytes"),
    Column("shared memory", "bytes"), Column("other processes", "bytes"),
    Column("page cache", "bytes"),
)  # fmt: skip
_MEANING = (
    "Pages that processes share count by their share, so the areas add up. Page cache is that of "
    "the control group; the kernel gives it back when memory is short."
)
_NONE = "Not recorded: vanidl record looks at the memory of a command's processes on Linux."


def draw_memory(run: Run) -> Figure:
    """Areas of training, workers and batches on their way over time; the limit in words."""
    memory = run.memory
    if memory is None:
        return Figure(
            "memory", "Input and compute", _MEMORY_TITLE, "", empty_reason=_NONE, applies=False
        )
    series = _thin_out(memory.series[0])
    rows = tuple(
        (
            float(at),
            *(int(getattr(series, name)[k]) for name in _COLUMN_NAMES),
            None if np.isnan(series.page_cache[k]) else int(series.page_cache[k]),
        )
        for k, at in enumerate(series.at_s.tolist())
    )
    # Every so many-th point, rounded up: at most `_MOST_ROWS` rows.
    step = -(-len(rows) // _MOST_ROWS)
    said = (f"{describe_peak(memory)}.".capitalize(), explain_memory(memory), _MEANING)
    divisor, unit = byte_scale(float(memory.peak_nbytes))
    at_s = [round(value, 3) for value in series.at_s.tolist()]
    data: list[Spec] = []
    # Areas add up to what counts for the job; the page cache is beside it, as a line.
    for name, title, colour in _AREAS:
        sizes = getattr(series, name)
        if sizes.any():
            data.append(
                _plot_line(title, at_s, sizes / divisor, unit, colour) | {"stackgroup": "all"}
            )
    if not np.isnan(series.page_cache).all():
        cache = np.nan_to_num(series.page_cache) / divisor
        line = {"line": {"color": palette.WRITE, "width": 1, "dash": "dot"}}
        data.append(_plot_line("page cache", at_s, cache, unit, palette.WRITE) | line)
    layout = palette.time_layout(280)
    layout["xaxis"] = palette.time_axis()
    layout["yaxis"] = palette.axis(unit, rangemode="tozero", fixedrange=True)
    return Figure(
        "memory",
        "Input and compute",
        _MEMORY_TITLE,
        " ".join(filter(None, said)),
        {"data": data, "layout": layout},
        Table(_MEMORY_COLUMNS, rows[::step] if step else ()),
        alt_text=f"Memory of the run's processes: {describe_peak(memory)}.",
    )


_COLUMN_NAMES = ("training", "workers", "shared_memory", "other")


def _thin_out(series: MemorySeries) -> MemorySeries:
    """At most `_MOST_POINTS` times, the largest sizes of each stretch."""
    parts = np.array_split(np.arange(len(series.at_s)), min(len(series.at_s), _MOST_POINTS))
    columns: dict[str, Any] = {
        name: np.array([getattr(series, name)[part].max() for part in parts])
        for name in (*_COLUMN_NAMES, "page_cache")
    }
    return MemorySeries(series.host, np.array([series.at_s[p[0]] for p in parts]), **columns)


def _plot_line(
    title: str,
    at: Sequence[float],
    sizes: FloatArray,
    unit: str,
    colour: str,
) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": title,
        "x": at,
        "y": [round(value, 4) for value in sizes.tolist()],
        "line": {"color": colour, "width": 1},
        "hovertemplate": "%{y:.3g} " + unit + f" {title}<extra></extra>",
    }


def _write_memory(run: Run) -> str | None:
    memory = run.memory
    if memory is None:
        return None
    rows = [("peak", describe_peak(memory))]
    if memory.peak_shared_nbytes:
        rows.append(("shared", f"{nbytes(memory.peak_shared_nbytes)} of batches and the like"))
    if left := describe_left(memory):
        rows.append(("left", left))
    if said := explain_memory(memory):
        rows.append((memory.kind.replace("_", " "), said))
    return named_values("Memory", rows)


def _collect_memory(run: Run) -> Object | None:
    memory = run.memory
    if memory is None:
        return None
    series = [
        {
            "host": each.host,
            "at_s": each.at_s.tolist(),
            **{
                f"{name}_nbytes": getattr(each, name).astype(int).tolist() for name in _COLUMN_NAMES
            },
        }
        for each in map(_thin_out, memory.series)
    ]
    return values_of(memory, without=("series",)) | {"series": series}


_MEMORY_KIND = Maybe({
    "kind": str,
    **dict.fromkeys(
        ("peak_nbytes", "peak_training_nbytes", "peak_workers_nbytes", "peak_shared_nbytes",
         "workers", "copied_nbytes"), int),
    **dict.fromkeys(("growth_nbytes_per_s", "growth_nbytes_per_epoch"), float | None),
    "limit_nbytes": int | None,
    "limit_of": str,
    "left_nbytes": int | None,
    "out_of_memory_s": float | None,
    "batches_in_flight": int | None,
    "series": [{"host": str, "at_s": [float]} | {f"{n}_nbytes": [int] for n in _COLUMN_NAMES}],
})  # fmt: skip
MEMORY = Section(
    "memory",
    (draw_memory,),
    _write_memory,
    {"memory": Json(_collect_memory, _MEMORY_KIND)},
    traced=False,
)


def describe_left(memory: Memory) -> str:
    """`52 GiB (81 %) were left at least`, "" where no limit is known."""
    if memory.limit_nbytes is None or memory.left_nbytes is None:
        return ""
    share = percent(memory.left_nbytes / memory.limit_nbytes)
    return f"{nbytes(memory.left_nbytes)} ({share}) were left at least"
