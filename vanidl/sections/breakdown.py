"""The account of time: each rank's run, its mean step and its waits by cause, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from vanidl.breakdown import CAUSES, Breakdown, Cell
from vanidl.breakdown.account import EPOCH, MEAN, PHASE, RUN, STEP, STEP_PART, WAIT
from vanidl.breakdown.causes import (
    BLOCKED,
    BLOCKED_PARTS,
    DEVICE_IDLE,
    IDLE_PARTS,
    INPUT_CPU,
    INPUT_CPU_PARTS,
    NOTHING,
    PHASES,
    STORAGE,
    STORAGE_PARTS,
    WORKERS,
    WORKERS_PARTS,
)
from vanidl.breakdown.sources import states
from vanidl.formatting.terminal import Row, aligned_table
from vanidl.formatting.units import percent, seconds
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.sections.section import Json, Object, Section

Range = tuple[float, float]

MOST_RANKS = 1024
"""Ranks that JSON lists one by one: of more those with most time in storage."""

_SMALL = 0.002  # of a window: causes that cannot have had more are left out of the text


def _collect_breakdown(run: Run) -> Object:
    account = run.breakdown
    ranks = list(range(len(account.ranks)))
    # Of many ranks those with most storage, in order of ranks.
    if len(ranks) > MOST_RANKS:
        column = account.columns.get(f"{RUN}/{STORAGE}")
        order = np.argsort(-column.high, kind="stable") if column is not None else np.array(ranks)
        ranks = sorted(order[:MOST_RANKS].tolist())
    return {
        "mean": _list_breakdown(account, MEAN, None),
        "per_rank": [_list_breakdown(account, str(place), account.ranks[place]) for place in ranks],
        "layers": {
            name: dict(zip(("read_s", "write_s", "metadata_s"), values, strict=True))
            | {"outermost": name in account.outermost}
            for name, values in account.layers.items()
        },
    }


def _list_breakdown(account: Breakdown, who: str, rank: int | None) -> Object:
    cells = {name: account.cell(f"{who}/{name}") for name in account.columns}
    with_steps = bool(account.observed.any() if who == MEAN else account.steps[int(who)])
    run = _collect_causes(cells, RUN)
    # What the causes of the run rest on, and what had to be assumed of any cell.
    evidence: dict[str, list[str]] = {}
    assumed: dict[str, None] = {}
    for name, cell in cells.items():
        window, _, cause = name.partition("/")
        if window == RUN and cause in CAUSES and cell.evidence:
            evidence[cause] = list(cell.evidence)
        assumed.update(dict.fromkeys(cell.assumed))
    basis = "assumed" if assumed else "exact"
    if any(states.EVIDENCE in cell.evidence for cell in cells.values()):
        basis = "sampled"
    # The run and its phases, then the steps, then parts of single causes; ranges are [low, high].
    return {
        "rank": rank,
        "window_s": account.length_ns(RUN) / 1e9,
        "phases": {
            phase: list(cells[name].range_s)
            for phase in PHASES
            if (name := f"{PHASE}/{phase}") in cells
        },
        "run": run,
        "storage": {
            part: list(cells[name].range_s)
            for part in STORAGE_PARTS
            if (name := f"{RUN}/{STORAGE}.{part}") in cells
        },
        "steps": int(account.steps.max(initial=0) if who == MEAN else account.steps[int(who)]),
        "step_s": account.length_ns(STEP, who) / 1e9 if with_steps else None,
        "step": _collect_causes(cells, STEP) if with_steps else None,
        "step_parts": {
            name.partition("/")[2]: list(cell.range_s)
            for name, cell in cells.items()
            if name.startswith(f"{STEP_PART}/") and name.count("/") == 1
        }
        if with_steps
        else None,
        "input_wait_s": account.length_ns(WAIT, who) / 1e9 if with_steps else None,
        "input_wait": _collect_causes(cells, WAIT) if with_steps else None,
        "phase_causes": {
            phase: _collect_causes(cells, f"{PHASE}/{phase}")
            for phase in PHASES
            if any(name.startswith(f"{PHASE}/{phase}/") for name in cells)
        },
        "blocked": {
            name: {
                part: _collect_part(cells, f"{window}/{BLOCKED}", part) for part in BLOCKED_PARTS
            }
            for name, window in (("run", RUN), ("input_wait", WAIT))
        },
        "input_cpu": {
            part: _collect_part(cells, f"{RUN}/{INPUT_CPU}", part) for part in INPUT_CPU_PARTS
        },
        "workers": {part: _collect_part(cells, f"{RUN}/{WORKERS}", part) for part in WORKERS_PARTS},
        "device_idle": {
            part: _collect_part(cells, f"{RUN}/{DEVICE_IDLE}", part) for part in IDLE_PARTS
        },
        "epochs": _collect_epochs(cells) if with_steps else [],
        "evidence": evidence,
        "assumed": list(assumed),
        "width_basis": basis,
    }


def _collect_part(cells: Mapping[str, Cell], cause: str, part: str) -> list[float]:
    """A part of a cause: what nothing tells from its other parts may be all of it."""
    whole = cells.get(cause, NOTHING)
    cell = cells.get(f"{cause}.{part}", Cell(0, whole.high_ns))
    return [min(end_s, whole.range_s[1]) for end_s in cell.range_s]


def _collect_epochs(cells: Mapping[str, Cell]) -> list[Object]:
    """Every epoch by cause, and its input waits."""
    names = (name.split("/") for name in cells if name.startswith(f"{EPOCH}/"))
    return [
        {
            "index": index,
            "window_s": cells[f"{EPOCH}/{index}/"].range_s[0],
            "run": _collect_causes(cells, f"{EPOCH}/{index}"),
            "input_wait_s": cells[f"{EPOCH}/{index}/{WAIT}/"].range_s[0],
            "input_wait": _collect_causes(cells, f"{EPOCH}/{index}/{WAIT}"),
        }
        for index in sorted({int(words[1]) for words in names})
    ]


def _collect_causes(cells: Mapping[str, Cell], window: str) -> dict[str, list[float]]:
    return {
        cause: list(cell.range_s) for cause in CAUSES if (cell := cells.get(f"{window}/{cause}"))
    }


def range_words(cell: Cell) -> str:
    """A cell in words: one duration where both ends look alike, else both."""
    low, high = (seconds(value) for value in cell.range_s)
    if low == high:
        return low
    return f"{low} to {high}" if cell.low_ns else f"at most {high}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the account in words; `key` of its cell, "" of the length of a window."""

    key: str
    name: str
    time: str
    share: str


