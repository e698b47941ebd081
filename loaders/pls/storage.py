"""Where a rank keeps its samples: in memory, or as files in a folder on its node.

A sample is kept and sent as bytes. On the wire it is a message: 8 bytes of its id, then the
bytes. A folder gets a file under another name first, which is renamed when it is whole, so that
a rank that is killed leaves no half sample under a sample's name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..data.pread import read_into
from ..errors import InputError
from ..ranks.messages import Bytes

HEADER_NBYTES = 8
SUFFIX, PART = ".sample", ".part"
IDENTITY = "samples.identity"


class Store(Protocol):
    """Samples by id, as messages. One thread may add while others read."""

    def add(self, message: Bytes) -> None:
        """Keeps a sample. The message belongs to the store from now on.

        Raises:
            InputError: There is no room for it.
        """

    def message(self, sample: int) -> Bytes:
        """The message of a sample.

        Raises:
            InputError: It is not here.
        """

    def discard(self, sample: int) -> None:
        """Forgets a sample, if it is here."""

    def sizes(self) -> dict[int, int]:
        """Ids that are here, with their bytes (headers not counted)."""


def new_message(sample: int, nbytes: int) -> Bytes:
    """A message with its header, for `nbytes` bytes that are still to be written."""
    message = np.empty(HEADER_NBYTES + nbytes, np.uint8)
    message[:HEADER_NBYTES].view(np.int64)[0] = sample
    return message


def sample_of(message: Bytes) -> int:
    """The id in a message."""
    return int(message[:HEADER_NBYTES].view(np.int64)[0])


def content(message: Bytes) -> Bytes:
    """The sample's bytes in a message: a view."""
    return message[HEADER_NBYTES:]


def read_file(path: Path, sample: int) -> Bytes:
    """A message with the bytes of a file.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with path.open("rb", buffering=0) as file:
            message = new_message(sample, os.fstat(file.fileno()).st_size)
            read_into(file.fileno(), content(message).data, 0)
    except OSError as error:
        raise InputError(
            f"expected sample {sample} in {path}, found: {error}; start anew"
        ) from error
    return message


class MemoryStore:
    """Samples in memory. A message is sent from where it lies: nothing is copied."""

    def __init__(self) -> None:
        self._messages: dict[int, Bytes] = {}

    def add(self, message: Bytes) -> None:
        """Keeps the array itself, which nobody may write to any more."""
        self._messages[sample_of(message)] = message

    def message(self, sample: int) -> Bytes:
        """The array that was added.

        Raises:
            InputError: It is not here.
        """
        try:
            return self._messages[sample]
        except KeyError as error:
            raise InputError(
                f"expected sample {sample} in memory, found none: it came after this DataLoader "
                "worker was started; use persistent_workers=False, or a folder"
            ) from error

    def discard(self, sample: int) -> None:
        """Forgets a sample, if it is here."""
        self._messages.pop(sample, None)

    def sizes(self) -> dict[int, int]:
        """Ids that are here, with their bytes."""
        return {i: message.nbytes - HEADER_NBYTES for i, message in self._messages.items()}


class FolderStore:
    """Samples in files of a folder that no other rank uses; made if absent.

    What a former run of the same samples left there whole is used again.

    Args:
        folder: Where to.
        identity: What the samples are: files of other samples are not taken for these.

    Raises:
        InputError: The folder holds other samples.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(f"*{PART}"):
            part.unlink()  # of a run that was killed
        self._claim(identity)

    def add(self, message: Bytes) -> None:
        """Writes the sample's file.

        Raises:
            InputError: It cannot be written.
        """
        try:
            _write(self._path(sample_of(message)), content(message))
        except OSError as error:
            raise InputError(
                f"expected room for {message.nbytes} bytes in {self._folder}, found: {error}; "
                "lower the fraction or use another folder"
            ) from error

    def message(self, sample: int) -> Bytes:
        """The file's bytes behind a header.

        Raises:
            InputError: There is no such file.
        """
        return read_file(self._path(sample), sample)

    def discard(self, sample: int) -> None:
        """Removes the file, if it is here."""
        self._path(sample).unlink(missing_ok=True)

    def sizes(self) -> dict[int, int]:
        """Ids that are here, with their bytes."""
        return {int(p.stem): p.stat().st_size for p in self._folder.glob(f"*{SUFFIX}")}

    def _path(self, sample: int) -> Path:
        return self._folder / f"{sample:010d}{SUFFIX}"

    def _claim(self, identity: str) -> None:
        """Writes down what the samples are, or compares it with what is written."""
        path = self._folder / IDENTITY
        if not path.exists():
            if next(self._folder.glob(f"*{SUFFIX}"), None) is None:
                _write(path, np.frombuffer(identity.encode(), np.uint8))
                return
            raise InputError(f"expected {IDENTITY} in {self._folder}, found none: use another")
        if path.read_text() != identity:
            raise InputError(
                f"expected samples of {identity} in {self._folder}, found samples of "
                f"{path.read_text()}: remove them or use another folder"
            )


class Measured:
    """A store, and the most that it ever held.

    Attributes:
        peak_samples: Most samples at once.
        peak_nbytes: Most bytes of samples at once.
    """

    def __init__(self, inner: Store) -> None:
        self._inner, self._lock = inner, threading.Lock()
        self._held = inner.sizes()
        self._nbytes = sum(self._held.values())
        self.peak_samples, self.peak_nbytes = len(self._held), self._nbytes

    def __contains__(self, sample: int) -> bool:
        """True for a sample that is here, whole."""
        return sample in self._held

    def __iter__(self) -> Iterator[int]:
        """Ids that are here."""
        with self._lock:
            return iter(list(self._held))

    def __len__(self) -> int:
        """Samples that are here."""
        return len(self._held)

    def nbytes(self, sample: int) -> int:
        """Bytes of a sample that is here."""
        return self._held[sample]

    def add(self, message: Bytes) -> None:
        """Keeps a sample; see `Store.add`."""
        self._inner.add(message)
        sample, size = sample_of(message), message.nbytes - HEADER_NBYTES
        with self._lock:
            self._nbytes += size - self._held.get(sample, 0)
            self._held[sample] = size
            self.peak_samples = max(self.peak_samples, len(self._held))
            self.peak_nbytes = max(self.peak_nbytes, self._nbytes)

    def message(self, sample: int) -> Bytes:
        """The message of a sample; see `Store.message`."""
        return self._inner.message(sample)

    def discard(self, sample: int) -> None:
        """Forgets a sample, if it is here."""
        with self._lock:
            self._nbytes -= self._held.pop(sample, 0)
        self._inner.discard(sample)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def _write(path: Path, values: Bytes) -> None:
    part = path.with_name(f"{path.name}{PART}")
    try:
        with part.open("wb", buffering=0) as file:
            left = values.data
            while left:
                left = left[file.write(left) :]
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
