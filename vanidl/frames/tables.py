"""What each frame holds: its columns in order, what a value of each is, and its type in pandas.

Equal columns of keys have one meaning and one type in every frame.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from vanidl.advice.finding import Diagnosis, Finding
from vanidl.analyses.balance import RankLoad
from vanidl.analyses.batches import FetchedBatches
from vanidl.analyses.datafiles import DataFile
from vanidl.analyses.files import FileRow, GroupRow
from vanidl.analyses.latencies import DurationBin, SlowOperation
from vanidl.analyses.osts import OstUse
from vanidl.analyses.sizes import SizeBin
from vanidl.analyses.summary import LayerTotals
from vanidl.breakdown.overlap import RankOverlap
from vanidl.breakdown.phases import Phase
from vanidl.model.warnings import Notice
from vanidl.schema.meanings import meaning_of
from vanidl.schema.schema import Kind, bare, fields_of, own_meaning

FrameName = Literal[
    "operations", "timeline", "job_timeline", "file_timeline", "steps", "placement", "files",
    "kinds", "mounts", "dataset", "phases", "sizes", "durations", "slowest", "processes", "ranks",
    "overlap", "fetches", "layers", "osts", "findings", "actions", "warnings", "breakdown",
]  # fmt: skip
"""The name of every frame."""

WINDOWS: FrameName = "breakdown"
FRAMES: tuple[FrameName, ...] = tuple(n for n in get_args(FrameName) if n != WINDOWS)
"""The name of every frame that is exported: all but the windows, whose cells differ by run."""

KEYS = {
    "process": "string", "rank": "Int64", "host": "string", "step": "Int64", "epoch": "Int64",
    "thread": "Int64", "file": "string", "start": "datetime64[ns, UTC]",
}  # fmt: skip
"""Column by which frames are joined -> its type in every frame that has it."""

_WHO: dict[str, Kind] = {"process": str | None, "rank": int | None, "host": str | None}
_WHEN: dict[str, Kind] = {"step": int | None, "epoch": int | None}
_START: dict[str, Kind] = {"start": str | None}
_NUMBER = float | None
_BINS: dict[str, Kind] = _START | {"start_s": float, "end_s": float}
AMOUNTS = ("bytes_read", "bytes_written", "reads", "writes")
_AMOUNTS: dict[str, Kind] = dict.fromkeys(AMOUNTS, int | None)
OWN_STEP_TIMES = ("start_s", "end_s", "duration_s", "input_wait_s", "busy_s")
STEP_TIMES = ("in_wait_s", "hidden_s", "behind_communication_s", "other_s", "input_wait_io_s")
BATCH = {f.name for f in dataclasses.fields(FetchedBatches)} - {
    "rank", "name", "epoch", "longest_read_file",
}  # fmt: skip
_OF_FILE: dict[str, Kind] = {"file": str}

SINCE_START = {"start_s", "end_s", "earliest_s", "latest_s", "first_s", "last_s"}

TABLES: dict[FrameName, dict[str, Kind]] = {
    "operations": _WHO | _WHEN | {"thread": int | None, "file": str} | _BINS
    | {"op": str, "offset": int | None, "nbytes": int},
    "timeline": _WHO | {"row": str} | _BINS | _AMOUNTS,
    "job_timeline": _BINS | _AMOUNTS,
    "file_timeline": _OF_FILE | _BINS | {"bytes_read": int, "bytes_written": int},
    "steps": _WHO | _WHEN | _START | dict.fromkeys((*OWN_STEP_TIMES, *STEP_TIMES), _NUMBER)
    | _AMOUNTS | {"kind": str | None, "slowest_files": [str], "slowest_files_s": [float]},
    "placement": _WHO | {"step": int | None} | _START
    | dict.fromkeys(("earliest_s", "latest_s", "step_s"), float),
    "files": _OF_FILE | fields_of(FileRow, without=("path",)),
    "kinds": fields_of(GroupRow),
    "mounts": fields_of(GroupRow),
    "dataset": _OF_FILE | fields_of(DataFile, without=("path",)),
    "phases": {"epoch": int | None} | _START | {"kind": str} | fields_of(Phase),
    "sizes": fields_of(SizeBin),
    "durations": fields_of(DurationBin),
    "slowest": _WHO | _WHEN | _OF_FILE | _START
    | fields_of(SlowOperation, without=("path", "label")),
    "processes": _WHO | {"role": str, "pid": int | None, "parent_pid": int | None, "log": str},
    "ranks": _WHO | fields_of(RankLoad, without=("label", "rank", "host")),
    "overlap": _WHO | fields_of(RankOverlap, without=("label", "rank")),
    "fetches": _WHO | {"epoch": int | None} | _START | {"name": str | None}
    | {name: _NUMBER if name.endswith("_s") else int | None for name in sorted(BATCH)}
    | {"longest_read_file": str | None},
    "layers": fields_of(LayerTotals),
    "osts": fields_of(OstUse),
    "findings": fields_of(Finding, without=("evidence", "gain_s")) | {"gain_at_least_s": _NUMBER},
    "actions": {name: kind for name, kind in fields_of(Diagnosis).items() if name in (
        "code", "severity", "title", "cause", "now_s", "step_s", "basis", "change", "saved_share",
        "proof")} | {"gain_at_least_s": _NUMBER, "gain_at_most_s": _NUMBER, "findings": [str]},
    "warnings": fields_of(Notice),
    "breakdown": _WHO | _WHEN | _BINS | {"phase": str, "part": str, "window_s": float},
}  # fmt: skip
"""Table -> column -> what a value of it is in JSON; `breakdown` has both ends of cells beside."""


def dtype_of(column: str, kind: Kind) -> str:
    """The type of a column in pandas; what holds lists is object."""
    if column in KEYS:
        return KEYS[column]
    kind = bare(kind)
    nullable = type(None) in get_args(kind)
    plain = next((k for k in get_args(kind) if k is not type(None)), kind) if nullable else kind
    names = {str: "string", float: "float64", int: "Int64" if nullable else "int64",
             bool: "boolean" if nullable else "bool"}  # fmt: skip
    return names.get(plain, "object") if isinstance(plain, type) else "object"


def unit_of(name: FrameName, column: str) -> str:
    """The unit of a column, "" for text and flags; a cell of the breakdown is in seconds."""
    if column not in TABLES[name]:
        return "s"
    return (own_meaning(TABLES[name][column]) or meaning_of(f"tables.{name}.{column}")).unit


def storable(text: str) -> str:
    """Text as UTF-8 can hold it: bytes of a file name that are no text become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
