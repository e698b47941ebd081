"""The dataset and the phases of a run in words, as the terminal shows them."""

from __future__ import annotations

from vanidl.analyses import Results
from vanidl.analyses.dataset import Dataset
from vanidl.analyses.phases import Phase
from vanidl.formatting.units import count, factor, nbytes, percent, plural, seconds
from vanidl.model.trace import Trace
from vanidl.report.dataset_json import throughput_object
from vanidl.wording.data import mode_words, order_words, size_range, within_words

Pairs = list[tuple[str, str]]
Row = tuple[str, ...]

_MOST_MODES = 4
_MOST_PHASES = 20


def dataset_pairs(trace: Trace, results: Results) -> Pairs:
    """What was read of the dataset, in which order, and in which sizes; empty without one."""
    data = results.dataset
    if data is None:
        return []
    rows = [
        ("files read", plural(len(data.files), "file") + _visits(data)),
        ("bytes", f"{nbytes(data.bytes_read)} read, {nbytes(data.unique_bytes)} different "
                  f"(re-read factor {factor(data.reread_factor)})"),
        *_within(data),
        *_sharing(data),
        *_samples(data),
        *((f"size {size_range(m)}", mode_words(m)) for m in data.modes[:_MOST_MODES]),
        *_never(data),
    ]  # fmt: skip
    per_s = throughput_object(trace, results)["samples_per_s"]
    return [*rows, ("throughput", f"{per_s:,.1f} samples a second")] if per_s else rows


def phase_table(results: Results) -> list[Row]:
    """A header and one row a stage, epoch and checkpoint; the header alone without phases."""
    header = ("phase", "from", "to", "data read", "in I/O", "input wait")
    phases = results.phases
    if phases is None:
        return [header]
    shown = (*phases.stages, *phases.epochs, *phases.checkpoints)[:_MOST_PHASES]
    return [header, *(_phase(phase) for phase in shown)]


def _phase(phase: Phase) -> Row:
    return (
        phase.name,
        f"{phase.start_s:.3f} s",
        f"{phase.end_s:.3f} s",
        nbytes(phase.bytes_read),
        seconds(phase.busy_s),
        seconds(phase.input_wait_s),
    )


def _visits(data: Dataset) -> str:
    visits = [f.visits for f in data.files if f.visits is not None]
    if not visits:
        return ""
    each = f"{min(visits)}" if min(visits) == max(visits) else f"{min(visits)} to {max(visits)}"
    words = order_words(data.order)
    return f", {each} visits a file" + (f", {words}" if words else "")


def _within(data: Dataset) -> Pairs:
    words = within_words(data.within)
    return [("reads", words)] if words else []


def _sharing(data: Dataset) -> Pairs:
    shares = [r.share for r in data.ranks if r.share is not None]
    if len(shares) < 2:
        return []
    low, high = percent(min(shares)), percent(max(shares))
    return [("of it a rank", f"{low} to {high} of the {data.share_of}")]


def _samples(data: Dataset) -> Pairs:
    samples = data.samples
    if samples.total is None:
        return []
    spread = (
        f"{count(samples.min)} in each file"
        if samples.min == samples.max
        else f"{count(samples.min)} to {count(samples.max)} a file, median {count(samples.median)}"
    )
    return [("samples", f"{count(samples.total)}: {spread} ({samples.source})")]


def _never(data: Dataset) -> Pairs:
    never, rows = data.never, []
    if never.reason:
        rows.append(("never read", f"unknown. {never.reason}"))
    if never.opened:
        rows.append(("opened, not read", f"{plural(len(never.opened), 'data file')} (or mapped)"))
    if never.on_disk:
        rows.append(("never opened", f"{plural(len(never.on_disk), 'file')} of the folder given"))
    return rows
