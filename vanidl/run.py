"""`open_run`: a path in, everything known about the run out."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from vanidl.advice.changes import can_replay, limit_prediction, limit_predictions
from vanidl.advice.diagnoses import decide_verdict, diagnose
from vanidl.advice.registry import find
from vanidl.analyses.results import Results, analyse
from vanidl.breakdown import Breakdown, attribute_time, open_gains
from vanidl.breakdown.step_bar import StepParts, divide_step
from vanidl.errors import UsageError
from vanidl.files.arrow import require_arrow
from vanidl.formatting.from_logs import clean_path
from vanidl.merge.pipeline import Inputs, read_trace
from vanidl.model.selection import Selection, fitted, of_ranks, select
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass
from vanidl.wording.account import find_lead
from vanidl.wording.headline import (
    AFTER_STEPS,
    START_UP,
    Headline,
    find_beside_training,
    make_headline,
)

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from vanidl.advice.changes import Change, Predicted, WhatIf
    from vanidl.advice.finding import Diagnosis, Finding
    from vanidl.analyses.access import Access
    from vanidl.analyses.balance import Balance
    from vanidl.analyses.batches import Fetching
    from vanidl.analyses.benchmark import BenchmarkResult
    from vanidl.analyses.coverage import Coverage
    from vanidl.analyses.dataset import Dataset
    from vanidl.analyses.files import FileTotals
    from vanidl.analyses.lines import Lines
    from vanidl.analyses.memory import Memory
    from vanidl.analyses.placement import Placement
    from vanidl.analyses.profiled_steps import Steps
    from vanidl.analyses.sizes import Sizes
    from vanidl.analyses.summary import Summary
    from vanidl.analyses.timeline import Timeline
    from vanidl.anonymize.pseudonyms import Pseudonyms
    from vanidl.breakdown.overlap import Overlap
    from vanidl.breakdown.phases import Phase, Phases
    from vanidl.breakdown.pipelines import Gains
    from vanidl.breakdown.step_records import StepRecords
    from vanidl.frames import FrameName
    from vanidl.model.run_facts import Ceiling
    from vanidl.parallel.executors import ExecutorOptions
    from vanidl.readers.format import Progress


@dataclass(frozen=True)
class Run:
    """One run: its trace and every result, all frozen.

    `run.summary`, `run.overlap` and so on are the results of the same name;
    `run.frame(name)` gives pandas frames. Findings and predictions are computed when first
    asked for, once: every output takes them from here.
    """

    trace: Trace
    results: Results
    selection: Selection = field(default_factory=Selection)
    name: str = ""  # of the file or folder that it was read from
    whole: Run | None = field(default=None, repr=False, compare=False)
    """The run of which this is a part by `select`: its epochs keep their numbers."""
    path: str = field(default="", compare=False)
    """As it was given, for commands that are printed; empty where names are replaced."""

    @property
    def coverage(self) -> Coverage:
        """What the numbers rest on, and what they miss."""
        return self.results.coverage

    @property
    def summary(self) -> Summary:
        """How much I/O there was and how long it took."""
        return self.results.summary

    @property
    def sizes(self) -> Sizes:
        """Exact transfer sizes and histograms."""
        return self.results.sizes

    @property
    def timeline(self) -> Timeline | None:
        """Bytes and operations over time."""
        return self.results.timeline

    @property
    def access(self) -> Access | None:
        """Where operations start relative to the one before."""
        return self.results.access

    @property
    def files(self) -> FileTotals:
        """Traffic of each file, kind and mount point."""
        return self.results.files

    @property
    def balance(self) -> Balance | None:
        """Load over ranks."""
        return self.results.balance

    @property
    def steps(self) -> Steps | None:
        """Profiled steps."""
        return self.results.steps

    @property
    def perstep(self) -> StepRecords | None:
        """What happened during each profiled step, row by row as in `steps.table`."""
        return self.breakdown.step_records

    @property
    def overlap(self) -> Overlap | None:
        """Whether I/O is hidden behind compute or exposed."""
        return self.breakdown.overlap

    @cached_property
    def step_parts(self) -> StepParts | None:
        """What the mean step waits for and computes; None without profiled steps."""
        return divide_step(self.breakdown)

    @cached_property
    def _chosen(self) -> Trace:
        """The trace as the selection sees it."""
        return select(self.trace, self.selection)

    @cached_property
    def breakdown(self) -> Breakdown:
        """The account of time: where that of every rank went, by cause, with intervals."""
        return attribute_time(self._chosen, self.results)

    @cached_property
    def gains(self) -> Gains | None:
        """The run ready to be run again without a cause; None without steps and their waits.

        `gains.without("storage.read")` bounds by how much the run would be shorter.
        """
        return open_gains(self._chosen, self.results, self.breakdown)

    @property
    def dataset(self) -> Dataset | None:
        """How the job used its dataset."""
        return self.results.dataset

    @property
    def phases(self) -> Phases | None:
        """Start-up, training, epochs, checkpoints, tail."""
        return self.breakdown.phases

    @property
    def fetching(self) -> Fetching | None:
        """Which batch waited for what, where the fetches of loaders were recorded."""
        return self.results.fetching

    @property
    def lines(self) -> Lines | None:
        """Which lines of the program fetches and steps spend their time in."""
        return self.results.lines

    @property
    def memory(self) -> Memory | None:
        """What the processes took of memory, where a recorder looked at them."""
        return self.results.memory

    @property
    def benchmarks(self) -> tuple[BenchmarkResult, ...]:
        """Results of a benchmark of storage: what its accelerators waited for, and its rules."""
        return self.results.benchmarks

    @property
    def placement(self) -> Placement | None:
        """Where steps without times may lie between bursts of reads."""
        return self.results.placement

    @property
    def ceiling(self) -> Ceiling | None:
        """What the steps take with batches from memory, where `vanidl ceiling` measured it."""
        return self.trace.ceiling

    @property
    def headline(self) -> str:
        """The answer in words, the same as in the report."""
        return str(self.answer)

    @cached_property
    def answer(self) -> Headline:
        """The headline as a title and the sentences that support it."""
        return make_headline(self.trace, self.results, self.breakdown)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What to know and to change, most severe first; empty where nothing was found."""
        return find(self.trace, self.results, self.breakdown, self.gains)

    @cached_property
    def what_if(self) -> WhatIf | None:
        """Step times under the usual changes of the input.

        None where steps, input waits or single reads were not recorded. None goes below the
        ceiling, where that was measured.
        """
        if not can_replay(self.trace, self.results, self.breakdown):
            return None
        from vanidl.advice.what_if import what_if

        return limit_predictions(what_if(self.trace, self.results, self.breakdown), self.ceiling)

    @cached_property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """The findings folded into causes, what saves most first; empty where nothing was found."""
        return diagnose(self.trace, self.results, self.findings, self.what_if, self.breakdown)

    @cached_property
    def verdict(self) -> str:
        """That nothing is to be fixed, where the run shows it; else ""."""
        if self.trace.ending is not None and self.trace.ending.failed:
            return ""
        # Nothing is said of input where the time goes elsewhere: to saves, validation, new epochs.
        elsewhere = find_beside_training(self.breakdown).keys() - {START_UP, AFTER_STEPS}
        if elsewhere or find_lead(self.breakdown).sentence:
            return ""
        return decide_verdict(self.results, self.breakdown, self.diagnoses)

    def predict(self, change: Change) -> Predicted:
        """The step time under one change of the input.

        Raises:
            UsageError: steps, input waits or single reads were not recorded.
        """
        from vanidl.advice.what_if import predict

        return limit_prediction(
            predict(self.trace, self.results, self.breakdown, change), self.ceiling
        )

    def select(self, selection: Selection) -> Run:
        """The same run through another filter.

        Raises:
            UsageError: it asks for what the run does not have.
        """
        trace = self.trace if selection.ranks is None else of_ranks(self.trace, selection.ranks)
        if selection.epochs is not None:
            # From the begin of the first to the end of the last, in seconds of the job.
            numbers = selection.epochs
            phases = self.frame("phases")
            epochs = phases[phases["kind"] == "epoch"]
            rows = epochs[epochs["epoch"].isin(list(numbers))]
            places = [*rows.index]
            if (
                not places
                or len(rows) < len(numbers)
                or places != [*range(places[0], places[-1] + 1)]
            ):
                there = ", ".join(map(str, epochs["epoch"])) or "none, as no epoch is known"
                raise UsageError(
                    f"epochs: expected some of {there} that follow one another, found "
                    f"{sorted(numbers)}."
                )
            from_s, to_s = float(rows["start_s"].min()), float(rows["end_s"].max())
            selection = replace(selection, from_s=from_s, to_s=to_s)
        chosen = fitted(replace(selection, ranks=None, epochs=None), trace)
        whole = self.whole or self
        return Run(trace, analyse(trace, chosen), chosen, self.name, whole, self.path)

    @cached_property
    def epochs(self) -> tuple[Phase, ...]:
        """The epochs of the whole run, in seconds since the start of its job."""
        if self.whole is not None:
            return self.whole.epochs
        late_s = (self._chosen.job.start_ns - self.trace.job.start_ns) / 1e9
        return tuple(
            replace(each, start_s=each.start_s + late_s, end_s=each.end_s + late_s)
            for each in (self.phases.epochs if self.phases is not None else ())
        )

    @overload
    def frame(self, name: FrameName, to: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...
    @overload
    def frame(self, name: FrameName, to: Literal["arrow"]) -> pyarrow.Table: ...
    def frame(
        self, name: FrameName, to: Literal["pandas", "arrow"] = "pandas"
    ) -> pandas.DataFrame | pyarrow.Table:
        """One result as a table: a frame of pandas, or what polars, DuckDB and others take.

        Columns, units and keys of each are in `vanidl.frames.TABLES` and the documentation.

        Raises:
            UsageError: there is no frame of that name, or pyarrow is not installed.
        """
        from vanidl import frames

        if to == "arrow":
            require_arrow('frame(..., to="arrow") needs')
            return frames.arrow_table(name, frames.frame(self, name))
        return frames.frame(self, name)


def open_run(
    path: str | PathLike[str],
    *,
    selection: Selection | None = None,
    inputs: Inputs | None = None,
    progress: Progress | None = None,
    names: Pseudonyms | None = None,
    executor_options: ExecutorOptions | None = None,
) -> Run:
    """Reads a log file, or a folder of logs and profiler output, and analyses it.

    With `names` paths, hosts, users and commands are replaced before anything is computed;
    the same `names` give the same things the same pseudonyms in other runs. With
    `executor_options` that ask for Dask, its workers read the logs and reduce their operations;
    the results are the same.

    Raises:
        InputError: nothing usable was found; the message says what to do.
        SeveralJobsError: the folder holds unrelated jobs.
        UsageError: an option names what is not there.
    """
    with _executor(executor_options) as executor:
        trace = read_trace(path, inputs or Inputs(), progress, executor)
        asked = selection or Selection()
        later = asked.ranks is not None or asked.epochs is not None  # they are found by analyses
        chosen = fitted(Selection() if later else asked, trace)
        if names is not None:
            from vanidl.anonymize.trace import anonymous, anonymous_selection

            asked, chosen = (anonymous_selection(trace, each) for each in (asked, chosen))
            trace = anonymous(trace, names)
        name = "" if names is not None else clean_path(Path(path).resolve().name)
        given = "" if names is not None else clean_path(str(path))
        opened = Run(trace, analyse(trace, chosen, executor), chosen, name, path=given)
        return opened.select(asked) if later else opened


def _executor(options: ExecutorOptions | None) -> AbstractContextManager[Executor | None]:
    """Workers on Dask where they are asked for; else reading and reducing start their own."""
    if options is None or not options.on_dask:
        return nullcontext()
    from vanidl.parallel.executors import dask_executor

    return dask_executor(options)
