"""What was traced, in words: the tracer's name, what layers moved, which share is known."""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.analyses.coverage import Coverage
from vanidl.analyses.summary import (
    REAL_PART,
    LayerTotals,
    Summary,
    has_separate_objects,
    sum_moved_bytes,
)
from vanidl.formatting.units import nbytes, percent, seconds
from vanidl.model.trace import DAOS, DFS, OBJECT, STDIO, STORAGE_LAYERS, Trace

_TITLES = {"darshan": "Darshan", "dftracer": "DFTracer", "vanidl": "vanidl's tracer"}
_DXT = "Record with DXT_ENABLE_IO_TRACE=1"
_WITH_IO = "Record the run with vanidl record"
_RECORD = {"dftracer": "Record without DFTRACER_ENABLE_AGGREGATION"}


def name_tracer(trace: Trace) -> str:
    """The name of the tracer, as people write it."""
    return _TITLES.get(trace.job.tracer, trace.job.tracer or "the tracer")


def name_tracer_versions(trace: Trace) -> str:
    """The tracer with the versions that its logs state, as a fact about the run."""
    stated = ", ".join(sorted({log.version for log in trace.logs if log.version}))
    of_format = "log version " if trace.job.tracer == "darshan" else ""
    return f"{name_tracer(trace)} {of_format}{stated}".strip() if trace.job.tracer else "none"


def advise_tracing(trace: Trace) -> str:
    """What to do where no single operation was traced; a sentence without its end."""
    return _RECORD.get(trace.job.tracer, _DXT if trace.logs else _WITH_IO)


# What was moved through which layer of storage, in words.


def describe_daos(summary: Summary) -> str:
    """What DAOS and its file system moved, where that is a real part of the bytes."""
    total = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    layers = [layer for layer in summary.layers if layer.layer in (DAOS, DFS)]
    return ", ".join(
        f"{each.layer} {describe_moved(each.bytes_read, each.bytes_written)}"
        for each in layers
        if (each.bytes_read or 0) + (each.bytes_written or 0) > REAL_PART * total
    )


def describe_by_counters(summary: Summary) -> str:
    """What the run moved, and the seconds that its files add up to, without a full stop."""
    moved = describe_moved(summary.bytes_read, summary.bytes_written) or "did I/O"
    layer = find_totals(summary, summary.layer)
    spent = [s for s in (layer.read_s, layer.write_s) if s is not None] if layer else []
    took = f" in {seconds(sum(spent))} summed over all processes" if spent else ""
    words = f"By its counters, the run {moved} through {summary.layer}{took}"
    stdio = _find_larger_stdio(summary)
    if stdio is None:
        return words
    return f"{words}, and {describe_moved(stdio.bytes_read, stdio.bytes_written)} through STDIO"


def _find_larger_stdio(summary: Summary) -> LayerTotals | None:
    """STDIO where it moved more than all other storage: without it the sentence would mislead."""
    stdio = find_totals(summary, STDIO)
    if stdio is None or summary.source != "counters" or not summary.ops or summary.layer == STDIO:
        return None
    total = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    return stdio if 2 * sum_moved_bytes(stdio) > total else None


def describe_moved(read: int | None, written: int | None) -> str:
    """`read 2 MiB and wrote nothing`; what was not recorded is left out."""
    amounts = (("read", read), ("wrote", written))
    known = [f"{verb} {nbytes(n) if n else 'nothing'}" for verb, n in amounts if n is not None]
    return " and ".join(known)


def describe_stdio(summary: Summary) -> str:
    """Both storage layers by name where STDIO holds a real part of the bytes."""
    stdio = find_totals(summary, STDIO)
    total = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    if stdio is None or not total or summary.layer == STDIO:
        return ""
    moved = (stdio.bytes_read or 0) + (stdio.bytes_written or 0)
    if moved <= REAL_PART * total or not summary.source or _find_larger_stdio(summary):
        return ""
    alone = f": times above are of {summary.layer} alone" if summary.time is not None else ""
    rest = "DAOS and POSIX" if describe_daos(summary) else "POSIX"
    return f"STDIO moved {nbytes(moved)} and {rest} {nbytes(total - moved)}{alone}."


def find_untraced(coverage: Coverage, summary: Summary) -> tuple[Sequence[str], float]:
    """Storage of which no operation was traced beside a layer that was, and its share of the bytes.

    No layers and 0.0 where that is no real part of them: what was traced may stand for all I/O.
    """
    if summary.source != "trace" or summary.layer not in STORAGE_LAYERS:
        return (), 0.0
    traced = {layer.layer for layer in coverage.layers if layer.traced_ops}
    storage = [layer for layer in summary.layers if layer.layer in STORAGE_LAYERS]
    missing = [layer for layer in storage if layer.layer not in {*traced, summary.layer}]
    total, untraced = (sum(map(sum_moved_bytes, layers)) for layers in (storage, missing))
    if untraced <= REAL_PART * total:
        return (), 0.0
    return [layer.layer for layer in missing if sum_moved_bytes(layer)], untraced / total


def describe_objects(summary: Summary) -> str:
    """Files and object storage are totals of their own: names the one that times are not of."""
    objects = find_totals(summary, OBJECT)
    if objects is None:
        return ""
    if has_separate_objects(summary):
        moved = nbytes(sum_moved_bytes(objects))
        return f"Object storage moved {moved}, which is in none of these: see --layer OBJECT."
    files = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    if summary.layer != OBJECT:
        return ""
    beside = files > REAL_PART * sum_moved_bytes(objects)
    files_too = f"; POSIX and STDIO moved {nbytes(files)} beside it" if beside else ""
    return f"I/O here is object storage{files_too}."


def find_totals(summary: Summary, name: str) -> LayerTotals | None:
    """Those of one layer; None: nothing was recorded of it."""
    return next((layer for layer in summary.layers if layer.layer == name), None)


# Sentences about datasets that the report, its figures and the terminal share.


def find_traced_fraction(coverage: Coverage, layer: str) -> float | None:
    """Traced operations / all of a layer, where some were traced and some not; else None."""
    share = next((c.traced_fraction for c in coverage.layers if c.layer == layer), None)
    return share if share is not None and 0 < share < 1 else None


def begin_part(share: float) -> str:
    """The beginning of a sentence about a part: `Only 7 %`, but `96 %`: most is not only."""
    return f"Only {percent(share)}" if share < 0.5 else percent(share)


def describe_traced(coverage: Coverage, layer: str) -> str:
    """`Only 7 % of the POSIX operations were traced`; "" where all were, or none."""
    share = find_traced_fraction(coverage, layer)
    return "" if share is None else f"{begin_part(share)} of the {layer} operations were traced"


def describe_traced_share(coverage: Coverage, layer: str) -> str:
    """`7 % of POSIX operations traced`; "" where all were, or none."""
    share = find_traced_fraction(coverage, layer)
    return "" if share is None else f"{percent(share)} of {layer} operations traced"
