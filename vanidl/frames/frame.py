"""Results of a run as frames: `frame` makes one with the columns that `tables.TABLES` lists.

pandas is imported when a frame is asked for: half a second that the command line does not need.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vanidl.advice.finding import Diagnosis, Finding
from vanidl.analyses.balance import RankLoad
from vanidl.analyses.results import Results
from vanidl.breakdown.account import Breakdown
from vanidl.breakdown.overlap import RankOverlap
from vanidl.breakdown.phases import Phase
from vanidl.breakdown.rank_accounts import divide_rank
from vanidl.breakdown.windows import Tiles, tile_rank
from vanidl.errors import UsageError
from vanidl.frames.tables import (
    AMOUNTS,
    BATCH,
    OWN_STEP_TIMES,
    SINCE_START,
    STEP_TIMES,
    TABLES,
    WINDOWS,
    FrameName,
    dtype_of,
    storable,
    unit_of,
)
from vanidl.model.selection import Selection, select
from vanidl.model.trace import Part, Trace
from vanidl.schema.schema import bare

if TYPE_CHECKING:
    import pandas
    import pyarrow

Int64Array = NDArray[np.int64]
Columns = dict[str, Any]


class Analysed(Protocol):
    """What tables are made from: a `Run`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def trace(self) -> Trace: ...  # noqa: D102
    @property
    def results(self) -> Results: ...  # noqa: D102
    @property
    def selection(self) -> Selection: ...  # noqa: D102
    @property
    def breakdown(self) -> Breakdown: ...  # noqa: D102
    @property
    def epochs(self) -> tuple[Phase, ...]: ...  # noqa: D102
    @property
    def findings(self) -> tuple[Finding, ...]: ...  # noqa: D102
    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]: ...  # noqa: D102


def frame(run: Analysed, name: FrameName) -> pandas.DataFrame:
    """The table of that name with the columns that `TABLES` lists; times since the job's start.

    `attrs` holds the run's name, the job's start and the unit of each column that has one.

    Raises:
        UsageError: there is no table of that name.
    """
    if name not in TABLES:
        raise UsageError(f"no frame {name!r}: expected one of {', '.join(TABLES)}.")
    if name == "operations":
        import pandas

        blocks = list(operation_frames(run))
        made = blocks[0] if len(blocks) == 1 else pandas.concat(blocks, ignore_index=True)
    else:
        tables = _Tables(run)
        columns = _MAKERS[name](tables)
        if name != WINDOWS:  # results are since the begin of what is selected
            late_s = (tables.since_ns - run.trace.job.start_ns) / 1e9
            for column in SINCE_START & columns.keys() if late_s else ():
                columns[column] = np.asarray(columns[column], float) + late_s
        made = _apply_types(run, name, columns)
    made.attrs.update(attributes(run, name, made.columns))
    return made


