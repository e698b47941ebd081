"""The few numbers under the headline of a comparison."""

from __future__ import annotations

from vanidl.compare import Change, Comparison
from vanidl.compare.comparison import NO_INTERVAL, NOT_COMPARABLE, NOT_RECORDED, TOO_FEW
from vanidl.compare.wording import interval, values
from vanidl.formatting.units import UNKNOWN, relative, shown
from vanidl.report.tiles import Tile

_NAMES = ("throughput", "step_time_s", "input_wait_s", "exposed_io_s", "bytes_read")
_ALONE = ("wall_time_s", "run_time_s", "io_time_s", "requests")


def tiles(comparison: Comparison) -> tuple[Tile, ...]:
    """Five key changes of the first pairing: what was recorded before what was not."""
    pairing = comparison.pairings[0]
    changes = [pairing.comparable(name) for name in (*_NAMES, *_ALONE)]
    known = [c for c in changes if c is not None and c.verdict != NOT_RECORDED]
    unknown = [c for c in changes if c is not None and c.verdict == NOT_RECORDED]
    return tuple(_tile(change) for change in (known + unknown)[:5])


def _tile(change: Change) -> Tile:
    title = change.metric.title
    label = title[:1].upper() + title[1:]
    if change.verdict == NOT_RECORDED:
        return Tile(label, UNKNOWN, change.note)
    if change.verdict == NOT_COMPARABLE:
        return Tile(label, change.verdict, values(change))
    unit = change.metric.unit
    value = shown(change.b, unit) if change.ratio is None else relative(change.ratio)
    bounds = interval(change)
    judged = "" if change.verdict in (NO_INTERVAL, TOO_FEW) else f"; {change.verdict}"
    if bounds and change.ratio is not None:
        judged += f" ({bounds})"
    return Tile(label, value, values(change) + judged)
