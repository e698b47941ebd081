"""One array, stored in every layout that the readers know."""

from __future__ import annotations

import numpy as np

DTYPES = ("<i2", ">i2", "<u1", "<u2", "<i4", "<f2", "<f4", ">f4", "<f8", ">f8", "<i8", "<c8", "?")
FILTERED = {
    "gzip": {"compression": "gzip"},
    "shuffled gzip": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "checksummed": {"fletcher32": True},
}
LAYOUTS = (
    "contiguous",
    "user block",
    "compact",
    "external",
    "chunked",
    *FILTERED,
    "chunks left out",
    "npy",
    "fortran npy",
    "raw",
)
CHUNKS = {1: (5,), 2: (3, 5), 3: (2, 3, 4), 4: (2, 3, 4, 3)}
FILL = 7


def content(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "fc":
        return random.standard_normal(shape).astype(kind)
    return random.integers(0, 2 if kind.kind == "b" else 120, shape).astype(kind)


def store(folder, layout, array):
    """(path or RawFile to give a SlabDataset, the array that is to come back)."""
    from vanidl_loaders.spatial import RawFile

    if layout == "raw":
        path = folder / "x.bin"
        path.write_bytes(b"header" + array.tobytes() + b"trailer")
        return RawFile(path, array.shape, array.dtype.str, 6), array
    if layout.endswith("npy"):
        path = folder / "x.npy"
        np.save(path, np.asfortranarray(array) if layout == "fortran npy" else array)
        return path, array
    return _store_hdf5(folder / "x.h5", layout, array)


def _store_hdf5(path, layout, array):
    import h5py

    chunks = {"chunks": CHUNKS[array.ndim]}
    with h5py.File(path, "w", userblock_size=512 if layout == "user block" else 0) as file:
        file["before"] = np.zeros(9)
        if layout in ("contiguous", "user block"):
            file.create_dataset("x", data=array)
        elif layout == "compact":
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            creation.set_layout(h5py.h5d.COMPACT)
            file.create_dataset("x", data=array, dcpl=creation)
        elif layout == "external":
            where = [(str(path.with_suffix(".external")), 0, array.nbytes)]
            file.create_dataset("x", array.shape, array.dtype, external=where)[...] = array
        elif layout == "chunks left out":
            array = array.copy()
            array[tuple(slice(n // 2, None) for n in array.shape)] = array.dtype.type(FILL)
            written = file.create_dataset(
                "x", array.shape, array.dtype, compression="gzip", fillvalue=FILL, **chunks
            )
            first = tuple(slice(0, n) for n in CHUNKS[array.ndim])
            array[...] = np.where(_inside(array.shape, first), array, array.dtype.type(FILL))
            written[first] = array[first]
        else:
            file.create_dataset("x", data=array, **chunks, **FILTERED.get(layout, {}))
    return path, array


def _inside(shape, window):
    mask = np.zeros(shape, bool)
    mask[window] = True
    return mask
