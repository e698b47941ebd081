"""What the settings of the tracer, and lines that are no single call, mean for the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vanidl.formatting.units import plural
from vanidl.model.warnings import Notice
from vanidl.readers.dftracer import sums
from vanidl.readers.dftracer.calls import LAYERS, is_layer
from vanidl.readers.dftracer.layers import GPU, HDF5, MPI_IO
from vanidl.readers.dftracer.processes import TracedProcess
from vanidl.readers.dftracer.trace_file import TraceFile

_AMBIGUOUS_SHARE = 0.01  # of the names: from there on it is more than worth knowing


def notices(files: Sequence[TraceFile], traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    """Warnings and remarks; none where every call was recorded by itself, without a filter."""
    yield from _summed(traced)
    yield from _switched_off(files)
    yield from _filtered(files)
    yield from _above(traced)
    yield from _not_analysed(files, traced)
    yield from _ambiguous(files)


def _summed(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    some = [process for process in traced if len(process.summed)]
    if not some:
        return
    processes = plural(len(some), "process", "processes")
    calls = sum(sum(process.summed.columns["calls"].tolist()) for process in some)
    of_io = any(is_layer(process.summed, layer).any() for process in some for layer in LAYERS)
    regions = any(
        not any(category == layer for layer in LAYERS)
        for process in some
        for category, _ in _used(process)
    )
    lost = [
        "No single operation of them is known: busy time, overlap, access pattern and steps lack "
        "them.",
        "Totals hold their bytes and calls." if of_io else "",
        "Bytes are lower bounds where items differ in size or calls failed."
        if any(sums.lower_bounds(process.summed) for process in some)
        else "",
        "Regions that the program marked are among them and in no number." if regions else "",
    ]
    yield Notice(
        "calls_summed",
        f"DFTracer summed up at least {plural(calls, 'call')} in {processes} "
        f"(DFTRACER_ENABLE_AGGREGATION=1). {' '.join(text for text in lost if text)}",
    )


def _used(process: TracedProcess) -> Iterator[tuple[str, str]]:
    return (process.summed.names[i] for i in np.unique(process.summed.columns["name"]).tolist())


def _switched_off(files: Sequence[TraceFile]) -> Iterator[Notice]:
    for layer in LAYERS:
        off = sum(_is_off(file, layer) for file in files)
        if off:
            yield Notice(
                "layer_switched_off",
                f"{layer} was switched off in {off} of {len(files)} DFTracer files "
                f"(DFTRACER_DISABLE_{layer} or DFTRACER_DISABLE_IO): what went through it there is "
                "not recorded, not zero.",
            )


def _is_off(file: TraceFile, layer: str) -> bool:
    return 0 in (file.settings.get(layer.lower()), file.settings.get("io"))


def _filtered(files: Sequence[TraceFile]) -> Iterator[Notice]:
    some = sum(file.settings.get("trace_all_files") == 0 for file in files)
    if some:
        yield Notice(
            "files_filtered",
            f"{some} of {len(files)} DFTracer files hold only what was opened under "
            "DFTRACER_DATA_DIR, by the names that the program used: other files are in no number.",
            "info",
        )


def _above(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    calls = {layer: _calls(traced, layer) for layer in (MPI_IO, HDF5)}
    named = [f"{plural(n, 'call')} of {layer}" for layer, n in calls.items() if n]
    if named:
        yield Notice(
            "layers_above",
            f"{' and '.join(named)} were traced. DFTracer records neither their file nor their "
            "bytes; these went through POSIX and are counted there, so the layers are not added.",
            "info",
        )


def _not_analysed(files: Sequence[TraceFile], traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    found = {
        "samples of telemetry or counters of the hardware": sum(file.samples for file in files),
        "events of GPUs": _calls(traced, GPU),
        "lines of a kind that vanidl does not know": sum(file.unknown for file in files),
    }
    named = [f"{n:,} {what}" for what, n in found.items() if n]
    if named:
        yield Notice(
            "events_not_analysed",
            f"DFTracer's files hold {', '.join(named)}. They are in no number; reads, writes and "
            "their times are not touched.",
            "info",
        )


def _calls(traced: Sequence[TracedProcess], layer: str) -> int:
    return sum(int(is_layer(process.events, layer).sum()) for process in traced)


def _ambiguous(files: Sequence[TraceFile]) -> Iterator[Notice]:
    """Versions before 2.0 wrote hashes of 16 bits, of which one can stand for several names."""
    names = sum(file.ambiguous for file in files)
    total = names + sum(len(file.files) for file in files)
    if names:
        yield Notice(
            "names_ambiguous",
            f"{names:,} of {total:,} names of files have a hash that stands for another name as "
            "well, as DFTracer's hashes were short before version 2: what was done to such a file "
            "counts for the one that was named first. Totals are not touched.",
            "warning" if names >= _AMBIGUOUS_SHARE * total else "info",
        )
