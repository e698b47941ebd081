"""Data sets as partial local shuffling sees them: the bytes of each sample, and what they mean.

A rank reads a sample from its source once, and keeps or exchanges its bytes from then on. What a
rank kept of an earlier run is used again only where the data set is the same: names, sizes and
dates of the files that it names, and what some of its samples are (`fingerprint_items`). The date
of the last change counts, too: an archive that is unpacked once more, or `cp -p`, gives files their
old dates back.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from hashlib import blake2b
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.coalesce import open_reads
from ..data.pool import ReadThreads
from ..data.readers import Arrays
from ..data.samples import SampleSet
from ..errors import InputError, UsageError
from ..loader.loader import Counts
from ..ranks.messages import Bytes
from .storage import (
    HEADER_NBYTES,
    UNVERSIONED,
    compute_file_version,
    content,
    new_message,
    read_file,
    sample_of,
)

THREADS = 8
"""Reads under way at once."""
AGAIN = 4
"""Samples that are read twice, to see whether the data set is random."""
WINDOW_NBYTES = 64 << 20
"""Of samples that are read together."""

Item = Any
"""What a data set returns for an id: of any type."""


class Source(Protocol):
    """All samples of a data set, by id, wherever they lie."""

    def __len__(self) -> int:
        """N."""

    def identity(self) -> str:
        """Says which samples these are, in one line: the same on every rank."""

    def fingerprint(self) -> str | None:
        """Differs if the data set is another one, or was recreated; None: not known."""

    def read(self, ids: Sequence[int], counts: Counts) -> Generator[Bytes, None, None]:
        """The messages of some samples, read again, in any order; loads and requests are counted.

        Raises:
            InputError: One of them cannot be read.
        """

    def decode(self, message: Bytes) -> Item:
        """The sample that a message holds; none of it lies in the message's memory."""

    def version(self, sample: int) -> int:
        """As in the messages from `read`; it changes when the sample is replaced."""


