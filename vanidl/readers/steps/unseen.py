"""Files that the program mapped into memory or loaded past every tracer, as warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vanidl.formatting.units import nbytes, plural
from vanidl.model.warnings import WARNING, Notice
from vanidl.readers.budget import bounded_name
from vanidl.readers.steps.journal import Journal

_MOST_NAMED = 3
_MATTERS_NBYTES = 1 << 20
_LARGEST_NBYTES = 1 << 60

_TEXTS = {
    "mapped": (
        "files_mapped",
        "mapped into memory, as np.memmap, mmap, Arrow and safetensors do",
        "What was read of them are page faults, which no tracer sees: these bytes are in no "
        "number here, and waiting for them looks like decoding",
        WARNING,
    ),
    "loaded": (
        "files_loaded",
        "read by np.load",
        "Darshan before 3.5 and DFTracer do not see its reads, which are made inside the C "
        "library: where they are in no number here, waiting for them looks like decoding",
        "info",
    ),
}


def notices(journals: Sequence[Journal]) -> Iterator[Notice]:
    """One for each way to read a file past the tracers."""
    for way, (code, how, why, severity) in _TEXTS.items():
        sizes = _sizes(journals, way)
        if not sizes:
            continue
        largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:_MOST_NAMED]
        named = ", ".join(f"{path}: {nbytes(sizes[path])}" for path in largest)
        more = ", ..." if len(sizes) > _MOST_NAMED else ""
        total = sum(sizes.values())
        yield Notice(
            code,
            f"{plural(len(sizes), 'file')} of {nbytes(total)} in all {_were(len(sizes))} {how}. "
            f"{why} ({named}{more}).",
            severity if total >= _MATTERS_NBYTES else "info",
        )


def _were(files: int) -> str:
    return "was" if files == 1 else "were"


def _sizes(journals: Sequence[Journal], way: str) -> dict[str, int]:
    """The files and how large they are, each once whatever many processes read it."""
    found: dict[str, int] = {}
    for journal in journals:
        for text in journal.unseen:
            path, size = text.get("path"), text.get("size")
            if text["unseen"] != way or not isinstance(path, str) or type(size) is not int:
                continue
            if 0 <= size < _LARGEST_NBYTES:
                found[bounded_name(path)] = size
    return found