def attributes(run: Analysed, name: FrameName, columns: Iterable[str]) -> dict[str, Any]:
    """What a frame says of itself: the run, when its job started, units by column."""
    start_ns = run.trace.job.start_ns
    seconds = datetime.fromtimestamp(start_ns // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    units = {column: unit_of(name, column) for column in columns}
    return {
        "run": storable(run.name),
        "frame": name,
        "job_start": f"{seconds}.{start_ns % 10**9:09d}Z",
        "units": {column: unit for column, unit in units.items() if unit},
    }


def operation_frames(run: Analysed, most_rows: int = 0) -> Iterator[pandas.DataFrame]:
    """The table of operations in blocks of at most so many rows, 0: a part at a time.

    Where there are no operations it is one block without rows.
    """
    tables, empty = _Tables(run), True
    for part in select(run.trace, run.selection).io:
        for low in range(0, len(part), most_rows or len(part) or 1):
            block = part.rows(slice(low, low + (most_rows or len(part))))
            yield _apply_types(run, "operations", tables.operations(block))
            empty = False
    if empty:
        yield _apply_types(run, "operations", {})


def arrow_table(name: FrameName, made: pandas.DataFrame) -> pyarrow.Table:
    """A frame as an Arrow table; text is UTF-8, what was not recorded is null."""
    import pyarrow

    plain = {"string": pyarrow.string(), "Int64": pyarrow.int64(), "int64": pyarrow.int64(),
             "float64": pyarrow.float64(), "bool": pyarrow.bool_(), "boolean": pyarrow.bool_(),
             "datetime64[ns, UTC]": pyarrow.timestamp("ns", "UTC")}  # fmt: skip
    lists = {str: pyarrow.list_(pyarrow.string()), float: pyarrow.list_(pyarrow.float64())}
    arrays = []
    for column in made.columns:
        kind = bare(TABLES[name].get(column, float))
        form = plain.get(dtype_of(column, kind))
        if form is None and isinstance(kind, list):
            form = lists[kind[0]]
        values = made[column]
        lists_of = values.tolist() if values.dtype == object else values
        arrays.append(pyarrow.array(lists_of, form, from_pandas=True))
    about = {"vanidl": json.dumps(made.attrs)} if made.attrs else {}
    return pyarrow.table(arrays, names=[str(column) for column in made.columns], metadata=about)


def plain_frame(made: pandas.DataFrame) -> pandas.DataFrame:
    """The frame as JSON takes it: instants as ISO 8601, what is not known as None."""
    texts = {
        str(column): made[column].map(lambda at: at.isoformat(), na_action="ignore")
        for column in made.select_dtypes("datetimetz")
    }
    plain = made.assign(**texts).astype(object)
    return plain.where(plain.notna(), None)


def _apply_types(run: Analysed, name: FrameName, columns: Columns) -> pandas.DataFrame:
    """The columns of a table in order and of their types; those that were not made are unknown."""
    import pandas

    rows = max(map(len, columns.values()), default=0)
    cells = dict.fromkeys(columns.keys() - TABLES[name].keys(), float) if name == WINDOWS else {}
    kinds = TABLES[name] | {column: cells[column] for column in columns if column in cells}
    series: dict[str, Any] = {}
    # Instants follow from seconds since the start; other columns that were not made are unknown.
    for column, kind in kinds.items():
        form = dtype_of(column, kind)
        values = columns.get(column)
        if column == "start":
            since_s = columns.get("start_s", columns.get("earliest_s")) if values is None else None
            values = _convert_instants(run, since_s, rows) if values is None else values
            values = np.asarray(values, "datetime64[ns]")
        elif values is None:
            values = np.full(rows, np.nan if form == "float64" else None)
        if column == "start":
            series[column] = pandas.DatetimeIndex(values, tz="UTC")
        elif form == "string":
            # Text is kept as Python has it: equal paths are one object, whatever is installed.
            series[column] = pandas.array(values, pandas.StringDtype("python"))
        elif form in ("Int64", "boolean"):
            series[column] = _make_nullable(values, form)
        elif form == "object":
            series[column] = pandas.Series(list(values), dtype=object)
        else:
            series[column] = np.asarray(values, form)
    return pandas.DataFrame(series)


def _make_nullable(values: Any, form: str) -> Any:  # noqa: ANN401  (an array of pandas)
    """Numbers with the unknown among them: None, nan or, in an array of integers, -1."""
    import pandas

    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        known = values >= 0
        return pandas.arrays.IntegerArray(values.astype(np.int64), ~known)
    return pandas.array(list(values), form)  # type: ignore[call-overload]


def _convert_instants(run: Analysed, since_s: Any, rows: int) -> Any:  # noqa: ANN401
    """Seconds since the job's start as datetime64, nan and None as no time."""
    if since_s is None:
        return np.full(rows, "NaT", "datetime64[ns]")
    seconds = np.asarray(since_s, float)
    known = np.isfinite(seconds)
    ns = run.trace.job.start_ns + np.rint(np.where(known, seconds, 0.0) * 1e9).astype(np.int64)
    return np.where(known, ns.astype("datetime64[ns]"), np.datetime64("NaT", "ns"))


def _rows(records: Iterable[Any]) -> Columns:
    """The fields of records of one class as columns."""
    found = [dataclasses.asdict(record) for record in records]
    names = found[0] if found else ()
    return {
        name: [storable(row[name]) if isinstance(row[name], str) else row[name] for row in found]
        for name in names
    }


class _Tables:
    """The columns of the tables of one run, with what the keys of rows are looked up in."""

    def __init__(self, run: Analysed) -> None:
        self.run, self.trace, self.results = run, run.trace, run.results

    @cached_property
    def chosen(self) -> Trace:
        """The trace as the selection sees it."""
        return select(self.trace, self.run.selection)

    @property
    def since_ns(self) -> int:
        """The instant from which results count seconds: the begin of what is selected."""
        return self.chosen.job.start_ns

    @cached_property
    def _processes(self) -> Columns:
        """By index of the process, and at the end for none: its name, rank and host.

        Names are made different by host and number where they are not. The rank is that which
        the process served; where no process has one, the place of its training process.
        """
        processes, of_position = self.trace.processes, self.trace.rank_numbers
        labels = [storable(process.label) for process in processes]
        # Names that occur more than once, as of workers, get their host and number.
        names = [
            f"{label} ({p.host}:{p.pid})" if labels.count(label) > 1 else label
            for label, p in zip(labels, processes, strict=True)
        ] if len(set(labels)) < len(labels) else labels  # fmt: skip
        served = [
            of_position[k] if k >= 0 else processes[i].rank
            for i, k in enumerate(self.trace.family.tolist())
        ]
        hosts = [storable(process.host) or None for process in processes]
        return {
            "process": np.array([*names, None], object),
            "rank": np.array([-1 if rank is None else rank for rank in [*served, None]], np.int64),
            "host": np.array([*hosts, None], object),
        }

    @cached_property
    def _paths(self) -> NDArray[np.object_]:
        return np.array([*map(storable, self.trace.files.path), None], object)

    def who(self, process: Int64Array) -> Columns:
        """The keys of rows by the index of their process, -1 for none."""
        return {name: values[process] for name, values in self._processes.items()}

    def who_of_ranks(self, position: Int64Array) -> Columns:
        """The keys of rows by position in Trace.ranks, -1 for none."""
        return self.who(np.array([*self.trace.ranks, -1], np.int64)[position])

    def who_of_labels(self, labels: Iterable[str]) -> Columns:
        """The keys of rows of which only the label of the rank, or of the process, is known."""
        order = [*range(len(self.trace.processes)), *reversed(self.trace.ranks)]
        index = {self.trace.processes[i].label: i for i in order}
        return self.who(np.array([index.get(label, -1) for label in labels], np.int64))

    @cached_property
    def _tiles(self) -> dict[int, Tiles]:
        """Position of a rank with steps -> the windows of its training thread."""
        made = {k: tile_rank(self.chosen, k) for k in range(len(self.trace.ranks))}
        return {position: tiles for position, tiles in made.items() if tiles is not None}

    @cached_property
    def _epochs(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Start and end of each epoch that was found, ns, and its number as the loop counts."""
        since = self.trace.job.start_ns
        bounds = [(phase.start_s, phase.end_s) for phase in self.run.epochs]
        ns = np.rint(np.array(bounds, float).reshape(-1, 2) * 1e9).astype(np.int64) + since
        number = np.arange(len(ns), dtype=np.int64)
        for tiles in self._tiles.values():
            seen = _find_tile(tiles, (ns[:, 0] + ns[:, 1]) // 2)
            known = np.where(seen >= 0, tiles.epoch[np.maximum(seen, 0)], -1)
            number = np.where(known >= 0, known, number)
        return ns[:, 0], ns[:, 1], number

    def when(self, position: int, at: Int64Array) -> Columns:
        """Which step and epoch of a rank it was in at some instants; -1 for none.

        All of a step is in the epoch of its middle.
        """
        tiles = self._tiles.get(position)
        if tiles is None:
            return {"step": np.full(len(at), -1), "epoch": self._epoch_of_run(at)}
        tile = _find_tile(tiles, at)
        # The tile of the rank's time in which the instant lies; outside of steps the epoch alone.
        row = np.where(tile >= 0, tiles.step[np.maximum(tile, 0)], -1)
        known = np.maximum(row, 0)
        epoch = self._epoch_of(tiles, at)
        middle = self._epoch_of(tiles, _find_middles(tiles))
        return {
            "step": np.where(row >= 0, tiles.number[known], -1),
            "epoch": np.where(row >= 0, middle[known], epoch),
        }

    def _epoch_of(self, tiles: Tiles, at: Int64Array) -> Int64Array:
        """The epoch of instants as the loop of a rank counts, else as it was found."""
        if not (tiles.epoch >= 0).any():
            return self._epoch_of_run(at)
        tile = _find_tile(tiles, at)
        return np.where(tile >= 0, tiles.epoch[np.maximum(tile, 0)], -1)

    def _epoch_of_run(self, at: Int64Array) -> Int64Array:
        start, end, number = self._epochs
        place = np.searchsorted(start, at, side="right") - 1
        inside = place >= 0
        inside[inside] = at[inside] < end[place[inside]]
        epoch = np.full(len(at), -1, np.int64)
        epoch[inside] = number[place[inside]]
        return epoch

    def operations(self, part: Part) -> Columns:
        """One row an operation, with the step and epoch of its rank in which it started."""
        since = self.trace.job.start_ns
        position = int(self.trace.family[part.process])
        return {
            **self.who(np.full(len(part), part.process, np.int64)),
            **self.when(position, part.start),
            "thread": part.thread,
            "file": self._paths[part.file],
            "start": part.start,
            "start_s": (part.start - since) / 1e9,
            "end_s": (part.end - since) / 1e9,
            "op": np.array(["read", "write"], object)[part.op],
            "offset": part.offset,
            "nbytes": part.nbytes,
        }

    def timeline(self) -> Columns:
        """One row a rank, or group of ranks, and bin in which anything moved."""
        line = self.results.timeline
        if line is None:
            return {}
        amounts = {name: v for name in AMOUNTS if (v := getattr(line, name)) is not None}
        row, at = np.nonzero(np.any([values != 0 for values in amounts.values()], axis=0))
        labels = np.array([storable(label) for label in line.row_labels], object)
        # A row of its own for each rank, or groups of ranks: these have no rank to name.
        each = line.ranks == len(labels) - ("no rank" in line.row_labels)
        position = np.where(row < line.ranks, row, -1) if each else np.full(len(row), -1)
        bounds = {"start_s": line.edges_s[:-1][at], "end_s": line.edges_s[1:][at]}
        moved = {name: values[row, at] for name, values in amounts.items()}
        return self.who_of_ranks(position) | {"row": labels[row]} | bounds | moved

    def job_timeline(self) -> Columns:
        """One row a bin, those in which nothing moved among them."""
        if self.results.timeline is None:
            return {}
        job = self.results.timeline.job
        known = {name: v for name in AMOUNTS if (v := getattr(job, name)) is not None}
        return {"start_s": job.edges_s[:-1], "end_s": job.edges_s[1:]} | known

    def file_timeline(self) -> Columns:
        """One row a file and bin in which anything moved, of the busiest files."""
        line = self.results.filetimeline
        if line is None:
            return {}
        file, at = np.nonzero(line.bytes_read + line.bytes_written)
        return {
            "file": np.array([storable(path) for path in line.paths], object)[file],
            "start_s": line.edges_s[:-1][at],
            "end_s": line.edges_s[1:][at],
            "bytes_read": line.bytes_read[file, at],
            "bytes_written": line.bytes_written[file, at],
        }

    def steps(self) -> Columns:
        """One row a step and rank, with its share of the overlap where steps have times."""
        if self.results.steps is None:
            return {}
        table = self.results.steps.table
        position = table.rank.astype(np.int64)
        epoch = np.full(len(position), -1, np.int64)
        # All of a step is in the epoch of its middle, rank by rank.
        for k in np.unique(position).tolist():
            mine = (position == k) & np.isfinite(table.end_s)
            at = np.rint((table.start_s[mine] + table.end_s[mine]) * 0.5e9).astype(np.int64)
            epoch[mine] = self.when(k, at + self.since_ns)["epoch"]
        columns = self.who_of_ranks(position) | {"step": table.step, "epoch": epoch}
        columns |= {name: getattr(table, name) for name in OWN_STEP_TIMES}
        # What happened during each, where steps have a place in time.
        each = self.run.breakdown.step_records
        if each is None:
            return columns
        known = {name: v for name in AMOUNTS if (v := getattr(each, name)) is not None}
        times = {name: getattr(each, name) for name in STEP_TIMES}
        return columns | known | times | {
            "kind": each.kind,
            "slowest_files": [[storable(path) for path, _ in files] for files in each.slowest],
            "slowest_files_s": [[seconds for _, seconds in files] for files in each.slowest],
        }  # fmt: skip

    def placement(self) -> Columns:
        """One row a placed step: which, and the bounds of its start."""
        found = self.results.placement
        if found is None:
            return {}
        rows = found.per_rank
        labels = [row.label for row in rows for _ in range(row.steps)]
        columns = {"step": np.concatenate([np.arange(row.steps) for row in rows])}
        for name in ("earliest_s", "latest_s", "step_s"):
            columns[name] = np.concatenate([getattr(row, name) for row in rows])
        return self.who_of_labels(labels) | columns

    def files(self) -> Columns:
        """One row a file."""
        columns = _rows(self.results.files.rows)
        return columns and {"file": columns.pop("path")} | columns

    def dataset(self) -> Columns:
        """One row a file of the dataset."""
        columns = _rows(self.results.dataset.files if self.results.dataset else ())
        return columns and {"file": columns.pop("path")} | columns

    def phases(self) -> Columns:
        """One row a stage, an epoch, a checkpoint."""
        found = self.run.breakdown.phases
        if found is None:
            return {}
        kinds = {"stage": found.stages, "epoch": found.epochs, "checkpoint": found.checkpoints}
        middle = [(each.start_s + each.end_s) / 2 for each in found.epochs]
        at = np.rint(np.array(middle, float) * 1e9).astype(np.int64) + self.since_ns
        none = [[-1] * len(rows) for rows in (found.stages, found.checkpoints)]
        numbers = [*none[0], *self._epoch_of_run(at).tolist(), *none[1]]
        return _rows(row for rows in kinds.values() for row in rows) | {
            "epoch": np.array(numbers, np.int64),
            "kind": [kind for kind, rows in kinds.items() for _ in rows],
        }

    def slowest(self) -> Columns:
        """The longest operations, longest first."""
        found = self.results.latencies.slowest if self.results.latencies else ()
        columns = _rows(found)
        if not columns:
            return {}
        # Step and epoch of each by its own rank's clock.
        labels = columns.pop("label")
        position = {self.trace.processes[i].label: k for k, i in enumerate(self.trace.ranks)}
        at = self.since_ns + np.rint(np.array(columns["start_s"]) * 1e9).astype(np.int64)
        when = [
            self.when(position.get(row.label, -1), at[k : k + 1]) for k, row in enumerate(found)
        ]
        seen = {name: np.concatenate([w[name] for w in when]) for name in ("step", "epoch")}
        return self.who_of_labels(labels) | seen | {"file": columns.pop("path")} | columns

    def processes(self) -> Columns:
        """One row a process: what every other table's process, rank and host are of."""
        processes = self.trace.processes
        return self.who(np.arange(len(processes))) | {
            name: [getattr(process, name) for process in processes]
            for name in ("role", "pid", "parent_pid", "log")
        }

    def ranks(self) -> Columns:
        """One row a rank: the I/O of its training process and workers."""
        return self._of_ranks(self.results.balance.rows if self.results.balance else ())

    def overlap(self) -> Columns:
        """One row a rank: how its I/O lies beside what it computes."""
        found = self.run.breakdown.overlap
        return self._of_ranks(found.per_rank if found else ())

    def _of_ranks(self, rows: tuple[RankLoad, ...] | tuple[RankOverlap, ...]) -> Columns:
        columns = _rows(rows)
        return columns | self.who_of_labels([row.label for row in rows]) if rows else {}

    def fetches(self) -> Columns:
        """One row a fetch of a batch."""
        found = self.results.fetching
        if found is None:
            return {}
        batches = found.batches
        names = np.array([*(storable(name) for name in found.names), None], object)
        columns = {name: getattr(batches, name) for name in BATCH | {"epoch"}}
        # -1 is a worker, the training process itself, and no unknown one.
        return self.who_of_ranks(batches.rank) | columns | {
            "worker": batches.worker.tolist(),
            "name": names[batches.name],
            "longest_read_file": self._paths[batches.longest_read_file],
        }  # fmt: skip

    def findings(self) -> Columns:
        """One row a finding, most severe first."""
        found = self.run.findings
        names = TABLES["findings"].keys() - {"gain_at_least_s"}
        columns: Columns = {name: [getattr(each, name) for each in found] for name in names}
        return columns | {"gain_at_least_s": [f.gain_s[0] if f.gain_s else None for f in found]}

    def actions(self) -> Columns:
        """One row a thing to do, what saves most first."""
        found = self.run.diagnoses
        made = ("gain_at_least_s", "gain_at_most_s", "findings")
        names = TABLES["actions"].keys() - set(made)
        columns: Columns = {name: [getattr(each, name) for each in found] for name in names}
        for side, name in enumerate(made[:2]):
            columns[name] = [d.gain_s[side] if d.gain_s else None for d in found]
        return columns | {"findings": [[f.code for f in d.findings] for d in found]}

    def breakdown(self) -> Columns:
        """One row a window of each rank with steps: its phase, part, and both ends of each cell."""
        tables: list[Columns] = []
        for position in range(len(self.chosen.ranks)):
            windows = divide_rank(self.chosen, self.results, position)
            if windows is not None:
                who = self.who_of_ranks(np.full(len(windows), position))
                tables.append(who | windows.columns(self.trace.job.start_ns))
        # Ranks may have different causes: what one lacks is missing in its rows.
        names = dict.fromkeys(name for table in tables for name in table)
        sizes = [len(table["start_s"]) for table in tables]
        return {
            name: np.concatenate([
                table.get(name, np.full(size, np.nan))
                for table, size in zip(tables, sizes, strict=True)
            ])
            for name in names
        }  # fmt: skip


def _find_middles(tiles: Tiles) -> Int64Array:
    """Half way between begin and end of each step, ns."""
    inside = np.flatnonzero(tiles.step >= 0)
    row = tiles.step[inside]
    begin, end = (np.zeros(tiles.steps, np.int64) for _ in range(2))
    begin[row[::-1]], end[row] = tiles.start[inside][::-1], tiles.end[inside]
    return begin + (end - begin) // 2


def _find_tile(tiles: Tiles, at: Int64Array) -> Int64Array:
    """The tile of each instant, -1 for none."""
    tile = np.searchsorted(tiles.start, at, side="right") - 1
    inside = tile >= 0
    inside[inside] = at[inside] < tiles.end[tile[inside]]
    found: Int64Array = np.where(inside, tile, -1)
    return found


_MAKERS: Mapping[FrameName, Callable[[_Tables], Columns]] = {
    "timeline": _Tables.timeline,
    "job_timeline": _Tables.job_timeline,
    "file_timeline": _Tables.file_timeline,
    "steps": _Tables.steps,
    "placement": _Tables.placement,
    "files": _Tables.files,
    "kinds": lambda t: _rows(t.results.files.by_kind),
    "mounts": lambda t: _rows(t.results.files.by_mount),
    "dataset": _Tables.dataset,
    "phases": _Tables.phases,
    "sizes": lambda t: _rows(t.results.sizes.histogram),
    "durations": lambda t: _rows(t.results.latencies.histogram if t.results.latencies else ()),
    "slowest": _Tables.slowest,
    "processes": _Tables.processes,
    "ranks": _Tables.ranks,
    "overlap": _Tables.overlap,
    "fetches": _Tables.fetches,
    "layers": lambda t: _rows(t.results.summary.layers),
    "osts": lambda t: _rows(t.results.osts.rows if t.results.osts else ()),
    "findings": _Tables.findings,
    "actions": _Tables.actions,
    "warnings": lambda t: _rows(t.results.coverage.warnings),
    "breakdown": _Tables.breakdown,
}
