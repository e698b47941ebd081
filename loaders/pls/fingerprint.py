"""What tells a data set from another one of as many samples, and from itself as it was before.

Kept samples are used again only where this is the same: names, sizes and dates of the files that
a data set names, and what some of its samples are. Of the dates that of the last change counts,
too: an archive that is unpacked once more, or `cp -p`, gives files their old dates back.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch

PROBED = 8
"""Samples that are looked into, spread over the data set."""
FILES_MOST = 1 << 20
"""Files whose dates are looked at; a data set of more is not recognised."""
_WITHIN = ("dataset", "datasets", "base", "_dataset", "_base")
"""Where data sets keep those that they are made of."""


def fingerprint_items(dataset: Any) -> str | None:  # noqa: ANN401
    """Of a map-style data set: the files that it names, and what some of its samples are.

    None where it names no file, or too many to look at: then nobody can tell whether what it
    reads is as it was.

    Raises:
        OSError: A file that was found cannot be looked at.
    """
    told, files = blake2b(digest_size=16), 0
    for path in _files(dataset, 4):
        status, files = path.stat(), files + 1
        if files > FILES_MOST:
            return None
        dates = f"{status.st_mtime_ns} {status.st_ctime_ns}"
        told.update(f"{path} {status.st_size} {dates}\n".encode(errors="surrogateescape"))
    if not files:
        return None
    samples = len(dataset)
    for sample in np.linspace(0, samples - 1, min(PROBED, samples)).astype(int).tolist():
        for part in contents(dataset[sample]):
            told.update(part)
    return told.hexdigest()


def contents(item: Any) -> Iterator[bytes]:  # noqa: ANN401
    """The bytes that tell an item from another one: the same in every process."""
    if isinstance(item, torch.Tensor):
        item = item.detach().cpu().contiguous()
        yield f"{item.dtype} {tuple(item.shape)}".encode()
        yield item.reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(item, np.ndarray) and not item.dtype.hasobject:
        yield f"{item.dtype.str} {item.shape}".encode()
        yield np.ascontiguousarray(item).tobytes()
    elif isinstance(item, Mapping):
        for key in item:
            yield repr(key).encode()
            yield from contents(item[key])
    elif isinstance(item, (list, tuple)):
        yield f"{len(item)}".encode()
        for each in item:
            yield from contents(each)
    elif hasattr(item, "tobytes") and hasattr(item, "size"):  # pictures, numbers of NumPy
        yield f"{type(item).__name__} {item.size}".encode()
        yield item.tobytes()
    else:
        yield pickle.dumps(item, protocol=5)


def _files(dataset: Any, depth: int) -> Iterator[Path]:  # noqa: ANN401
    """Files that the attributes of a data set name, those of data sets within it included."""
    attributes = vars(dataset) if hasattr(dataset, "__dict__") else {}
    for name, value in attributes.items():
        if name in _WITHIN and depth:
            for each in value if isinstance(value, (list, tuple)) else (value,):
                yield from _files(each, depth - 1)
        else:
            yield from _named(value)


def _named(value: Any) -> Iterator[Path]:  # noqa: ANN401
    """Files that a value names: a path, a folder, a list of paths or of tuples that begin so."""
    if isinstance(value, (str, Path)):
        if not value or len(str(value)) > 4096:
            return
        path = Path(value)
        try:
            is_file, is_folder = path.is_file(), path.is_dir()
        except (OSError, ValueError):  # a text that no file can be called
            return
        if is_file:
            yield path
        elif is_folder:
            for folder, folders, names in os.walk(path):
                folders.sort()
                yield from (Path(folder, each) for each in sorted(names))
    elif isinstance(value, np.memmap):
        yield from _named(str(value.filename))
    elif isinstance(value, (list, tuple)) or (
        isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "OU"
    ):
        for each in value:
            first = each[0] if isinstance(each, (list, tuple)) and each else each
            if not isinstance(first, (str, Path)):
                return
            yield from _named(first)
    elif isinstance(getattr(value, "filename", None), (str, Path)):  # an HDF5 file
        yield from _named(value.filename)
