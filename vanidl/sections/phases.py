"""Phases, epochs and checkpoints, as bands over time and as rows."""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.breakdown.phases import Phase, Phases
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import aligned_table
from vanidl.formatting.units import instant, nbytes, plural, seconds
from vanidl.run import Run
from vanidl.schema.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.tracing import describe_traced

MOST_PHASES = 1000
BANDS = 200
_BYTES = "Bytes count in the phase in which their read or write starts."
_PHASES_COLUMNS = (
    Column("phase"),
    Column("from", "instant"),
    Column("to", "instant"),
    Column("length", "s"),
    Column("profiled steps", "count"),
    Column("dataset read", "bytes"),
    Column("written", "bytes"),
    Column("time in I/O", "s"),
    Column("input wait", "s"),
    Column("evidence"),
)
_COLOURS = {
    "start-up": palette.FAINT,
    "warm-up": palette.STEP,
    "training": palette.STEP,
    "tail": palette.FAINT,
}
_SHAPES = {"start-up": "", "warm-up": "/", "training": "", "tail": "\\"}


def draw_phases(run: Run) -> Figure:
    """Bands for stages, epochs and checkpoints, and a table of all."""
    phases = run.phases
    if phases is None:
        reason = "No single read of a dataset file and no training step was recorded."
        return Figure("phases", "Over time", "Phases and epochs", "", empty_reason=reason)
    every = (*phases.stages, *phases.epochs, *phases.checkpoints)
    rows = tuple(_list_phases(phase) for phase in every[:MOST_PHASES])
    table = Table(_PHASES_COLUMNS, rows, n_of_m(len(rows), len(every), "phases"))
    # What the bands are, of those that the run has.
    *earlier, last = (phase.name for phase in phases.stages)
    stages = f"{', '.join(earlier)} and {last} follow on one another and add up to the run time"
    groups = (("epochs", phases.epochs), ("checkpoints", phases.checkpoints))
    within = [name for name, group in groups if group]
    lie = f"; {' and '.join(within)} lie within" if within else ""
    words = [f"{stages[0].upper()}{stages[1:]}{lie}."]
    if any(phase.bytes_read is not None for phase in phases.stages):
        words.append(_BYTES)
    if phases.no_epochs:
        words.append(f"No epochs are shown: {phases.no_epochs}.")
    else:
        words.append(f"Evidence of epochs: {phases.epochs[0].evidence}.")
        if cut := n_of_m(min(len(phases.epochs), BANDS), len(phases.epochs), "epochs"):
            words.append(f"Shown: {cut}.")
    # Phases behind the last traced operation are known by name alone.
    if cut := describe_traced(run.coverage, run.summary.layer):
        words.append(
            f"{cut}: bytes and times of phases that reach beyond the last traced operation are "
            "not recorded."
        )
    alt_text = "; ".join(
        f"{p.name} from {seconds(p.start_s)} to {seconds(p.end_s)}" for p in phases.stages
    )
    alt_text += f". {plural(len(phases.epochs), 'epoch')}, "
    alt_text += f"{plural(len(phases.checkpoints), 'checkpoint')}."
    return Figure(
        "phases",
        "Over time",
        "Phases and epochs",
        " ".join(words) + table.not_recorded(),
        _plot_phases(phases),
        table.without_empty_columns(),
        alt_text=alt_text,
    )


def epoch_lines(phases: Phases | None) -> list[Spec]:
    """Dashed lines where epochs begin, for pictures over time."""
    if phases is None:
        return []
    return [
        {
            "type": "line",
            "x0": phase.start_s,
            "x1": phase.start_s,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"width": 1, "dash": "dash", "color": palette.INK},
        }
        for phase in phases.epochs[:BANDS]
    ]


