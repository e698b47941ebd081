"""Steps without times between bursts of reads: in words, and for programs."""

from __future__ import annotations

from vanidl.analyses.placement import EXPOSED, HIDDEN, Placement, RankPlacement
from vanidl.formatting.names import elided
from vanidl.formatting.units import count, plural, seconds

_VERDICT = {
    HIDDEN: "nearly all of it was hidden, wherever the steps lay",
    EXPOSED: "nearly none of it was hidden, wherever the steps lay",
}
_NOT_KNOWN = "how much was hidden is not determined"
_BLOCKING = 2.0  # standard errors at which a slope counts as different from 0 or 1


def placement_bounds(placement: Placement | None) -> str:
    """How much I/O the steps may have hidden, over all their places; "" without placement."""
    if placement is None:
        return ""
    over = f", summed over {count(len(placement.per_rank))} ranks" if _many(placement) else ""
    low, high, io_s = (
        seconds(value)
        for value in (placement.hidden_low_s, placement.hidden_high_s, placement.io_s)
    )
    return (
        f"Placed between bursts of reads, the steps hid {low} to {high} of {io_s} of reads{over}: "
        f"{_VERDICT.get(placement.verdict, _NOT_KNOWN)}."
    )


def placement_sentences(placement: Placement | None) -> list[str]:
    """What was placed, by which evidence, and what speaks for reading ahead."""
    if placement is None:
        return []
    first = placement.per_rank[0]
    shortest = seconds(min(row.shortest_step_s for row in placement.per_rank))
    return [
        f"Each of the long steps (from {shortest} on) lies between the starts of two "
        f"bursts of reads of {elided(first.path.rsplit('/', 1)[-1], limit=60)}; "
        f"{_lag_words(placement)}",
        _slope_words(placement),
        "",
    ]


def _lag_words(placement: Placement) -> str:
    lags = sorted({row.lag for row in placement.per_rank})
    if len(lags) > 1:
        return f"which two differs by rank (bursts {', '.join(map(str, lags))} after its number)."
    return f"step k between bursts k + {lags[0]} and k + {lags[0] + 1}, both counted from 0."


def _slope_words(placement: Placement) -> str:
    """What longer bursts do to the time that an iteration has beside its step."""
    known = [r for r in placement.per_rank if r.slope is not None and r.slope_error is not None]
    if not known:
        return "Whether longer bursts made iterations longer is not known."
    blocks = sum(_apart(r, 0.0) and not _apart(r, 1.0) for r in known)
    ahead = sum(_apart(r, 1.0) and not _apart(r, 0.0) for r in known)
    return (
        "Where training waits for reads, a burst that is 1 s longer makes its iteration 1 s longer "
        f"beside the step. By that slope, {_by_slope(ahead, blocks, len(known))}. It is evidence, "
        "no proof: it does not say under what the reads ran."
    )


def _by_slope(ahead: int, blocks: int, ranks: int) -> str:
    """`3 of 8 ranks read ahead and 4 waited; of 1 it cannot be told`."""
    counted = {"read ahead": ahead, "waited": blocks}
    of = f" of {plural(ranks, 'rank')}"
    found = [f"{count(n)} {what}" for what, n in counted.items() if n]
    unknown = ranks - ahead - blocks
    if not found:
        return f"nothing can be told{of}"
    first, *rest = found
    said = " and ".join([first.replace(" ", f"{of} ", 1), *rest])
    return f"{said}; of {count(unknown)} it cannot be told" if unknown else said


def _apart(row: RankPlacement, slope: float) -> bool:
    """Whether the slope differs from that value by more than its error."""
    if row.slope is None or row.slope_error is None:
        return False
    return abs(row.slope - slope) > _BLOCKING * row.slope_error


def _many(placement: Placement) -> bool:
    return len(placement.per_rank) > 1
