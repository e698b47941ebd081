"""`Run` as `import vanidl` offers it: everything that is known, and ways to look at it."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanidl import run as plain
from vanidl.analyses import analyse
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.errors import VanidlError
from vanidl.formatting.units import plural
from vanidl.interactive import plots
from vanidl.interactive.card import card
from vanidl.interactive.progress import bar_in_notebooks
from vanidl.merge.pipeline import Inputs, build_trace_of_logs
from vanidl.model.selection import Selection
from vanidl.parallel.executors import ExecutorOptions
from vanidl.readers.darshan.pydarshan import read_report
from vanidl.readers.format import Progress
from vanidl.report.html import render_html
from vanidl.report.summary import summary_json, summary_object
from vanidl.survey.rows import COLUMNS, MORE, Job, build_row, build_unread_row

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects


class Run(plain.Run):
    """One run: its trace and every result, all frozen; see `vanidl.run.Run` for what it holds."""

    def __repr__(self) -> str:
        """One line: the run, its size, its headline."""
        ranks = plural(len(self.trace.ranks), "rank")
        said = f"{self.answer.ending} {self.answer.title}".strip()
        return f"<vanidl.Run {self.name or self.trace.job.id or ''}: {ranks}; {said}>"

    def _repr_html_(self) -> str:
        """What a notebook shows of it: the sentence, the mean step as a bar, what to do."""
        return card(self)

    def figure(self, name: str) -> plotly.graph_objects.Figure:
        """A section's picture as a plotly figure; `figure_names` lists them.

        Raises:
            UsageError: there is no such picture for this run, or plotly is not installed.
        """
        return plots.figure(self, name)

    @property
    def figure_names(self) -> tuple[str, ...]:
        """The names that `figure` takes for this run."""
        return plots.names(self)

    def view(self, height: int = 800) -> Any:  # noqa: ANN401 - IPython's record
        """The whole report in a cell of a notebook, `height` pixels high."""
        from IPython.display import IFrame

        page = base64.b64encode(render_html(self).encode("utf-8", errors="backslashreplace"))
        return IFrame(f"data:text/html;base64,{page.decode()}", width="100%", height=height)

    def to_dict(self) -> dict[str, Any]:
        """All results as vanidl summary --json writes them, an entry each.

        `vanidl.output_schema("summary")` is the JSON Schema of it.
        """
        return summary_object(self)

    def to_json(self) -> str:
        """The same as text."""
        return summary_json(self)

    def select(self, selection: Selection) -> Run:
        """The same run through another filter."""
        return _shown(super().select(selection))


def table(runs: Iterable[plain.Run | str | PathLike[str]]) -> pandas.DataFrame:
    """A row a run, with the columns of `vanidl survey`; of paths that cannot be read `problem`.

    Each is a run in hand, or a path as `open_run` takes it.
    """
    import pandas

    rows = []
    for given in runs:
        run = given
        if not isinstance(run, plain.Run):
            try:
                run = plain.open_run(run)
            except VanidlError as error:
                rows.append(build_unread_row(Job(None, (str(given),), ".", ""), str(error)))
                continue
        rows.append(build_row(run))
    types = {"string": "string", "int64": "Int64", "double": "float64", "bool": "boolean"}
    kinds = [(name, kind) for name, kind, _ in COLUMNS] + list(MORE)
    columns = {
        name: pandas.Series([row[name] for row in rows], dtype=types.get(kind, "object"))
        for name, kind in kinds
    }
    made = pandas.DataFrame(columns)
    start = pandas.to_datetime(made["start"], utc=True, format="ISO8601")
    made["start"] = start.astype("datetime64[ns, UTC]")  # as in every frame, to join them
    return made


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

    The arguments and errors are those of `vanidl.run.open_run`. In a notebook a progress bar
    appears where reading takes longer than a second and no `progress` is given.
    """
    with bar_in_notebooks(progress) as shown:
        opened = plain.open_run(
            path,
            selection=selection,
            inputs=inputs,
            progress=shown,
            names=names,
            executor_options=executor_options,
        )
    return _shown(opened)


def from_darshan(report: Any) -> Run:  # noqa: ANN401 - PyDarshan has no types
    """Analyses a `darshan.DarshanReport` that is in hand: the records that were read into it.

    Modules of its log that were not are named as not read, in the warnings and the headline.

    Raises:
        InputError: it holds no log, or records in other forms than arrays.
    """
    log = read_report(report)
    trace = build_trace_of_logs([log])
    return Run(trace, analyse(trace), Selection(), Path(log.path).name)


def _shown(run: plain.Run) -> Run:
    return Run(**{field.name: getattr(run, field.name) for field in fields(run)})
