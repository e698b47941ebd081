"""A survey where pyarrow is not installed: rows are plain lists, and their table is CSV.

A base installation surveys a folder by this; of what is done nothing stays, and all rows are held
at once. `Fleet` takes a `PlainTable` where it takes a table of Arrow.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.files.atomic import streamed_file
from vanidl.formatting.names import format_csv_cell
from vanidl.merge.jobs import group_runs, run_of
from vanidl.readers.records import TracerLog
from vanidl.schema.dataclass import dataclass
from vanidl.survey.logs import Listing, build_job, clip_lifetime, link_logs
from vanidl.survey.rows import COLUMNS, MORE, Job, Row

FILE = "jobs.csv"
NAMES = [name for name, _, _ in COLUMNS] + [name for name, _ in MORE]


@dataclass(frozen=True)
class PlainColumn:
    """Values of a column, None where nothing was recorded: what `Fleet` asks of an Arrow array."""

    values: Sequence[Any]
    dtype: type = object
    num_chunks = 1

    def __len__(self) -> int:
        return len(self.values)

    def chunk(self, _: int) -> PlainColumn:
        """The column, which is one piece."""
        return self

    def iterchunks(self) -> Iterator[PlainColumn]:
        """The same."""
        yield self

    def take(self, places: NDArray[np.intp]) -> PlainColumn:
        """The values of those places, in turn."""
        return PlainColumn([self.values[place] for place in places.tolist()], self.dtype)

    def is_valid(self) -> PlainColumn:
        """Which of them were recorded."""
        return PlainColumn([value is not None for value in self.values], bool)

    def drop_null(self) -> PlainColumn:
        """Those that were recorded."""
        return PlainColumn([value for value in self.values if value is not None], self.dtype)

    def flatten(self) -> PlainColumn:
        """The items of lists, one list after the other."""
        return PlainColumn([item for each in self.values for item in each or ()])

    def parent_indices(self) -> NDArray[np.intp]:
        """For each of those items the index of its list."""
        lengths = [len(each or ()) for each in self.values]
        return np.repeat(np.arange(len(lengths)), lengths)

    def cast(self, _: str, *, safe: bool) -> PlainColumn:
        """Numbers as floats, NaN where one was not recorded."""
        del safe  # integers beyond 2^53 are rounded, as Arrow is asked to
        return PlainColumn([np.nan if v is None else float(v) for v in self.values], float)

    def to_numpy(self, *, zero_copy_only: bool) -> NDArray[Any]:
        """The values as an array of the column's type."""
        del zero_copy_only
        return np.array(self.values, self.dtype)

    def to_pylist(self) -> list[Any]:
        """The values."""
        return list(self.values)

    def encode(self) -> tuple[NDArray[np.intp], list[str | None]]:
        """(index of the value of each, the values as they come)."""
        codes: dict[str | None, int] = {}
        indices = [codes.setdefault(value, len(codes)) for value in self.values]
        return np.array(indices, np.intp), list(codes)


@dataclass(frozen=True)
class PlainTable:
    """Rows of jobs."""

    rows: Sequence[Row]

    @property
    def num_rows(self) -> int:
        """Number of jobs."""
        return len(self.rows)

    def column(self, name: str) -> PlainColumn:
        """One value of each job."""
        return PlainColumn([row[name] for row in self.rows])

    def take(self, places: NDArray[np.intp]) -> PlainColumn:
        """The rows of those places, whole and in turn."""
        return PlainColumn([self.rows[place] for place in places.tolist()])


def group_logs(logs: Sequence[TracerLog], root: str, listing: Listing) -> list[Job]:
    """Which logs are one job, in the order of their first logs."""
    if not logs:
        return []
    runs, users = (
        np.unique(texts, return_inverse=True)[1].astype(np.intp)
        for texts in (
            [f"{log.user_id}\0{run_of(log)}" for log in logs],
            [log.user_id for log in logs],
        )
    )
    lifetimes_ns = np.array([clip_lifetime(log) for log in logs], np.int64).T
    # Only logs that may be one job are compared with each other (`link_logs`).
    related: dict[int, list[TracerLog]] = {}
    for log, number in zip(logs, link_logs(runs, users, lifetimes_ns).tolist(), strict=True):
        related.setdefault(number, []).append(log)
    groups = (
        group
        for some in related.values()
        for group in group_runs(sorted(some, key=lambda log: log.path), ())
    )
    return sorted((build_job(g.logs, root, listing) for g in groups), key=lambda job: job.paths)


def order_by_start(jobs: Iterable[tuple[Job, Row]]) -> list[tuple[Job, Row]]:
    """Jobs by start, those of an unknown one first."""
    return sorted(jobs, key=lambda each: (each[1]["start"] or "", each[1]["first_log"]))


def write_csv(rows: Iterable[Row], path: Path) -> None:
    """One line a job; what was not recorded is empty, lists are JSON.

    Raises:
        VanidlError: it cannot be written there.
    """
    with streamed_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(NAMES)
        for row in rows:
            lines.writerow([format_csv_cell(row[name]) for name in NAMES])
        text.detach()  # which leaves the file to whom it belongs
