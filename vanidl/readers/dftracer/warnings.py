"""What DFTracer traces do not hold, said once a run.

Measured with DFTracer 2.2.0: np.load and np.fromfile read through a duplicated descriptor,
torch.save writes past every wrapped call, preadv, pwritev, memory maps, raw system calls and
io_uring are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import plural
from vanidl.model.warnings import Notice
from vanidl.readers.dftracer.calls import (
    LAYERS,
    OPENS,
    READS,
    WRITES,
    get_nbytes,
    has_lower_bounds,
    is_call,
    is_layer,
    opens_for_writing,
)
from vanidl.readers.dftracer.descriptors import warn_of_lost_descriptors
from vanidl.readers.dftracer.processes import TracedProcess
from vanidl.readers.dftracer.trace_file import ABOVE, GPU, HDF5, MPI_IO, TraceFile
from vanidl.readers.format import warn_of_versions

# What the settings of the tracer, and lines that are no single call, mean for the numbers.

_AMBIGUOUS_SHARE = 0.01  # of the names: from there on it is more than worth knowing


def list_warnings(
    files: Sequence[TraceFile], traced: Sequence[TracedProcess]
) -> tuple[Notice, ...]:
    """Warnings and remarks about all DFTracer traces of a run; none where there is none."""
    if not files:
        return ()
    above = any(is_layer(p.events, layer).any() for p in traced for layer in ABOVE)
    others = sorted({pair for process in traced for pair in process.other_versions})
    return (
        *warn_of_versions(others),
        *_warn_of_empty_files(files),
        # what the settings of the tracer, and lines that are no single call, mean for the numbers
        *_warn_of_sums(traced),
        *_warn_of_layers_off(files),
        *_warn_of_filter(files),
        *_warn_of_layers_above(traced),
        *_warn_of_unused_events(files, traced),
        *_warn_of_ambiguous_names(files),
        # what was done and left no line
        *_warn_of_unwritten_events(files),
        *warn_of_lost_descriptors(traced),
        *_warn_of_unseen_writes(traced),
        *_warn_of_arrays(traced),
        *_warn_of_offsets(traced),
        _describe_blind_spots(above),
    )


def _warn_of_sums(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    some = [process for process in traced if len(process.summed)]
    if not some:
        return
    processes = plural(len(some), "process", "processes")
    calls = sum(sum(process.summed.columns["calls"].tolist()) for process in some)
    of_io = any(is_layer(process.summed, layer).any() for process in some for layer in LAYERS)
    regions = any(
        not any(category == layer for layer in LAYERS)
        for process in some
        for category, _ in _list_used_names(process)
    )
    lost = [
        "No single operation of them is known: busy time, overlap, access pattern and steps lack "
        "them.",
        "Totals hold their bytes and calls." if of_io else "",
        "Bytes are lower bounds where items differ in size or calls failed."
        if any(has_lower_bounds(process.summed) for process in some)
        else "",
        "Regions that the program marked are among them and in no number." if regions else "",
    ]
    yield Notice(
        "calls_summed",
        f"DFTracer summed up at least {plural(calls, 'call')} in {processes} "
        f"(DFTRACER_ENABLE_AGGREGATION=1). {' '.join(text for text in lost if text)}",
    )


def _list_used_names(process: TracedProcess) -> Iterator[tuple[str, str]]:
    return (process.summed.names[i] for i in np.unique(process.summed.columns["name"]).tolist())


def _warn_of_layers_off(files: Sequence[TraceFile]) -> Iterator[Notice]:
    for layer in LAYERS:
        names = (layer.lower(), "io")
        off = sum(any(file.settings.get(name) == 0 for name in names) for file in files)
        if off:
            yield Notice(
                "layer_switched_off",
                f"{layer} was switched off in {off} of {len(files)} DFTracer files "
                f"(DFTRACER_DISABLE_{layer} or DFTRACER_DISABLE_IO): what went through it there is "
                "not recorded, not zero.",
            )


def _warn_of_filter(files: Sequence[TraceFile]) -> Iterator[Notice]:
    some = sum(file.settings.get("trace_all_files") == 0 for file in files)
    if some:
        yield Notice(
            "files_filtered",
            f"{some} of {len(files)} DFTracer files hold only what was opened under "
            "DFTRACER_DATA_DIR, by the names that the program used: other files are in no number.",
            "info",
        )


def _warn_of_layers_above(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    calls = {layer: _count_layer_calls(traced, layer) for layer in (MPI_IO, HDF5)}
    named = [f"{plural(n, 'call')} of {layer}" for layer, n in calls.items() if n]
    if named:
        yield Notice(
            "layers_above",
            f"{' and '.join(named)} were traced. DFTracer records neither their file nor their "
            "bytes; these went through POSIX and are counted there, so the layers are not added.",
            "info",
        )


def _warn_of_unused_events(
    files: Sequence[TraceFile], traced: Sequence[TracedProcess]
) -> Iterator[Notice]:
    found = {
        "samples of telemetry or counters of the hardware": sum(file.samples for file in files),
        "events of GPUs": _count_layer_calls(traced, GPU),
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


def _count_layer_calls(traced: Sequence[TracedProcess], layer: str) -> int:
    return sum(int(is_layer(process.events, layer).sum()) for process in traced)


def _warn_of_ambiguous_names(files: Sequence[TraceFile]) -> Iterator[Notice]:
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


_SAVED = (".pt", ".pth", ".ckpt", ".safetensors", ".npy", ".npz", ".h5", ".hdf5", ".keras", ".bin")
_ARRAY = ".npy"
_LOST_SHARE = 0.01  # of the events: from there on it is more than worth knowing


def _warn_of_empty_files(files: Sequence[TraceFile]) -> Iterator[Notice]:
    empty = sum(file.empty for file in files)
    if empty:
        yield Notice(
            "empty_traces",
            f"{empty} of {len(files)} DFTracer files are empty: their processes became another "
            "program, which has a file of its own, or were killed before anything was written "
            "out. run.json of vanidl record tells which.",
            "info",
        )


def _warn_of_unwritten_events(files: Sequence[TraceFile]) -> Iterator[Notice]:
    missing = sum(file.unwritten for file in files)
    total = missing + sum(file.numbered for file in files)
    if missing:
        serious = missing >= _LOST_SHARE * total
        yield Notice(
            "events_lost",
            f"{missing:,} of {total:,} events that DFTracer numbered were never written "
            f"({missing / total:.2%}), in {sum(file.unwritten > 0 for file in files)} of "
            f"{plural(len(files), 'file')}: it loses a buffer of events (4 KiB where vanidl "
            "recorded) where a process starts another, and all that follow where the disk is "
            "full. Bytes and operations here are lower bounds.",
            "warning" if serious else "info",
        )


def _warn_of_unseen_writes(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    silent: set[str] = set()
    written: set[str] = set()
    for process in traced:
        for layer in LAYERS:
            wrote = is_call(process.events, layer, WRITES[layer]) & (get_nbytes(process.events) > 0)
            written |= _list_paths(process, wrote)
            silent |= _list_paths(process, opens_for_writing(process.events, layer))
    names = sorted(name for name in silent - written if name.lower().endswith(_SAVED))
    if names:
        yield Notice(
            "writes_not_seen",
            f"{plural(len(names), 'file was', 'files were')} opened for writing and no write to it "
            f"was seen (for example {names[0]}). DFTracer does not see what torch.save and "
            "np.save write: their bytes are not recorded, not zero.",
        )


def _warn_of_arrays(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    names = sorted({n for p in traced for n in _list_opened_paths(p) if n.lower().endswith(_ARRAY)})
    if names:
        yield Notice(
            "reads_not_seen",
            f"{plural(len(names), '.npy file was', '.npy files were')} opened (for "
            f"example {names[0]}). np.load and np.fromfile read past every call that DFTracer "
            "wraps: most of their bytes are not recorded.",
        )


def _list_opened_paths(process: TracedProcess) -> set[str]:
    opened = [is_call(process.events, layer, OPENS[layer]) for layer in LAYERS]
    return _list_paths(process, np.any(opened, axis=0))


def _warn_of_offsets(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    unknown = total = 0
    for process in traced:
        calls = (*READS["POSIX"], *WRITES["POSIX"])
        rows = is_call(process.events, "POSIX", calls) & (get_nbytes(process.events) >= 0)
        total += int(rows.sum())
        unknown += int((process.events.columns["offset"][rows] < 0).sum())
    if unknown:
        yield Notice(
            "offsets_not_recorded",
            f"DFTracer records no offset for read and write: {unknown:,} of {total:,} POSIX "
            "operations have none and are left out of the access pattern and of what counts "
            "bytes once.",
            "info",
        )


def _describe_blind_spots(above: bool) -> Notice:
    others = "" if above else ", and no layer above (MPI-IO, HDF5)"
    return Notice(
        "not_traced",
        "DFTracer records calls of POSIX and STDIO. It does not see np.load and np.fromfile of "
        ".npy files, torch.save, preadv and pwritev, duplicated descriptors, memory maps, "
        f"io_uring{others}: what went through these is not recorded, not zero.",
        "info",
    )


def _list_paths(process: TracedProcess, rows: NDArray[np.bool_]) -> set[str]:
    codes = np.unique(process.events.columns["file"][rows])
    return {process.events.files[code] for code in codes.tolist() if code >= 0}
