"""Quantities that several rules share, each computed once from trace and results."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vanidl.advice.frameworks import PYTORCH, frameworks
from vanidl.advice.levers import EVERY_WORKER
from vanidl.analyses import Results
from vanidl.analyses.files import GroupRow
from vanidl.analyses.summary import objects_apart
from vanidl.breakdown import Breakdown, attribute_time
from vanidl.breakdown.account import open_gains
from vanidl.breakdown.causes import STORAGE
from vanidl.breakdown.overlap import by_device
from vanidl.breakdown.pipelines import Gains
from vanidl.model.counter_tables import CounterTable
from vanidl.model.trace import OBJECT, POSIX, Trace
from vanidl.model.warnings import LOWER_BOUNDS, UNREAD, serious_codes

MATTERS = 0.02
"""Share of the observed time from which I/O matters. Below it no rule about the shape of the reads
applies: the effect of a change would be lost in the noise between two runs."""


@dataclass(frozen=True)
class Facts:
    """One run as the rules look at it. Times in seconds; None: not recorded."""

    trace: Trace
    results: Results
    given: Breakdown | None = None
    given_gains: Gains | None = None

    @cached_property
    def account(self) -> Breakdown:
        """The account of time of the run."""
        return self.given or attribute_time(self.trace, self.results)

    @cached_property
    def serious(self) -> frozenset[str]:
        """Codes of the warnings that are more than worth knowing."""
        return serious_codes(self.results.coverage.warnings)

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        """Whose data loader the run used, likeliest first."""
        data = self.results.dataset
        return frameworks(self.trace, [file.path for file in data.files[:1]] if data else ())

    @property
    def before_workers(self) -> str:
        """What is to be said wherever more workers are advised; "" where there is nothing."""
        return f" {EVERY_WORKER}" if self.trace.streams and PYTORCH in self.frameworks else ""

    @property
    def has_workers(self) -> bool:
        """Whether a process of the run loads batches for another."""
        return any(process.role == "worker" for process in self.trace.processes)

    @property
    def starts_workers_anew(self) -> bool:
        """Whether epochs have workers of their own; of one epoch that is taken for granted."""
        phases, since = self.account.phases, self.trace.job.start_ns
        middles = [(e.start_s + e.end_s) / 2 for e in phases.epochs] if phases else []
        if len(middles) < 2:
            return self.has_workers
        before, last = (since + round(middle * 1e9) for middle in middles[-2:])
        lives = [(p.start_ns, p.end_ns) for p in self.trace.processes if p.role == "worker"]
        known = [(start, end) for start, end in lives if start is not None and end is not None]
        began = [start for start, end in known if start < last < end]
        return self.has_workers if not began else max(began) > before

    @property
    def by_darshan(self) -> bool:
        """Whether the tracer is Darshan: it has limits, and what `vanidl record` does to them."""
        return self.trace.job.tracer == "darshan"

    @property
    def by_calls(self) -> bool:
        """Whether the tracer is vanidl's own, which sees every call of libc."""
        return self.trace.job.tracer == "vanidl"

    @property
    def lossy(self) -> bool:
        """Whether recorded I/O is only a lower bound."""
        return bool(LOWER_BOUNDS & self.serious) or self.objects_apart

    @property
    def objects_apart(self) -> bool:
        """Whether object storage moved a real part of the bytes and another layer is looked at."""
        return objects_apart(self.results.summary)

    @property
    def reads_all_layers(self) -> bool:
        """Whether every module of the logs that records I/O was read: shares of all I/O hold."""
        return not UNREAD & self.serious

    @property
    def window_s(self) -> float | None:
        """Mean profiled window of the observed ranks."""
        overlap = self.account.overlap
        return overlap.mean.window_s if overlap and overlap.mean.window_s > 0 else None

    @property
    def base_s(self) -> float:
        """The time that shares are of: the profiled window, else the run time."""
        return self.window_s or self.trace.job.run_time_s

    @cached_property
    def lost_s(self) -> float | None:
        """What training lost to input waits; on a device only what it stood idle."""
        overlap = self.account.overlap
        if overlap is None or overlap.lost_to_input_s is None:
            return None
        idle = [r.starving_wait_s for r in overlap.per_rank]
        if not by_device(overlap.basis) or None in idle:
            return overlap.lost_to_input_s
        return min(overlap.lost_to_input_s, sum(i or 0.0 for i in idle))

    @cached_property
    def gains(self) -> Gains | None:
        """The recorded run, ready to be run again; None without steps and their waits."""
        return self.given_gains or open_gains(self.trace, self.results)

    def without_s(self, cause: str) -> float | None:
        """The most that the run gains without a cause; None without steps and their waits."""
        if self.gains is None or self.lost_s is None:
            return None
        return min(self.gains.without(cause).high_ns / 1e9, self.lost_s)

    @cached_property
    def io_bound_s(self) -> float | None:
        """The most that any change of reading can gain.

        Where input waits are known what the run gains without storage; else the time in which a
        rank, on average, read the dataset.
        """
        gain_s = self.without_s(STORAGE)
        return self.dataset_s if gain_s is None else gain_s

    @property
    def matters(self) -> bool:
        """Whether reading the dataset costs enough to look at how it is read."""
        if self.results.dataset is None or self.io_bound_s is None:
            return False
        if self.gains is None or self.lost_s is None:
            run_s = self.trace.job.run_time_s
            return run_s > 0 and self.io_bound_s >= MATTERS * run_s
        # Of what evidence leaves open half is taken: a bound alone is no reason to look.
        gain = self.gains.without(STORAGE)
        likely_s = min((gain.low_ns + gain.high_ns) / 2e9, self.lost_s)
        return self.base_s > 0 and likely_s >= MATTERS * self.base_s

    @cached_property
    def dataset_s(self) -> float | None:
        """Time a rank on average read dataset files: busy time, else by counters."""
        return self.kind_s(self.data_kind)

    def kind_s(self, kind: str) -> float | None:
        """Time a rank on average read and wrote files of a kind: busy time, else by counters."""
        row = self.group(kind)
        if row is not None and row.busy_s is not None:
            return row.busy_s
        table = self.counters
        names = ("POSIX_F_READ_TIME", "POSIX_F_WRITE_TIME")
        if table is None or names[0] not in table.seconds or not self.trace.ranks:
            return None
        mine = self.of_kind(table, kind)
        spent = (table.seconds[n][mine].clip(0).sum() for n in names if n in table.seconds)
        return float(sum(spent)) / len(self.trace.ranks)

    @property
    def data_kind(self) -> str:
        """The kind of file that is taken for the dataset."""
        return self.trace.files.data_kind

    def group(self, kind: str) -> GroupRow | None:
        """Totals of one kind of file."""
        return next((g for g in self.results.files.by_kind if g.name == kind), None)

    @property
    def counters(self) -> CounterTable | None:
        """Darshan's POSIX counters; None where another layer than files is looked at."""
        return None if self.on_objects else self.trace.counters.get(POSIX)

    @property
    def layer(self) -> str:
        """The layer that is looked at."""
        return self.results.summary.layer

    @property
    def on_objects(self) -> bool:
        """Whether that is object storage."""
        return self.layer == OBJECT

    def of_kind(self, table: CounterTable, *kinds: str) -> NDArray[np.bool_]:
        """Mask of the records whose file is of one of the kinds."""
        return self.of_files(table, lambda code: self.trace.files.kind[code] in kinds)

    def of_files(self, table: CounterTable, wanted: Callable[[int], bool]) -> NDArray[np.bool_]:
        """Mask of the records whose file code is wanted."""
        mask = np.array([wanted(code) for code in range(len(self.trace.files))], bool)
        return mask[table.file] if len(mask) else np.zeros(len(table.file), bool)

    @cached_property
    def reads(self) -> int:
        """Reads of dataset files that moved bytes: an empty one, at the end of a file, is none."""
        data = self.results.dataset
        if data is None:
            return 0
        empty = self._empty_by_counters if data.empty_reads is None else data.empty_reads
        return max(sum(f.reads for f in data.files) - empty, 0)

    @property
    def _empty_by_counters(self) -> int:
        """Reads of 0 to 100 bytes, at most one for each open of a file.

        Counters do not tell empty reads from short ones; neither is a sample.
        """
        table = self.counters
        if table is None or not {"POSIX_SIZE_READ_0_100", "POSIX_OPENS"} <= set(table.counters):
            return 0
        least = np.minimum(table.counters["POSIX_SIZE_READ_0_100"], table.counters["POSIX_OPENS"])
        return int(least[self.of_kind(table, self.data_kind)].clip(0).sum())

    def file_s(self, paths: Collection[str]) -> float:
        """Time in reads, writes and, by the counters, metadata calls of some files, all ranks."""
        spent = sum(r.io_s or 0.0 for r in self.results.files.rows if r.path in paths)
        table = self.counters
        if table is None or "POSIX_F_META_TIME" not in table.seconds:
            return spent
        if "meta_time_not_credible" in self.serious:
            return spent
        mine = self.of_files(table, lambda code: self.trace.files.path[code] in paths)
        return spent + float(table.seconds["POSIX_F_META_TIME"][mine].clip(0).sum())

    def worth_s(self, spent_s: float, share: float) -> float | None:
        """What a rank can gain of time that all ranks spent in reading; None: not worth a word.

        It is `share` of the run time of each rank or more; where input waits are known, I/O must
        matter, and no more can be gained than was waited for.
        """
        own_s = spent_s / max(len(self.trace.ranks), 1)
        if own_s <= 0 or own_s < share * self.trace.job.run_time_s:
            return None
        if self.lost_s is None:
            return own_s
        return min(own_s, self.io_bound_s or 0.0) if self.matters else None

    @cached_property
    def opens(self) -> int:
        """Opens of dataset files by the counters."""
        data = self.results.dataset
        return sum(f.opens or 0 for f in data.files) if data else 0

    @property
    def mean_read_nbytes(self) -> float:
        """Mean size of a dataset read, 0 without any."""
        data = self.results.dataset
        return data.bytes_read / self.reads if data and self.reads else 0.0

    @property
    def jumps(self) -> float | None:
        """Share of the dataset reads that begin elsewhere than the one before ended.

        A file that is opened again is read from its start: going back there is no jump.
        """
        within = self.results.dataset.within if self.results.dataset else None
        if within is None or not within.ops or within.forward is None or within.backward is None:
            return None
        again = min(max(self.opens - within.first, 0), within.backward) if within.first else 0
        return (within.forward + within.backward - again) / within.ops