def _plot_phases(phases: Phases) -> Spec:
    lanes = ["stages"]
    # Stages have a colour each.
    data = [
        _plot_bars(phase.name, [phase], 0, palette.fill(_COLOURS[phase.name], _SHAPES[phase.name]))
        for phase in phases.stages
    ]
    # Epochs alternate in lightness, so that neighbours are told apart without a line.
    if epochs := phases.epochs[:BANDS]:
        colours = [(palette.BUSY, palette.UNOBSERVED)[i % 2] for i in range(len(epochs))]
        marker: Spec = {"color": colours, "line": {"width": 0}}
        data.append(_plot_bars("epochs", epochs, len(lanes), marker) | {"showlegend": False})
        lanes.append("epochs")
    if checkpoints := phases.checkpoints[:BANDS]:
        marker = {"color": palette.WRITE, "line": {"width": 1.5, "color": palette.WRITE}}
        data.append(
            _plot_bars("checkpoints", checkpoints, len(lanes), marker) | {"showlegend": False}
        )
        lanes.append("checkpoints")
    # 30 px a lane; 112 px lie around them.
    layout = palette.time_layout(112 + 30 * len(lanes), barmode="overlay", bargap=0.15)
    layout["margin"] = {**layout["margin"], "l": 88}
    end = max(phase.end_s for phase in phases.stages)
    layout["xaxis"] = palette.time_axis(range=[0, end])
    layout["yaxis"] = palette.axis(
        tickvals=list(range(len(lanes))),
        ticktext=lanes,
        range=[len(lanes) - 0.5, -0.5],
        showgrid=False,
        fixedrange=True,
    )
    return {"data": data, "layout": layout}


def _plot_bars(name: str, rows: Sequence[Phase], lane: int, marker: Spec) -> Spec:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [phase.start_s for phase in rows],
        "x": [phase.end_s - phase.start_s for phase in rows],
        "y": [lane] * len(rows),
        "marker": marker,
        # An epoch's bar has room for its number alone.
        "text": [
            phase.name.removeprefix("epoch ") if phase.name.startswith("epoch ") else ""
            for phase in rows
        ],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "constraintext": "none",
        "customdata": [_write_hover(phase) for phase in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _write_hover(phase: Phase) -> str:
    words = f"{phase.name}: {seconds(phase.end_s - phase.start_s)}"
    read = f", {nbytes(phase.bytes_read)} of data read" if phase.bytes_read else ""
    return plotted(words + read, limit=80)


def _list_phases(phase: Phase) -> tuple[str | int | float | None, ...]:
    return (
        phase.name,
        phase.start_s,
        phase.end_s,
        phase.end_s - phase.start_s,
        phase.steps,
        phase.bytes_read,
        phase.bytes_written,
        phase.busy_s,
        phase.input_wait_s,
        elided(phase.evidence, limit=300),
    )


_MOST_IN_TEXT = 20


def _write_phases(run: Run) -> str | None:
    phases = run.phases
    if phases is None:
        return None
    header = ("phase", "from", "to", "data read", "in I/O", "input wait")
    every = (*phases.stages, *phases.epochs, *phases.checkpoints)
    rows = [
        (
            phase.name,
            instant(phase.start_s),
            instant(phase.end_s),
            nbytes(phase.bytes_read),
            seconds(phase.busy_s),
            seconds(phase.input_wait_s),
        )
        for phase in every[:_MOST_IN_TEXT]
    ]
    return aligned_table("Phases", [header, *rows])


def _collect_epochs(run: Run) -> list[Object]:
    """One object an epoch, empty where no evidence marks any."""
    epochs = run.phases.epochs if run.phases else ()
    return [{"index": i} | values_of(p, without=("name",)) for i, p in enumerate(epochs, 1)]


def _collect_phases(run: Run) -> list[Object]:
    """Stages, which add up to the run time, and checkpoints, by their start."""
    if run.phases is None:
        return []
    rows = [("stage", p) for p in run.phases.stages]
    rows += [("checkpoint", p) for p in run.phases.checkpoints]
    rows.sort(key=lambda row: (row[1].start_s, row[1].end_s))
    return [{"name": phase.name, "kind": kind} | values_of(phase) for kind, phase in rows]


_EPOCH = {"index": int} | fields_of(Phase, without=("name",))
_PHASE = {"name": str, "kind": str} | fields_of(Phase)
PHASES = Section(
    "phases",
    (draw_phases,),
    _write_phases,
    {"epochs": Json(_collect_epochs, [_EPOCH]), "phases": Json(_collect_phases, [_PHASE])},
)
