"""What the columns of each exported table hold."""

from __future__ import annotations

import dataclasses

from vanidl.analyses.balance import RankLoad
from vanidl.analyses.batches import FetchedBatches
from vanidl.analyses.dataset_records import DataFile
from vanidl.analyses.files import FileRow, GroupRow
from vanidl.analyses.latencies import DurationBin, SlowOperation
from vanidl.analyses.sizes import SizeBin
from vanidl.analyses.summary import LayerTotals
from vanidl.breakdown.overlap import RankOverlap
from vanidl.breakdown.stages import Phase
from vanidl.model.warnings import Notice
from vanidl.schema import Kind, fields_of

_NUMBER = float | None
_BINS: dict[str, Kind] = {"start_s": float, "end_s": float}
_AMOUNTS = dict.fromkeys(("bytes_read", "bytes_written", "reads", "writes"), int | None)
_STEP_TIMES = (
    "start_s", "end_s", "duration_s", "input_wait_s", "busy_s", "in_wait_s", "hidden_s",
    "behind_communication_s", "other_s", "input_wait_io_s",
)  # fmt: skip
_FETCHES: dict[str, Kind] = {
    field.name: _NUMBER if field.name.endswith("_s") else int | None
    for field in dataclasses.fields(FetchedBatches)
}

TABLES: dict[str, dict[str, Kind]] = {
    "timeline": {"row": str} | _BINS | _AMOUNTS,
    "job_timeline": _BINS | _AMOUNTS,
    "file_timeline": {"path": str} | _BINS | _AMOUNTS,
    "steps": {"rank": str, "step": int}
    | dict.fromkeys(_STEP_TIMES, _NUMBER)
    | _AMOUNTS
    | {"kind": str, "slowest_files": [str], "slowest_files_s": [float]},
    "placement": {
        "rank": str,
        "step": int,
        "earliest_s": float,
        "latest_s": float,
        "step_s": float,
    },
    "files": fields_of(FileRow),
    "kinds": fields_of(GroupRow),
    "mounts": fields_of(GroupRow),
    "dataset": fields_of(DataFile),
    "phases": fields_of(Phase),
    "sizes": fields_of(SizeBin),
    "durations": fields_of(DurationBin),
    "slowest": fields_of(SlowOperation),
    "ranks": fields_of(RankLoad),
    "overlap": fields_of(RankOverlap),
    "fetches": _FETCHES | {"rank": str, "name": str | None, "longest_read_file": str | None},
    "layers": fields_of(LayerTotals),
    "warnings": fields_of(Notice),
}
"""Table -> column -> what a value of it is. A table without rows may have no columns."""
