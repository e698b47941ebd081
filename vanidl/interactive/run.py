"""`Run` as `import vanidl` offers it: everything that is known, and ways to look at it."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanidl import run as plain
from vanidl.analyses.results import analyse
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.errors import UsageError, VanidlError
from vanidl.figures import palette
from vanidl.figures.downsample import fill_level
from vanidl.figures.figure import Spec
from vanidl.formatting.units import byte_scale, plural
from vanidl.merge.pipeline import Inputs, build_trace_of_logs
from vanidl.model.selection import Selection
from vanidl.parallel.executors import ExecutorOptions
from vanidl.readers.darshan.pydarshan import read_report
from vanidl.readers.format import Progress
from vanidl.report.html import render_html
from vanidl.report.overview import make_overview
from vanidl.report.summary import summary_json, summary_object
from vanidl.sections.actions import Action
from vanidl.sections.registry import figures
from vanidl.sections.step_bar import Bar
from vanidl.survey.rows import COLUMNS, MORE, Job, build_row, build_unread_row
from vanidl.wording.cells import cells_of

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

    from vanidl.analyses.timeline import JobTimeline


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
        return draw_figure(self, name)

    @property
    def figure_names(self) -> tuple[str, ...]:
        """The names that `figure` takes for this run."""
        return list_figures(self)

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
        return _show(super().select(selection))


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
    # Types of pandas that know of missing values: a column keeps its type in every table.
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
    return _show(opened)


def from_darshan(report: Any) -> Run:  # noqa: ANN401 - PyDarshan has no types
    """Analyses a `darshan.DarshanReport` that is in hand: the records that were read into it.

    Modules of its log that were not are named as not read, in the warnings and the headline.

    Raises:
        InputError: it holds no log, or records in other forms than arrays.
    """
    log = read_report(report)
    trace = build_trace_of_logs([log])
    return Run(trace, analyse(trace), Selection(), Path(log.path).name)


def _show(run: plain.Run) -> Run:
    return Run(**{field.name: getattr(run, field.name) for field in fields(run)})


# What a notebook shows of a run: name, sentence, the mean step as a bar, what to do.

MOST_ACTIONS = 3
_COLOURS = {
    "io": palette.IN_WAIT,
    "decode": palette.WRITE,
    "comm": palette.COMMUNICATION,
    "compute": palette.HIDDEN,
    "rest": palette.UNOBSERVED,
}
"""Part of the bar -> its colour; sites strip style sheets from notebooks, not colours."""


def card(run: plain.Run) -> str:
    """HTML without script, style sheet or address: it shows in trusted and other notebooks."""
    screen = make_overview(run)
    name = " · ".join([screen.name, *screen.facts])
    return "".join([
        '<div style="max-width:56em">',
        f"<div><small>{escape(name)}</small></div>",
        f"<p><b>{escape(run.answer.ending)}</b></p>" if run.answer.ending else "",
        f"<p><b>{escape(screen.verdict)}</b></p>" if screen.verdict else "",
        f'<p style="font-size:1.25em">{_mark_cells(run.answer.title)}</p>',
        *(_write_bar(screen.bar) if screen.bar else ()),
        *_write_actions(screen.actions[:MOST_ACTIONS]),
        "</div>",
    ])  # fmt: skip


def _write_bar(bar: Bar) -> Iterator[str]:
    """The mean step as a stack, with the same in words for who does not see it."""
    yield f"<div>{escape(bar.title)}</div>"
    yield f'<div role="img" aria-label="{escape(bar.label)}" style="display:flex;height:1.6em">'
    for part in bar.parts:
        yield (
            f'<div title="{escape(part.name)}" style="width:{part.share:.3f}%;'
            f'background:{_COLOURS[part.style]}"></div>'
        )
    yield "</div><div><small>"
    yield "; ".join(escape(f"{part.name} {part.amount} ({part.percent})") for part in bar.parts)
    yield "</small></div>"
    # The bar and its changes as a table, closed until it is asked for.
    yield f"<details><summary>as table</summary><table><caption>{escape(bar.title)}</caption>"
    yield '<tr><th scope="col">part</th><th scope="col">time</th><th scope="col">share</th></tr>'
    rows = [(part.key, part.name, part.amount, part.percent) for part in bar.parts]
    rows += [("", f"if: {ghost.name}", ghost.amount, ghost.basis) for ghost in bar.ghosts]
    for key, name, *cells in rows:
        yield f'<tr><th scope="row">{escape(name)}</th>'
        yield "".join(f"<td{_name_cell(key)}>{escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</table></details>"


def _write_actions(actions: Sequence[Action]) -> Iterator[str]:
    if not actions:
        return
    yield "<ol>"
    for action in actions:
        effect = f" ({_mark_cells(action.effect)})" if action.effect else ""
        reason = _mark_cells(action.reason)
        yield f"<li><b>{escape(action.title)}</b>{effect}<br/>{reason}</li>"
    yield "</ol>"


def _name_cell(key: str) -> str:
    """The attribute of a number that is of a cell."""
    return f' data-cell="{escape(key)}"' if key else ""


def _mark_cells(sentence: str) -> str:
    """A sentence in which numbers of cells carry their keys."""
    pieces, done = list[str](), 0
    for cell in cells_of(sentence):
        pieces.append(escape(sentence[done : cell.at]))
        pieces.append(f"<span{_name_cell(cell.key)}>{escape(cell.text)}</span>")
        done = cell.at + len(cell.text)
    return "".join([*pieces, escape(sentence[done:])])


# Sections' pictures as plotly figures.

TIMELINE = "timeline"
_FINEST = 0


def list_figures(run: plain.Run) -> tuple[str, ...]:
    """What can be drawn of this run, in the order of its page."""
    drawn = {f.id: f.spec for f in figures(run) if f.applies}
    timeline = (TIMELINE,) if run.timeline is not None else ()
    return (*timeline, *(name for name, spec in drawn.items() if spec and name != TIMELINE))


def draw_figure(run: plain.Run, name: str) -> plotly.graph_objects.Figure:
    """One picture, zoomed out, at its finest.

    Raises:
        UsageError: there is no such picture for this run, or plotly is not installed.
    """
    try:
        from plotly import graph_objects
    except ImportError as error:
        raise UsageError(
            f"expected the package plotly, found: {error}; pip install 'vanidl-io[notebook]'"
        ) from error
    if name not in list_figures(run):
        known = ", ".join(list_figures(run)) or "none: nothing was recorded that can be drawn"
        raise UsageError(f"expected the name of a picture of this run ({known}), found {name!r}.")
    if name == TIMELINE and run.timeline is not None:
        spec = _plot_timeline(run, run.timeline.job)
    else:
        spec = next(fill_level(f, _FINEST) for f in figures(run) if f.id == name)
    made = graph_objects.Figure(spec)
    made.update_layout(template="none")
    return made


def _plot_timeline(run: plain.Run, job: JobTimeline) -> Spec:
    """Bytes per second of the whole job, and the steps of each rank below."""
    width_s = job.edges_s[1] - job.edges_s[0]
    speeds = [
        ("read", palette.READ, job.bytes_read),
        ("written", palette.WRITE, job.bytes_written),
    ]

    # One unit for reads and writes.
    largest = max((int(amounts.max(initial=0)) for _, _, amounts in speeds), default=0)
    divisor, unit = byte_scale(int(largest / width_s))
    lines = [
        {
            "type": "scatter", "mode": "lines", "name": label, "line": {"color": colour},
            "line_shape": "hv", "x": job.edges_s[:-1], "y": amounts / (width_s * divisor),
        }
        for label, colour, amounts in speeds
    ]  # fmt: skip
    layout = palette.layout(
        420,
        xaxis=palette.axis("s since the start of the job", anchor="y2"),
        yaxis=palette.axis(f"{unit}/s", rangemode="tozero", domain=[0.32, 1.0]),
        yaxis2=palette.axis(domain=[0.0, 0.24], autorange="reversed"),
        barmode="overlay",
    )
    return {"data": [*lines, *_plot_steps(run)], "layout": layout}


def _plot_steps(run: plain.Run) -> list[dict[str, Any]]:
    """The steps of each rank from begin to end, the more orange the more of them was input wait."""
    rows = run.frame("steps")
    if rows.empty:
        return []
    waited = 100 * rows["input_wait_s"] / rows["duration_s"]
    marker = {
        "color": waited, "colorscale": palette.scale(palette.WAIT_RAMP), "cmin": 0, "cmax": 100,
        "line": {"width": 0.5, "color": palette.PAPER},
    }  # fmt: skip
    step = {
        "type": "bar", "orientation": "h", "yaxis": "y2", "name": "steps", "showlegend": False,
        "base": rows["start_s"], "x": rows["duration_s"], "y": rows["rank"], "marker": marker,
        "customdata": list(zip(rows["step"], waited, strict=True)),
        "hovertemplate": "step %{customdata[0]}: %{x:.3g} s, %{customdata[1]:.3g} % input wait"
        "<extra>%{y}</extra>",
    }  # fmt: skip
    return [step]


# A progress bar where a person looks on: in a notebook.

_DELAY_S = 1.0  # what is quicker needs no bar


@contextmanager
def bar_in_notebooks(given: Progress | None) -> Iterator[Progress | None]:
    """`given`, or in a notebook with tqdm a bar of what is being read; None elsewhere."""
    if given is not None or "ipykernel" not in sys.modules:
        yield given
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    with tqdm(delay=_DELAY_S, leave=False) as bar:

        def progress(what: str, done: int, count: int) -> None:
            bar.set_description(what)
            bar.total, bar.n = count, done
            bar.refresh()

        yield progress