class ArraySource:
    """Samples in HDF5 files: the bytes of their arrays, one after the other."""

    def __init__(self, samples: SampleSet) -> None:
        self._samples = samples

    def __len__(self) -> int:
        """N."""
        return len(self._samples)

    def identity(self) -> str:
        """Workload, number, seed and size."""
        return describe_samples(self._samples)

    def fingerprint(self) -> str:
        """Where they lie, and what they are: `version` tells the rest, sample by sample."""
        return f"{self._samples.folder.resolve()}: {self._samples.fields}"

    def read(self, ids: Sequence[int], counts: Counts) -> Generator[Bytes, None, None]:
        """Messages in order of ids. Neighbouring rows are read together.

        Raises:
            InputError: A file, a dataset or its shape is not as described.
        """
        # A window bounds the memory: its messages are handed out before the next one is read.
        window = max(1, WINDOW_NBYTES // self._samples.sample_nbytes)
        reads = open_reads(self._samples, gap=0, threads=THREADS)
        nothing = np.empty(0, np.int64)
        try:
            with ReadThreads(THREADS) as pool:
                for some in _divide_windows(sorted(ids), window):
                    nbytes = self._samples.sample_nbytes
                    messages = {i: new_message(i, nbytes, self.version(i)) for i in some}
                    target = _Fields(self._samples, messages)
                    tasks = reads.tasks(np.array(some, np.int64), nothing, target)
                    for done in pool.map(lambda task: task(), tasks):
                        counts.add(nbytes=done.nbytes, requests=done.requests)
                    counts.add(loads=len(some))
                    yield from messages.values()
        finally:
            reads.close()

    def decode(self, message: Bytes) -> Arrays:
        """Copies of the arrays, and `sample`, the id."""
        views = _Fields(self._samples, {sample_of(message): message})
        names = [each.name for each in self._samples.fields]
        arrays = {name: views(name, sample_of(message)).copy() for name in names}
        return arrays | {"sample": np.asarray(sample_of(message), np.int64)}

    def version(self, sample: int) -> int:
        """Of the sample's file: one for all samples where they are rows of one."""
        return _read_version(self._samples.path(sample))


class _Fields:
    """The arrays of samples inside their messages, by name and id: views."""

    def __init__(self, samples: SampleSet, messages: dict[int, Bytes]) -> None:
        self._messages, self._of = messages, {each.name: each for each in samples.fields}
        ends = np.cumsum([each.nbytes for each in samples.fields]).tolist()
        self._end = dict(zip(self._of, ends, strict=True))

    def __call__(self, name: str, sample: int) -> NDArray[Any]:
        field, end = self._of[name], self._end[name]
        raw = content(self._messages[sample])[end - field.nbytes : end]
        return raw.view(field.dtype).reshape(field.shape)


class ImageFiles:
    """Image files: their bytes are the files', so that they travel compressed.

    Args:
        paths: Of the files, by id.
        labels: Class of each.
        name: What the files are, for `identity`.
        present: (sample, RGB picture, label) -> what a user gets.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        labels: Sequence[int],
        name: str,
        present: Callable[[int, Any, int], Any],
    ) -> None:
        self._paths, self._labels, self._name, self._present = paths, labels, name, present

    def __len__(self) -> int:
        """N."""
        return len(self._paths)

    def identity(self) -> str:
        """The name, and how many."""
        return f"{self._name}: {len(self)} images"

    def fingerprint(self) -> str:
        """Of the paths of all files: `version` tells the rest, sample by sample."""
        digest = blake2b(digest_size=16)
        for path in self._paths:
            digest.update(f"{path}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def read(self, ids: Sequence[int], counts: Counts) -> Generator[Bytes, None, None]:
        """Messages with the bytes of the files.

        Raises:
            InputError: A file cannot be read.
        """
        with ReadThreads(THREADS) as pool:
            for some in _divide_windows(ids, 4 * THREADS):
                for message in pool.map(lambda i: read_file(self._paths[i], i), some):
                    counts.add(loads=1, nbytes=message.nbytes - HEADER_NBYTES, requests=1)
                    yield message

    def decode(self, message: Bytes) -> Item:
        """What `present` makes of the picture.

        Raises:
            InputError: The bytes are no image.
        """
        from PIL import Image

        sample = sample_of(message)
        try:
            with Image.open(BytesIO(content(message).tobytes())) as file:
                picture = file.convert("RGB")
        except OSError as error:
            raise InputError(
                f"expected an image in {self._paths[sample]}, found: {error}; make it again"
            ) from error
        return self._present(sample, picture, self._labels[sample])

    def version(self, sample: int) -> int:
        """Of the image file."""
        return _read_version(self._paths[sample])


class Items:
    """Samples of any map-style data set: their bytes are a pickle of what it returns.

    Only ranks of the same job exchange them, and only they read what they stored.

    Args:
        dataset: It must return the same item for an id each time: that item is kept.
        fingerprint: Of it, where the user knows what tells it from others; None: as its files are.

    Raises:
        UsageError: It has a transform of its own.
    """

    def __init__(self, dataset: Item, fingerprint: str | None = None) -> None:
        self._dataset, self._fingerprint, self._unsure = dataset, fingerprint, AGAIN
        transform = _find_transform(dataset, 4)
        if transform is not None:
            raise UsageError(
                "expected a data set that returns its samples untransformed, found one with the "
                f"transform {type(transform).__name__}, whose result would be kept and exchanged "
                "from then on: pass the transform to PartialLocalDataset(transform=...) instead"
            )

    def __len__(self) -> int:
        """N."""
        return len(self._dataset)

    def identity(self) -> str:
        """The class, and how many."""
        return f"{type(self._dataset).__qualname__}: {len(self)} items"

    def fingerprint(self) -> str | None:
        """As given, else of the files that the data set names, and what some samples are."""
        if self._fingerprint is not None:
            return self._fingerprint
        try:
            return compute_fingerprint(self._dataset)
        except OSError as error:
            raise InputError(f"expected files of the data set, found: {error}") from error

    def read(self, ids: Sequence[int], counts: Counts) -> Generator[Bytes, None, None]:
        """Messages, one by one: the data set may not be thread-safe.

        Raises:
            UsageError: One of the first samples differs when it is read again.
        """
        for sample in ids:
            item = self._dataset[sample]
            # The first samples are read twice: a random data set would exchange what nobody sees
            # again.
            if self._unsure:
                if list(encode_item(item)) != list(encode_item(self._dataset[sample])):
                    raise UsageError(
                        f"expected sample {sample} to be the same each time, found two that "
                        "differ: the data set is random, and its first result would be kept and "
                        "exchanged for good; "
                        "pass what is random to PartialLocalDataset(transform=...)"
                    )
                self._unsure -= 1
            packed = pickle.dumps(item, protocol=5)
            message = new_message(sample, len(packed))
            content(message)[:] = np.frombuffer(packed, np.uint8)
            counts.add(loads=1, nbytes=len(packed), requests=1)
            yield message

    def decode(self, message: Bytes) -> Item:
        """What the data set returned."""
        return pickle.loads(content(message).tobytes())

    def version(self, _sample: int) -> int:
        """None: only the data set knows where its items come from."""
        return UNVERSIONED


def _read_version(path: Path) -> int:
    try:
        return compute_file_version(path, path.stat())
    except OSError as error:
        raise InputError(f"expected samples in {path}, found: {error.strerror}") from error


def _find_transform(dataset: Item, depth: int) -> Item | None:
    """The transform of samples that a data set, or one within it, has; that of labels is none."""
    transforms = getattr(dataset, "transforms", None)  # torchvision: both, of samples and labels
    transform = getattr(dataset, "transform", None)
    if transform is None:
        transform = getattr(transforms, "transform", transforms)
    if transform is not None or not depth:
        return transform
    within = [getattr(dataset, "dataset", None), *(getattr(dataset, "datasets", None) or ())]
    inner = (_find_transform(each, depth - 1) for each in within if each is not None)
    return next((each for each in inner if each is not None), None)


def describe_samples(samples: SampleSet) -> str:
    """Says which samples these are, in one line."""
    return f"{samples.workload}: {len(samples)} samples, seed {samples.seed}, size {samples.size}"


def open_source(samples: SampleSet) -> Source:
    """The source for a layout of samples; decodes to arrays by name, and `sample`, the id."""
    if samples.layout != "images":
        return ArraySource(samples)
    paths = [samples.path(i) for i in range(len(samples))]
    labels = [i % int(samples.details["classes"]) for i in range(len(samples))]
    return ImageFiles(paths, labels, describe_samples(samples), _pack_image)


def _pack_image(sample: int, picture: Item, label: int) -> Arrays:
    """As `vanidl_loaders.data.readers.ImageReader` reads it."""
    return {
        "image": np.array(picture),
        "label": np.asarray(label, np.int64),
        "sample": np.asarray(sample, np.int64),
    }


def _divide_windows(ids: Sequence[int], most: int) -> Iterator[list[int]]:
    left = iter(ids)
    while some := list(islice(left, most)):
        yield some


PROBED = 8
"""Samples that are looked into, spread over the data set."""
FILES_MOST = 1 << 20
"""Files whose dates are looked at; a data set of more is not recognised."""
_WITHIN = ("dataset", "datasets", "base", "_dataset", "_base")
"""Where data sets keep those that they are made of."""


def compute_fingerprint(dataset: Any) -> str | None:  # noqa: ANN401
    """Of a map-style data set: the files that it names, and what some of its samples are.

    None where it names no file, or too many to look at: then nobody can tell whether what it
    reads is as it was.

    Raises:
        OSError: A file that was found cannot be looked at.
    """
    digest, files = blake2b(digest_size=16), 0
    # Names, sizes and dates of the files that the data set names.
    for path in _walk_files(dataset, 4):
        status, files = path.stat(), files + 1
        if files > FILES_MOST:
            return None
        dates = f"{status.st_mtime_ns} {status.st_ctime_ns}"
        digest.update(f"{path} {status.st_size} {dates}\n".encode(errors="surrogateescape"))
    if not files:
        return None
    # What it makes of them may change without a file: some samples, evenly spread, are read as
    # well.
    samples = len(dataset)
    for sample in np.linspace(0, samples - 1, min(PROBED, samples)).astype(int).tolist():
        for part in encode_item(dataset[sample]):
            digest.update(part)
    return digest.hexdigest()


def encode_item(item: Any) -> Iterator[bytes]:  # noqa: ANN401
    """The bytes that tell an item from another one: the same in every process."""
    if isinstance(item, torch.Tensor):
        # With type and shape, as arrays of different shapes can have the same bytes.
        item = item.detach().cpu().contiguous()
        yield f"{item.dtype} {tuple(item.shape)}".encode()
        yield item.reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(item, np.ndarray) and not item.dtype.hasobject:
        yield f"{item.dtype.str} {item.shape}".encode()
        yield np.ascontiguousarray(item).tobytes()
    elif isinstance(item, Mapping):
        for key in item:
            yield repr(key).encode()
            yield from encode_item(item[key])
    elif isinstance(item, (list, tuple)):
        yield f"{len(item)}".encode()
        for each in item:
            yield from encode_item(each)
    elif hasattr(item, "tobytes") and hasattr(item, "size"):  # pictures, numbers of NumPy
        yield f"{type(item).__name__} {item.size}".encode()
        yield item.tobytes()
    else:
        yield pickle.dumps(item, protocol=5)


def _walk_files(dataset: Any, depth: int) -> Iterator[Path]:  # noqa: ANN401
    """Files that the attributes of a data set name, those of data sets within it included."""
    attributes = vars(dataset) if hasattr(dataset, "__dict__") else {}
    for name, value in attributes.items():
        # Data sets within others, as subsets and concatenations have them, to a depth.
        if name in _WITHIN and depth:
            for each in value if isinstance(value, (list, tuple)) else (value,):
                yield from _walk_files(each, depth - 1)
        else:
            yield from _walk_named(value)


def _walk_named(value: Any) -> Iterator[Path]:  # noqa: ANN401
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
        yield from _walk_named(str(value.filename))
    elif isinstance(value, (list, tuple)) or (
        isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "OU"
    ):
        # The first that names no file ends it: the rest are like it.
        for each in value:
            first = each[0] if isinstance(each, (list, tuple)) and each else each
            if not isinstance(first, (str, Path)):
                return
            yield from _walk_named(first)
    elif isinstance(getattr(value, "filename", None), (str, Path)):  # an HDF5 file
        yield from _walk_named(value.filename)
