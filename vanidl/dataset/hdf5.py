"""HDF5 files through h5py: datasets, shapes, chunks, filters, and the chunks' stored sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from vanidl.errors import UsageError
from vanidl.model.run_facts import ArrayFacts, Block, FileFacts

MOST_DATASETS = 1000
MOST_CHUNKS = 20_000
_MOST_SIZES = 1000


def _chunk_index_node(dimensions: int) -> int:
    """Bytes of a version 1 B-tree node that indexes the chunks of an n-dimensional dataset.

    HDF5 file format specification III.A.1: 24 bytes of header, 2K children of 8 bytes and
    2K + 1 keys of 8 + 8 (n + 1) bytes, with the default K = 32.
    """
    return 24 + 64 * 8 + 65 * (8 + 8 * (dimensions + 1))


INDEX_NODES = {
    544: "an HDF5 group index node (B-tree)",
    328: "an HDF5 symbol table node",
    **{
        _chunk_index_node(n): f"an HDF5 chunk index node (B-tree) of a {n}-dimensional dataset"
        for n in range(1, 7)
    },
}
"""Sizes of HDF5's own metadata with 8-byte offsets and default settings -> what they are.

Group nodes (K = 16) hold 32 children and 33 keys of 8 bytes; a symbol table node 8 entries of
40 bytes.
"""


def read_facts(path: Path) -> FileFacts:
    """The file's datasets; samples = the first dimension that most stored bytes share.

    Raises:
        UsageError: h5py is not installed.
        OSError: the file is no HDF5 file.
    """
    try:
        import h5py
    except ImportError as error:
        raise UsageError(
            f"--inspect: {path.name} needs h5py, which is not installed: "
            "pip install 'vanidl-io[formats]', or leave --inspect out."
        ) from error
    with h5py.File(path, "r", locking=False) as file:
        found: list[Any] = []
        file.visititems(lambda _, item: _collect(item, found, h5py.Dataset))
        arrays = tuple(_read_array(dataset) for dataset in found)
        sizes = [_count_chunk_sizes(dataset) for dataset in found]

    # Samples lie along the first axis: the length that most stored bytes share.
    weight: Counter[int] = Counter()
    for array in arrays:
        if array.shape and array.shape[0] > 0:
            weight[array.shape[0]] += array.stored_bytes or 0
    samples = weight.most_common(1)[0][0] if weight.total() else None

    # The sizes of stored chunks that each dataset has most of.
    blocks: list[Block] = []
    for array, counts in zip(arrays, sizes, strict=True):
        what = f"stored chunk of {array.name}"
        if array.filters:
            what += f" ({', '.join(array.filters)})"
        blocks += [Block(n, count, what) for n, count in counts.most_common(_MOST_SIZES)]
    size = path.stat().st_size
    stored = sum(a.stored_bytes or 0 for a in arrays if a.shape and a.shape[0] == samples)
    mean = stored / samples if samples and stored else None
    complete = len(found) < MOST_DATASETS
    return FileFacts(str(path), "HDF5", size, samples, mean, arrays, tuple(blocks), complete)


def _collect(item: Any, found: list[Any], dataset_type: type) -> bool | None:  # noqa: ANN401
    """Gathers datasets; True stops the walk."""
    if isinstance(item, dataset_type):
        found.append(item)
    return True if len(found) >= MOST_DATASETS else None


def _read_array(dataset: Any) -> ArrayFacts:  # noqa: ANN401
    creation = dataset.id.get_create_plist()
    names = [creation.get_filter(i)[3].decode() for i in range(creation.get_nfilters())]
    shape = tuple(dataset.shape or ())
    stored = int(dataset.id.get_storage_size())
    return ArrayFacts(dataset.name, shape, str(dataset.dtype), dataset.chunks, tuple(names), stored)


def _count_chunk_sizes(dataset: Any) -> Counter[int]:  # noqa: ANN401
    """Stored size of a chunk -> how many; the first MOST_CHUNKS chunks."""
    if dataset.chunks is None:
        return Counter()
    number = min(dataset.id.get_num_chunks(), MOST_CHUNKS)
    return Counter(int(dataset.id.get_chunk_info(i).size) for i in range(number))