def account_lines(account: Breakdown) -> Iterator[Line]:
    """The mean over ranks: the run, the mean step and the waits, each cause with its range."""
    for window, title in {RUN: "run", STEP: "mean step", WAIT: "input waits of a rank"}.items():
        length_ns = account.length_ns(window)
        keys = {cause: f"{MEAN}/{window}/{cause}" for cause in account.causes_of(window)}
        # Causes that take next to nothing even at most are left out.
        shown = {
            cause: key
            for cause, key in keys.items()
            if account.cell(key).high_ns > _SMALL * length_ns
        }
        if shown and length_ns:
            yield Line("", title, seconds(length_ns / 1e9), "")
        for cause, key in shown.items() if length_ns else ():
            cell = account.cell(key)
            name = f"  {cause.replace('_', ' ')}"
            low, high = (percent(value / length_ns) for value in (cell.low_ns, cell.high_ns))
            share = low if low == high else f"{low} to {high}"
            yield Line(key, name, range_words(cell), share)


def _write_breakdown(run: Run) -> str | None:
    rows: list[Row] = [("Cause", "time", "share")]
    rows += [(line.name, line.time, line.share) for line in account_lines(run.breakdown)]
    return aligned_table("Where the time went, mean over ranks", rows)


_CAUSES_KIND = Mapping[str, Range]
_EPOCH_KIND = {
    "index": int,
    "window_s": float,
    "run": _CAUSES_KIND,
    "input_wait_s": float,
    "input_wait": _CAUSES_KIND,
}
_ROW_KIND = {
    "rank": int | None,
    "window_s": float,
    "phases": _CAUSES_KIND,
    "run": _CAUSES_KIND,
    "storage": _CAUSES_KIND,
    "steps": int,
    "step_s": float | None,
    "step": _CAUSES_KIND | None,
    "step_parts": _CAUSES_KIND | None,
    "input_wait_s": float | None,
    "input_wait": _CAUSES_KIND | None,
    "phase_causes": Mapping[str, _CAUSES_KIND],
    "blocked": {"run": _CAUSES_KIND, "input_wait": _CAUSES_KIND},
    "input_cpu": _CAUSES_KIND,
    "workers": _CAUSES_KIND,
    "device_idle": _CAUSES_KIND,
    "epochs": [_EPOCH_KIND],
    "evidence": Mapping[str, list[str]],
    "assumed": [str],
    "width_basis": str,
}
_LAYER_KIND = {"read_s": float, "write_s": float, "metadata_s": float, "outermost": bool}
BREAKDOWN = Section(
    "breakdown",
    text=_write_breakdown,
    json={
        "breakdown": Json(
            _collect_breakdown,
            {"mean": _ROW_KIND, "per_rank": [_ROW_KIND], "layers": {str: _LAYER_KIND}},
        )
    },
)
