"""Samples of every layout in HDF5."""

from __future__ import annotations

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


from vanidl_loaders.data.samples import Field, SampleSet

N, SIDE = 101, 6
LAYOUTS = ("contiguous", "chunked", "gzip", "big-endian", "compact")


def created(layout):
    """Options of create_dataset: chunks that rows do not divide by, across columns as well."""
    if layout == "chunked":
        return {"chunks": (7, 4, 6)}
    if layout == "gzip":
        return {"chunks": (8, 6, 6), "compression": "gzip", "shuffle": True}
    return {}


def written(folder, layout, samples=N):
    kinds = (">f4", ">i2") if layout == "big-endian" else ("<f4", "<i2")
    fields = (Field("x", (SIDE, SIDE), "<f4"), Field("deep/y", (3,), "<i2"))
    made = SampleSet(folder, "rows", samples, fields, "rows")
    random = np.random.default_rng(5)
    with h5py.File(made.path(0), "w") as file:
        x = random.standard_normal((samples, SIDE, SIDE)).astype(kinds[0])
        file.create_dataset("x", data=x, **created(layout))
        y = random.integers(-9, 9, (samples, 3)).astype(kinds[1])
        if layout == "compact":
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            creation.set_layout(h5py.h5d.COMPACT)
            file.create_dataset("deep/y", data=y, dcpl=creation)
        else:
            file.create_dataset("deep/y", data=y)
    made.save()
    return made


def direct(samples):
    with h5py.File(samples.path(0)) as file:
        return {each.name: file[each.name][()] for each in samples.fields}
