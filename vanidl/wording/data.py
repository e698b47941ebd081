"""Sentences about datasets that the report, its figures and the terminal share."""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.analyses.access import AccessCounts
from vanidl.analyses.coverage import Coverage
from vanidl.analyses.datafiles import TransferMode
from vanidl.analyses.dataset import VisitOrder
from vanidl.analyses.files import GroupRow
from vanidl.formatting.units import count, nbytes, percent


def traced_fraction(coverage: Coverage, layer: str) -> float | None:
    """Traced operations / all of a layer, where some were traced and some not; else None."""
    share = next((c.traced_fraction for c in coverage.layers if c.layer == layer), None)
    return share if share is not None and 0 < share < 1 else None


def part_words(share: float) -> str:
    """The beginning of a sentence about a part: `Only 7 %`, but `96 %`: most is not only."""
    return f"Only {percent(share)}" if share < 0.5 else percent(share)


def traced_words(coverage: Coverage, layer: str) -> str:
    """`Only 7 % of the POSIX operations were traced`; "" where all were, or none."""
    share = traced_fraction(coverage, layer)
    return "" if share is None else f"{part_words(share)} of the {layer} operations were traced"


def traced_share(coverage: Coverage, layer: str) -> str:
    """`7 % of POSIX operations traced`; "" where all were, or none."""
    share = traced_fraction(coverage, layer)
    return "" if share is None else f"{percent(share)} of {layer} operations traced"


def busy_words(coverage: Coverage, layer: str, groups: Sequence[GroupRow]) -> str:
    """What times in I/O of groups of files lack; "" where all operations were traced."""
    cut = traced_words(coverage, layer)
    if not cut or not any(group.truncated for group in groups):
        return ""
    return f" {cut}: bytes are those of the counters, times of the traced operations alone."


def size_range(mode: TransferMode) -> str:
    """`256 KiB`, or `118 KiB to 118.2 KiB`."""
    low, high = nbytes(mode.low), nbytes(mode.high)
    return low if low == high else f"{low} to {high}"


def mode_words(mode: TransferMode) -> str:
    """How many reads and bytes a mode has, and its cause."""
    cause = mode.cause or "cause unknown"
    return (
        f"{count(mode.reads)} reads ({percent(mode.share_of_reads)}), "
        f"{percent(mode.share_of_bytes)} of the bytes; {cause}"
    )


def within_words(within: AccessCounts | None) -> str:
    """Where reads begin after the one before in the same file; "" where not recorded."""
    if within is None or within.ops == within.first:
        return ""
    parts = (
        (within.consecutive, "follow on"),
        (within.forward, "skip ahead"),
        (within.backward, "go back"),
    )
    shares = [f"{percent(n / within.ops)} {words}" for n, words in parts if n]
    return f"within files {', '.join(shares)}"


def order_words(order: VisitOrder | None) -> str:
    """In which order files are visited; "" where there is no order to speak of."""
    if order is None or order.concordance is None or order.name in ("one file", "not clear"):
        return ""
    words = {
        "in order": "files in order of their names",
        "reversed": "files in reverse order of their names",
        "shuffled": "files in shuffled order",
    }[order.name]
    return f"{words} ({percent(order.concordance)} of the pairs ascend)"
