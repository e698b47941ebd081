"""What an opened data file says about itself."""

from __future__ import annotations

from vanidl.dataclass import dataclass
from vanidl.formatting.from_logs import clean_text, clean_texts, set_clean


@dataclass(frozen=True, slots=True)
class Block:
    """Pieces of one exact size that the file is made of, and what they are."""

    nbytes: int
    count: int
    what: str  # "stored chunk of dataset /x"

    def __post_init__(self) -> None:
        """Its name as it may be shown."""
        set_clean(self, what=clean_text(self.what))


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """One array, column or HDF5 dataset of a file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...] | None = None  # None: stored in one piece
    filters: tuple[str, ...] = ()
    stored_bytes: int | None = None

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        name, dtype = clean_text(self.name), clean_text(self.dtype)
        set_clean(self, name=name, dtype=dtype, filters=clean_texts(self.filters))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What an opened data file says about itself. None: the format does not say."""

    path: str
    format: str  # HDF5, TFRecord, NPY, NPZ, Parquet
    size: int  # bytes on disk
    samples: int | None  # None also where reading stopped at a bound
    sample_bytes: float | None  # mean stored bytes of one sample
    arrays: tuple[ArrayFacts, ...] = ()
    blocks: tuple[Block, ...] = ()
    complete: bool = True  # False: only the first part was looked at
