"""What whole runs spent in storage, in words: the answer where no step was recorded."""

from __future__ import annotations

from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import MEAN, RUN
from vanidl.breakdown.assumptions import BLOCKING
from vanidl.breakdown.causes import STORAGE, Cell
from vanidl.formatting.units import percent, seconds
from vanidl.model.counter_totals import prefix_of
from vanidl.model.trace import MPIIO, Trace

LITTLE = 0.01
"""Share of a run below which no change of its I/O is worth the work."""

_ALIKE = 0.02  # of the upper end: ends that are closer are said as one
_MOST = 0.5  # of the storage: a layer and kind of call with more is named
_KINDS = ("reads", "writes", "metadata calls")


def storage_sentence(trace: Trace, account: Breakdown) -> str:
    """How much of a run was storage, and in which calls, without a full stop; "" where unknown."""
    name = f"{RUN}/{STORAGE}"
    column = account.columns.get(name)
    if column is None or not column.evidence or not account.window_ns:
        return ""
    cell = account.cell(f"{MEAN}/{name}")
    run = f"{seconds(account.window_ns / 1e9)} run"
    share = cell.high_ns / account.window_ns
    if not cell.low_ns and share >= 1:
        return ""
    if not cell.high_ns:
        return f"No time was counted in I/O during the {run}: look elsewhere"
    if share <= LITTLE:
        part = percent(share)
        most = f"less than {part[2:]}" if part.startswith("< ") else f"at most {part}"
        return f"I/O can cost {most} of the {run}: look elsewhere"
    low = percent(cell.low_ns / account.window_ns)
    per_rank = " per rank on average" if len(account.ranks) > 1 else ""
    if cell.high_ns - cell.low_ns <= _ALIKE * cell.high_ns:
        amount, part = seconds(cell.high_ns / 1e9), percent(share)
    elif not cell.low_ns:
        amount, part = f"at most {seconds(cell.high_ns / 1e9)}", f"at most {percent(share)}"
    elif cell.high_ns >= (1 - LITTLE) * account.window_ns:
        amount, part = f"at least {seconds(cell.low_ns / 1e9)}", f"at least {low}"
    else:
        amount = f"{seconds(cell.low_ns / 1e9)} to {seconds(cell.high_ns / 1e9)}"
        part = f"{low} to {percent(share)}"
    said = f"Storage took {amount}{per_rank}, {part} of the {run}"
    if calls := longest_calls(trace, account, cell):
        said += f", {calls}"
    if BLOCKING in cell.assumed:
        said += " (calls of a rank are taken to come one at a time)"
    return said


def longest_calls(trace: Trace, account: Breakdown, cell: Cell) -> str:
    """`11.1 s of it in collective writes through MPI-IO`; "" where no kind of call has most."""
    times = [
        (spent_s, kind, layer)
        for layer, kinds in account.layers.items()
        for kind, spent_s in zip(_KINDS, kinds, strict=True)
    ]
    spent_s, kind, layer = max(times, default=(0.0, "", ""))
    if spent_s * 1e9 < _MOST * cell.low_ns or not spent_s:
        return ""
    if layer == MPIIO and kind in ("reads", "writes") and _is_collective(trace, kind):
        kind = f"collective {kind}"
    spent_s = min(spent_s, cell.high_ns / 1e9)
    return f"{seconds(spent_s)} of it in {kind} through {layer}"


def _is_collective(trace: Trace, kind: str) -> bool:
    """Whether most calls of a kind were collective."""
    table = trace.counters[MPIIO]
    together, alone = (
        table.total(f"{prefix_of(MPIIO)}_{how}_{kind.upper()}") or 0 for how in ("COLL", "INDEP")
    )
    return together > alone
