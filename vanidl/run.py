"""`open_run`: a path in, everything known about the run out."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from vanidl import frames
from vanidl.analyses import Results, analyse
from vanidl.analyses.access import Access
from vanidl.analyses.balance import Balance
from vanidl.analyses.coverage import Coverage
from vanidl.analyses.dataset import Dataset
from vanidl.analyses.files import FileTotals
from vanidl.analyses.overlap import Overlap
from vanidl.analyses.phases import Phases
from vanidl.analyses.sizes import Sizes
from vanidl.analyses.steps import Steps
from vanidl.analyses.summary import Summary
from vanidl.analyses.timeline import Timeline
from vanidl.reading import Inputs, Progress, read_trace
from vanidl.report.headline import headline
from vanidl.selection import Selection
from vanidl.trace import Trace

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Run:
    """One run: its trace and every result, all frozen.

    `run.summary`, `run.overlap` and so on are the results of the same name;
    `run.frame(name)` gives pandas frames.
    """

    trace: Trace
    results: Results
    selection: Selection

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
    def overlap(self) -> Overlap | None:
        """Whether I/O is hidden behind compute or exposed."""
        return self.results.overlap

    @property
    def dataset(self) -> Dataset | None:
        """How the job used its dataset."""
        return self.results.dataset

    @property
    def phases(self) -> Phases | None:
        """Start-up, training, epochs, checkpoints, tail."""
        return self.results.phases

    @property
    def headline(self) -> str:
        """The answer in words, the same as in the report."""
        return str(headline(self.trace, self.results))

    def select(self, selection: Selection) -> Run:
        """The same run through another filter."""
        return Run(self.trace, analyse(self.trace, selection), selection)

    def frame(self, name: str) -> pandas.DataFrame:
        """One result as a pandas frame; names: see `vanidl.frames.FRAMES`.

        Raises:
            UsageError: there is no frame of that name.
        """
        return frames.frame(name, self.trace, self.results, self.selection)


def open_run(
    path: str | PathLike[str],
    *,
    selection: Selection | None = None,
    inputs: Inputs | None = None,
    progress: Progress | None = None,
) -> Run:
    """Reads a log file, or a folder of logs and profiler output, and analyses it.

    Raises:
        InputError: nothing usable was found; the message says what to do.
        SeveralJobsError: the folder holds unrelated jobs.
        UsageError: an option names what is not there.
    """
    trace = read_trace(path, inputs or Inputs(), progress)
    chosen = selection or Selection()
    return Run(trace, analyse(trace, chosen), chosen)
