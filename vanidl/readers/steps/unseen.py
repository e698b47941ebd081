"""Files that the program mapped into memory or loaded past every tracer, as warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vanidl.encoding.budget import bounded_name
from vanidl.formatting.units import nbytes, plural
from vanidl.model.warnings import WARNING, Notice
from vanidl.readers.steps.journal import Journal

_MOST_NAMED = 3
_MATTERS_NBYTES = 1 << 20
_LARGEST_NBYTES = 1 << 60


def notices(journals: Sequence[Journal]) -> Iterator[Notice]:
    """One for each way to read a file past the tracers."""
    if sizes := _sizes(journals, "mapped"):
        total = sum(sizes.values())
        yield Notice(
            "files_mapped",
            f"{_files(sizes)} mapped into memory, as np.memmap, mmap, Arrow and safetensors do. "
            "What was read of them are page faults, which no tracer sees: these bytes are in no "
            f"number here, and waiting for them looks like decoding ({_named(sizes)}).",
            WARNING if total >= _MATTERS_NBYTES else "info",
        )
    if sizes := _sizes(journals, "loaded"):
        yield Notice(
            "files_loaded",
            f"{_files(sizes)} read by np.load. Darshan before 3.5 and DFTracer do not see its "
            "reads, which are made inside the C library: where they are in no number here, waiting "
            f"for them looks like decoding ({_named(sizes)}).",
            "info",
        )


def _files(sizes: Mapping[str, int]) -> str:
    """`2 files of 8 MiB in all were`."""
    verb = "was" if len(sizes) == 1 else "were"
    return f"{plural(len(sizes), 'file')} of {nbytes(sum(sizes.values()))} in all {verb}"


def _named(sizes: Mapping[str, int]) -> str:
    """The largest, with their sizes."""
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:_MOST_NAMED]
    more = ", ..." if len(sizes) > _MOST_NAMED else ""
    return ", ".join(f"{path}: {nbytes(sizes[path])}" for path in largest) + more


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
