"""The run's steps as TensorBoard scalars, to be read beside the training's own curves.

Tags: `io/input wait share` (of the step), `io/hidden share` (of the time in I/O), `io/bandwidth
while busy (MiB per s)`, `io/read (MiB)`. The wall time of a point is the end of its step, so
"Relative" and "Wall" agree with the curves that the program wrote itself. Of several ranks each
has a folder. What was not recorded gives no point.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import UsageError
from vanidl.run import Run

if TYPE_CHECKING:
    import pandas

_MIB = 1 << 20

Floats = NDArray[np.float64]


def write(run: Run, folder: Path) -> list[tuple[str, str]]:
    """Writes one event file per rank into `folder`; their folders and what is in them.

    Raises:
        UsageError: no step has a place in time, or TensorBoard is not installed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise UsageError(
            f"--to tensorboard: expected the package tensorboard, found: {error}; "
            "pip install 'vanidl-io[tensorboard]'"
        ) from error
    board = _TensorBoard(Event, Summary, EventFileWriter)

    # Only steps with a place in time can lie beside the training's own curves.
    steps = run.frame("steps")
    if steps.empty or "start_s" not in steps or steps["start_s"].isna().all():
        raise UsageError(
            "--to tensorboard: expected a run with steps that have a place in time, found none; "
            "record them with vanidl record."
        )
    written = []
    # A folder for each rank, which TensorBoard shows as a run.
    for process, rows in steps.dropna(subset=["end_s"]).groupby("process", sort=False):
        name = _make_folder_name(str(process))
        writer = board.writer(str(folder / name))
        for tag, values in _compute_curves(rows):
            for event in _make_events(board, run, rows, tag, values):
                writer.add_event(event)
        writer.close()
        written.append((name, f"{len(rows):,} steps"))
    return written


def _make_folder_name(process: str) -> str:
    """A name that is one folder, whatever its host is called."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in process) or "run"


def _compute_curves(rows: pandas.DataFrame) -> Iterator[tuple[str, Floats]]:
    """(tag, a value for each step; nan: not recorded)."""
    column = {
        name: rows[name].to_numpy(np.float64, na_value=np.nan)
        if name in rows
        else np.full(len(rows), np.nan)
        for name in ("input_wait_s", "duration_s", "hidden_s", "busy_s", "bytes_read",
                     "bytes_written")
    }  # fmt: skip
    yield "io/input wait share", _divide(column["input_wait_s"], column["duration_s"])
    yield "io/hidden share", _divide(column["hidden_s"], column["busy_s"])
    moved = column["bytes_read"] + column["bytes_written"]
    yield "io/bandwidth while busy (MiB per s)", _divide(moved / _MIB, column["busy_s"])
    yield "io/read (MiB)", column["bytes_read"] / _MIB


def _divide(part: Floats, whole: Floats) -> Floats:
    shares: Floats = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return shares


def _make_events(
    board: _TensorBoard, run: Run, rows: pandas.DataFrame, tag: str, values: Floats
) -> Iterator[Any]:
    start_s = run.trace.job.start_ns / 1e9
    for step, end_s, value in zip(rows["step"], rows["end_s"], values, strict=True):
        if np.isfinite(value):
            summary = board.summary(value=[board.summary.Value(tag=tag, simple_value=value)])
            yield board.event(wall_time=start_s + end_s, step=int(step), summary=summary)


class _TensorBoard(NamedTuple):
    """TensorBoard's records, and what writes them to a folder."""

    event: Any
    summary: Any
    writer: Any
