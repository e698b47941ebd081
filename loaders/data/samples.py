"""What a folder of samples holds, and where each sample lies: no file is opened here.

`SampleSet` is written as `samples.json` beside the data by `python -m vanidl_loaders make`, and is
all that a loader needs to know: how many samples, which arrays each has, and the place of each
array (file, HDF5 dataset, row). Three layouts:

    rows    one HDF5 file; sample i is row i of every dataset        (ptycho)
    files   one HDF5 file per sample; the dataset is the sample      (cosmoflow, deepcam)
    images  one image file per sample in a folder of its class       (images)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .pread import written_whole

DESCRIPTION = "samples.json"
SCHEMA = "loaders/1"
LAYOUTS = ("rows", "files", "images")


@dataclass(frozen=True)
class Field:
    """One array of every sample: its name in the file, shape and NumPy type (`<f4`, `<i2`)."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of the array of one sample, uncompressed."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Place:
    """Where one array of one sample lies: row `row` of `dataset`, or all of it (`row` None)."""

    path: Path
    dataset: str
    row: int | None


@dataclass(frozen=True)
class SampleSet:
    """Samples in a folder.

    Attributes:
        folder: Where they lie.
        workload: Name in `vanidl_loaders.workloads.WORKLOADS`.
        samples: How many; ids are 0 .. samples - 1.
        fields: Arrays of each sample.
        layout: `rows`, `files` or `images`.
        seed: What they were made from.
        size: The workload's scale (pixels or voxels a side).
        details: What else the workload wrote down (for images: classes).
    """

    folder: Path
    workload: str
    samples: int
    fields: tuple[Field, ...]
    layout: str
    seed: int = 0
    size: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of samples."""
        return self.samples

    @property
    def sample_nbytes(self) -> int:
        """Bytes of one sample as arrays (an image file is smaller)."""
        return sum(each.nbytes for each in self.fields)

    def path(self, sample: int) -> Path:
        """The file that holds a sample.

        Raises:
            IndexError: No such sample.
        """
        if not 0 <= sample < self.samples:
            raise IndexError(f"expected a sample in 0..{self.samples - 1}, found {sample}")
        # One file of all, a thousand files a folder, or a folder for each class.
        if self.layout == "rows":
            return self.folder / f"{self.workload}.h5"
        if self.layout == "files":
            return self.folder / f"{sample // 1000:04d}" / f"{sample:07d}.h5"
        label = sample % int(self.details["classes"])
        return self.folder / f"class{label:04d}" / f"{sample:07d}.jpg"

    def place(self, sample: int, each: Field) -> Place:
        """File, dataset and row of one array of one sample. For layouts in HDF5."""
        return Place(self.path(sample), each.name, sample if self.layout == "rows" else None)

    def save(self) -> None:
        """Writes the description beside the data."""
        content = asdict(self) | {"schema": SCHEMA}
        del content["folder"]
        with written_whole(self.folder / DESCRIPTION) as part:
            part.write_text(json.dumps(content, indent=1) + "\n")


def open_samples(folder: str | Path) -> SampleSet:
    """What the folder holds, from its description.

    Raises:
        InputError: No description there, or one of another kind.
    """
    path = Path(folder) / DESCRIPTION
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise InputError(
            f"expected {DESCRIPTION} in {folder}, found none: make the data with "
            f"python -m vanidl_loaders make --workload NAME --data {folder}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected JSON in {path}, found {error}: make the data again") from error
    if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
        raise InputError(f"expected schema {SCHEMA} in {path}, found another: make the data again")
    try:
        return _described(Path(folder), content)
    except (KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__} {error}"
        raise InputError(
            f"expected a description of samples in {path}, found {why}: make the data again"
        ) from error


def _described(folder: Path, content: dict[str, Any]) -> SampleSet:
    """Samples as described; what is missing or of another type raises as it comes."""
    fields = tuple(Field(f["name"], tuple(f["shape"]), f["dtype"]) for f in content.pop("fields"))
    samples = SampleSet(folder=folder, fields=fields, **content)
    counts = [samples.samples, samples.seed, *(n for each in fields for n in each.shape)]
    if samples.layout == "images":
        counts.append(samples.details["classes"] - 1)
    if samples.layout not in LAYOUTS or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise ValueError(f"layout {samples.layout} and counts {counts[:8]}")
    assert samples.sample_nbytes >= 0  # every type has a size, or raises
    return samples
