"""Writing samples to disk: deterministic, in any size, and resumed after an interruption.

Rows: the HDF5 file is laid out first, contiguous and whole; then rows are written in place at
their byte offsets. So the file is the same whether it was written in one go or in ten, and a
killed run leaves a valid HDF5 file with rows of zeros. Files and images: written under another
name, then renamed; what is there is whole and is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from ..data.pread import written_whole
from ..data.readers import Arrays
from ..data.samples import DESCRIPTION, SampleSet, open_samples
from ..errors import InputError, UsageError
from .registry import find_workload

Progress = Callable[[int, int], None]
"""Told how many samples of how many are done."""

MARK_EVERY = 32  # rows: a killed run makes at most so many again
_MARK = "made"


def make(
    workload: str,
    folder: str | Path,
    *,
    samples: int,
    seed: int = 0,
    size: int | None = None,
    progress: Progress | None = None,
) -> SampleSet:
    """Writes the samples of a workload; what lies there already from the same call is kept.

    Args:
        workload: Name in `vanidl_loaders.workloads.WORKLOADS`.
        folder: Where to; made if absent.
        samples: How many, at least 1.
        seed: Same seed, size and number: the same bytes.
        size: Pixels or voxels a side; None: the paper's.
        progress: Called after each sample.

    Raises:
        UsageError: No such workload, no samples, or a size that it cannot make.
        InputError: The folder holds samples of another call.
    """
    if samples < 1:
        raise UsageError(f"expected at least 1 sample, found {samples}: ask for more")
    module = find_workload(workload)
    size = module.SIZE if size is None else size
    dataset = module.describe(Path(folder), samples=samples, seed=seed, size=size)
    dataset.folder.mkdir(parents=True, exist_ok=True)
    # What lies there already decides whether this goes on with it, or refuses.
    # Writes the description; or compares it with the one that is there.
    if not (dataset.folder / DESCRIPTION).exists():
        dataset.save()
    elif open_samples(dataset.folder) != dataset:
        raise InputError(
            f"expected an empty folder or the same samples in {dataset.folder}, found samples of "
            "another seed, size or number: choose another folder"
        )
    write = {"rows": _write_rows, "files": _write_files, "images": _write_files}[dataset.layout]
    write(dataset, lambda sample: module.sample(dataset, sample), progress or _show_nothing)
    return dataset


def _show_nothing(done: int, total: int) -> None:
    """Shows nothing."""


def _write_rows(made: SampleSet, sample: Callable[[int], Arrays], progress: Progress) -> None:
    path, mark = made.path(0), made.folder / _MARK
    # Where an earlier run stopped; its file is laid out already.
    done = int(mark.read_text()) if mark.exists() and path.exists() else 0
    if not done:
        _lay_out(path, [(f.name, (len(made), *f.shape), f.dtype) for f in made.fields])
    offsets = _find_offsets(path)
    with path.open("r+b") as file:
        for i in range(done, len(made)):
            arrays = sample(i)
            for field in made.fields:
                start = offsets[field.name] + i * field.nbytes
                content = np.ascontiguousarray(arrays[field.name], dtype=field.dtype)
                os.pwrite(file.fileno(), content.data, start)
            # The mark follows the data to the disk: it never claims a row that is not there.
            if (i + 1) % MARK_EVERY == 0 or i + 1 == len(made):
                os.fsync(file.fileno())
                with written_whole(mark) as part:
                    part.write_bytes(str(i + 1).encode())
            progress(i + 1, len(made))


def _lay_out(path: Path, datasets: Sequence[tuple[str, tuple[int, ...], str]]) -> None:
    """An HDF5 file with contiguous datasets whose space is allocated, all zero."""
    with written_whole(path) as part, h5py.File(part, "w") as file:
        for name, shape, dtype in datasets:
            # Its place is fixed at once, so that it can be written to without HDF5.
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            creation.set_layout(h5py.h5d.CONTIGUOUS)
            file.create_dataset(name, shape, dtype, dcpl=creation, track_times=False)


def _find_offsets(path: Path) -> dict[str, int]:
    """Byte offset of each dataset's first element."""
    offsets: dict[str, int] = {}

    def note(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            offsets[name] = item.id.get_offset()

    with h5py.File(path, "r") as file:
        file.visititems(note)
    return offsets


def _write_files(made: SampleSet, sample: Callable[[int], Arrays], progress: Progress) -> None:
    write = _write_image if made.layout == "images" else _write_file
    for i in range(len(made)):
        path = made.path(i)
        # A file that is there is whole: it was renamed last.
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as part:
                write(part, made, sample(i))
        progress(i + 1, len(made))


def _write_file(path: Path, made: SampleSet, arrays: Arrays) -> None:
    with h5py.File(path, "w") as file:
        for field in made.fields:
            file.create_dataset(field.name, data=arrays[field.name], track_times=False)


def _write_image(path: Path, made: SampleSet, arrays: Arrays) -> None:
    from PIL import Image

    quality = int(made.details["quality"])
    Image.fromarray(arrays["image"]).save(path, format="JPEG", quality=quality)


# Smooth random fields: white noise through a Gaussian filter.


def make_smooth_noise(
    random: np.random.Generator, shape: tuple[int, ...], scale: float | tuple[float, ...]
) -> NDArray[np.float64]:
    """A periodic Gaussian field of mean 0 and variance 1 (over its points).

    Args:
        random: Where the white noise comes from.
        shape: Of the field.
        scale: Correlation length in points, one for all axes or one each; 0 leaves an axis white.
    """
    scales = scale if isinstance(scale, tuple) else (scale,) * len(shape)
    spectrum = np.fft.rfftn(random.standard_normal(shape))
    for axis, (points, length) in enumerate(zip(shape, scales, strict=True)):
        last = axis == len(shape) - 1
        frequency = np.fft.rfftfreq(points) if last else np.fft.fftfreq(points)
        # White noise through a Gaussian filter: the Fourier transform of one is another.
        gain = np.exp(-2 * (np.pi * length * frequency) ** 2)
        spectrum *= gain.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    field: NDArray[np.float64] = np.fft.irfftn(spectrum, shape, axes=range(len(shape)))
    field -= field.mean()
    deviation = field.std()
    return field / deviation if deviation else field
