"""Whether the bytes read of each file fit its size, where the files are at hand (`--data`).

A job that reads its files whole reads, of each file, its size times how often it was opened (or
a whole part of that, where each visit opens a file several times). Where nearly all files fit
one such rule, those that do not were read in part, or the tracer lost reads of them, or
counted reads for the wrong file, as Darshan does among threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import plural
from vanidl.model.counter_totals import record_counts
from vanidl.model.trace import POSIX, STORAGE_LAYERS, Trace
from vanidl.model.warnings import Notice

Int64Array = NDArray[np.int64]

_LEAST_FITTING = 0.75
_MOST_OPENS_A_VISIT = 4
_LARGEST = 1 << 60  # beyond it a product could leave the integers


@dataclass(frozen=True, slots=True)
class _Files:
    """Files of known size that were opened and never written; one entry each."""

    code: Int64Array
    size: Int64Array
    opens: Int64Array
    nbytes: Int64Array


def find(trace: Trace) -> Iterator[Notice]:
    """A warning where files that other files are read like hold too few or too many bytes."""
    files = _files(trace)
    expected = _expected(files)
    if expected is None:
        return
    short, over = files.nbytes < expected, files.nbytes > expected
    wrong = np.flatnonzero(short | over)
    if not len(wrong):
        return
    lacking = int((expected - files.nbytes)[short].sum())
    beyond = int((files.nbytes - expected)[over].sum())
    first = wrong[0]
    path, nbytes = trace.files.path[files.code[first]], files.nbytes[first]
    yield Notice(
        "sizes_differ",
        f"{len(wrong):,} of {len(files.code):,} files whose size is known do not hold the bytes "
        f"that reading them whole at each visit gives, as of the others: {lacking:,} bytes are "
        f"missing in {plural(int(short.sum()), 'file')}, {beyond:,} are too many in "
        f"{plural(int(over.sum()), 'file')} (for example {path}: {nbytes:,} bytes recorded, "
        f"{expected[first]:,} expected). Unless the job read these in part, the tracer "
        "lost reads or counted them for the wrong file, as happens where threads open and close "
        "files at the same time: bytes of single files are not right. Read with one thread of "
        "each process to compare.",
    )


def _files(trace: Trace) -> _Files:
    number = len(trace.files.path)
    size = np.array([trace.user_data.sizes.get(p, 0) for p in trace.files.path], np.int64)
    opens, nbytes, written = (np.zeros(number, np.int64) for _ in range(3))
    for layer in STORAGE_LAYERS:
        table = trace.counters.get(layer)
        if table is not None and f"{layer}_OPENS" in table.counters:
            again = table.counters.get("POSIX_DUPS") if layer == POSIX else None
            opened = np.maximum(table.counters[f"{layer}_OPENS"], 0)
            opened -= 0 if again is None else np.maximum(again, 0)
            np.add.at(opens, table.file, opened)
            np.add.at(nbytes, table.file, record_counts(table, "BYTES_READ"))
            np.add.at(written, table.file, record_counts(table, "BYTES_WRITTEN"))
    unused = np.array([kind == "other" for kind in trace.files.kind], bool)
    wanted = (trace.files.is_data | unused) & (size > 0) & (opens > 0) & (written == 0)
    wanted &= (opens < _LARGEST // np.maximum(size, 1)) & (nbytes < _LARGEST)
    code = np.flatnonzero(wanted)
    return _Files(code, size[code], opens[code], nbytes[code])


def _expected(files: _Files) -> Int64Array | None:
    """Bytes of whole readings of each file, by the rule that most fit; None where few fit one."""
    for opens_a_visit in range(1, _MOST_OPENS_A_VISIT + 1):
        expected = files.size * files.opens // opens_a_visit
        fitting = int((files.nbytes * opens_a_visit == files.size * files.opens).sum())
        if fitting >= max(2.0, _LEAST_FITTING * len(files.code)):
            return expected
    return None
