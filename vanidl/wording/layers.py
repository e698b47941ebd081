"""What was moved through which layer of storage, in words."""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.analyses.coverage import Coverage
from vanidl.analyses.summary import REAL_PART, LayerTotals, Summary, moved_bytes, objects_apart
from vanidl.formatting.units import nbytes, seconds
from vanidl.model.trace import DAOS, DFS, OBJECT, STDIO, STORAGE_LAYERS


def through_daos(summary: Summary) -> str:
    """What DAOS and its file system moved, where that is a real part of the bytes."""
    total = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    layers = [layer for layer in summary.layers if layer.layer in (DAOS, DFS)]
    return ", ".join(
        f"{each.layer} {moved_words(each.bytes_read, each.bytes_written)}"
        for each in layers
        if (each.bytes_read or 0) + (each.bytes_written or 0) > REAL_PART * total
    )


def by_counters(summary: Summary) -> str:
    """What the run moved, and the seconds that its files add up to, without a full stop."""
    moved = moved_words(summary.bytes_read, summary.bytes_written) or "did I/O"
    layer = totals_of(summary, summary.layer)
    spent = [s for s in (layer.read_s, layer.write_s) if s is not None] if layer else []
    took = f" in {seconds(sum(spent))} summed over all processes" if spent else ""
    words = f"By its counters, the run {moved} through {summary.layer}{took}"
    stdio = _most_of_counters(summary)
    if stdio is None:
        return words
    return f"{words}, and {moved_words(stdio.bytes_read, stdio.bytes_written)} through STDIO"


def _most_of_counters(summary: Summary) -> LayerTotals | None:
    """STDIO where it moved more than all other storage: without it the sentence would mislead."""
    stdio = totals_of(summary, STDIO)
    if stdio is None or summary.source != "counters" or not summary.ops or summary.layer == STDIO:
        return None
    total = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    return stdio if 2 * moved_bytes(stdio) > total else None


def moved_words(read: int | None, written: int | None) -> str:
    """`read 2 MiB and wrote nothing`; what was not recorded is left out."""
    amounts = (("read", read), ("wrote", written))
    known = [f"{verb} {nbytes(n) if n else 'nothing'}" for verb, n in amounts if n is not None]
    return " and ".join(known)


def stdio_part(summary: Summary) -> str:
    """Both storage layers by name where STDIO holds a real part of the bytes."""
    stdio = totals_of(summary, STDIO)
    total = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    if stdio is None or not total or summary.layer == STDIO:
        return ""
    moved = (stdio.bytes_read or 0) + (stdio.bytes_written or 0)
    if moved <= REAL_PART * total or not summary.source or _most_of_counters(summary):
        return ""
    alone = f": times above are of {summary.layer} alone" if summary.time is not None else ""
    rest = "DAOS and POSIX" if through_daos(summary) else "POSIX"
    return f"STDIO moved {nbytes(moved)} and {rest} {nbytes(total - moved)}{alone}."


def untraced_beside(coverage: Coverage, summary: Summary) -> tuple[Sequence[str], float]:
    """Storage of which no operation was traced beside a layer that was, and its share of the bytes.

    No layers and 0.0 where that is no real part of them: what was traced may stand for all I/O.
    """
    if summary.source != "trace" or summary.layer not in STORAGE_LAYERS:
        return (), 0.0
    traced = {layer.layer for layer in coverage.layers if layer.traced_ops}
    storage = [layer for layer in summary.layers if layer.layer in STORAGE_LAYERS]
    missing = [layer for layer in storage if layer.layer not in {*traced, summary.layer}]
    total, untraced = (sum(map(moved_bytes, layers)) for layers in (storage, missing))
    if untraced <= REAL_PART * total:
        return (), 0.0
    return [layer.layer for layer in missing if moved_bytes(layer)], untraced / total


def objects_part(summary: Summary) -> str:
    """Files and object storage are totals of their own: names the one that times are not of."""
    objects = totals_of(summary, OBJECT)
    if objects is None:
        return ""
    if objects_apart(summary):
        moved = nbytes(moved_bytes(objects))
        return f"Object storage moved {moved}, which is in none of these: see --layer OBJECT."
    files = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    if summary.layer != OBJECT:
        return ""
    beside = files > REAL_PART * moved_bytes(objects)
    files_too = f"; POSIX and STDIO moved {nbytes(files)} beside it" if beside else ""
    return f"I/O here is object storage{files_too}."


def totals_of(summary: Summary, name: str) -> LayerTotals | None:
    """Those of one layer; None: nothing was recorded of it."""
    return next((layer for layer in summary.layers if layer.layer == name), None)
