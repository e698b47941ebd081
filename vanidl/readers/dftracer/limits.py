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
from vanidl.readers.dftracer import modes
from vanidl.readers.dftracer.calls import (
    LAYERS,
    OPENS,
    READS,
    WRITES,
    is_call,
    is_layer,
    nbytes,
    opens_for_writing,
)
from vanidl.readers.dftracer.descriptors import descriptors_lost
from vanidl.readers.dftracer.layers import ABOVE
from vanidl.readers.dftracer.processes import TracedProcess
from vanidl.readers.dftracer.trace_file import TraceFile
from vanidl.readers.versions import left_out

_SAVED = (".pt", ".pth", ".ckpt", ".safetensors", ".npy", ".npz", ".h5", ".hdf5", ".keras", ".bin")
_ARRAY = ".npy"
_LOST_SHARE = 0.01  # of the events: from there on it is more than worth knowing


def notices(files: Sequence[TraceFile], traced: Sequence[TracedProcess]) -> tuple[Notice, ...]:
    """Warnings and remarks about all DFTracer traces of a run; none where there is none."""
    if not files:
        return ()
    above = any(is_layer(p.events, layer).any() for p in traced for layer in ABOVE)
    others = sorted({pair for process in traced for pair in process.other_versions})
    return (
        *left_out(others),
        *_empty(files),
        *modes.notices(files, traced),
        *_unwritten(files),
        *descriptors_lost(traced),
        *_unseen_writes(traced),
        *_arrays(traced),
        *_offsets(traced),
        _blind(above),
    )


def _empty(files: Sequence[TraceFile]) -> Iterator[Notice]:
    empty = sum(file.empty for file in files)
    if empty:
        yield Notice(
            "empty_traces",
            f"{empty} of {len(files)} DFTracer files are empty: their processes became another "
            "program, which has a file of its own, or were killed before anything was written "
            "out. run.json of vanidl record tells which.",
            "info",
        )


def _unwritten(files: Sequence[TraceFile]) -> Iterator[Notice]:
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


def _unseen_writes(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    silent: set[str] = set()
    written: set[str] = set()
    for process in traced:
        for layer in LAYERS:
            wrote = is_call(process.events, layer, WRITES[layer]) & (nbytes(process.events) > 0)
            written |= _paths(process, wrote)
            silent |= _paths(process, opens_for_writing(process.events, layer))
    names = sorted(name for name in silent - written if name.lower().endswith(_SAVED))
    if names:
        yield Notice(
            "writes_not_seen",
            f"{plural(len(names), 'file was', 'files were')} opened for writing and no write to it "
            f"was seen (for example {names[0]}). DFTracer does not see what torch.save and "
            "np.save write: their bytes are not recorded, not zero.",
        )


def _arrays(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    names = sorted({n for p in traced for n in _opened(p) if n.lower().endswith(_ARRAY)})
    if names:
        yield Notice(
            "reads_not_seen",
            f"{plural(len(names), '.npy file was', '.npy files were')} opened (for "
            f"example {names[0]}). np.load and np.fromfile read past every call that DFTracer "
            "wraps: most of their bytes are not recorded.",
        )


def _opened(process: TracedProcess) -> set[str]:
    opened = [is_call(process.events, layer, OPENS[layer]) for layer in LAYERS]
    return _paths(process, np.any(opened, axis=0))


def _offsets(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    unknown = total = 0
    for process in traced:
        calls = (*READS["POSIX"], *WRITES["POSIX"])
        rows = is_call(process.events, "POSIX", calls) & (nbytes(process.events) >= 0)
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


def _blind(above: bool) -> Notice:
    others = "" if above else ", and no layer above (MPI-IO, HDF5)"
    return Notice(
        "not_traced",
        "DFTracer records calls of POSIX and STDIO. It does not see np.load and np.fromfile of "
        ".npy files, torch.save, preadv and pwritev, duplicated descriptors, memory maps, "
        f"io_uring{others}: what went through these is not recorded, not zero.",
        "info",
    )


def _paths(process: TracedProcess, rows: NDArray[np.bool_]) -> set[str]:
    codes = np.unique(process.events.columns["file"][rows])
    return {process.events.files[code] for code in codes.tolist() if code >= 0}
