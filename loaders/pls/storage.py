"""Where a rank keeps its samples: in memory, or as files in a folder on its node.

A sample is kept and sent as bytes. On the wire it is a message: 8 bytes of its id, 8 of the
version of what it was read from, 8 of a CRC-32 while it is under way, then the bytes. A folder
gets a file under another name first, which is renamed when it is whole, so that a rank that is
killed leaves no half sample under a sample's name. Behind the bytes such a file has a trailer:
the version, and the CRC-32C of bytes and version. What a former run left is used again only where
both are right.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
from isal.isal_zlib import crc32

from ..data.pread import read_into
from ..errors import InputError
from ..ranks.messages import Bytes

HEADER_NBYTES = 24  # id, version and checksum, 64 bits each
_TRAILER = struct.Struct("<qI")
UNVERSIONED = 0
"""Version of samples that nobody can look up again: equal to itself."""
SUFFIX, PART = ".sample", ".part"
IDENTITY, FINGERPRINT = "samples.identity", "samples.fingerprint"


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


def new_message(sample: int, nbytes: int, version: int = UNVERSIONED) -> Bytes:
    """A message with its header, for `nbytes` bytes that are still to be written."""
    message = np.empty(HEADER_NBYTES + nbytes, np.uint8)
    message[:HEADER_NBYTES].view(np.int64)[:] = sample, version, 0
    return message


def sample_of(message: Bytes) -> int:
    """The id in a message."""
    return int(message[:HEADER_NBYTES].view(np.int64)[0])


def read_version(message: Bytes) -> int:
    """The version in a message."""
    return int(message[:HEADER_NBYTES].view(np.int64)[1])


def seal(message: Bytes) -> None:
    """Notes the checksum of what is sent, for `broken`."""
    message[16:HEADER_NBYTES].view(np.int64)[0] = _compute_sent_crc(message)


def is_broken(message: Bytes) -> bool:
    """Whether it is another one than was sealed; the checksum is forgotten."""
    crc = int(message[16:HEADER_NBYTES].view(np.int64)[0])
    message[16:HEADER_NBYTES] = 0
    return crc != _compute_sent_crc(message)


def _compute_sent_crc(message: Bytes) -> int:
    """Of 200 KB 16 us: not the CRC-32C of kept files, which takes a copy."""
    return crc32(content(message), crc32(message[:16]))


def compute_file_version(path: Path, status: os.stat_result) -> int:
    """A file's version: another one where it was replaced, written to or renamed."""
    dates = f"{status.st_mtime_ns} {status.st_ctime_ns}"  # the latter nobody can set back
    named = f"{status.st_size} {dates} {path.name}".encode(errors="surrogateescape")
    return int.from_bytes(blake2b(named, digest_size=7).digest(), "little") + 1


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
            # Size and date of the file that is open, whatever has its name by now.
            status = os.fstat(file.fileno())
            message = new_message(sample, status.st_size, compute_file_version(path, status))
            read_into(file.fileno(), content(message).data, 0)
    except OSError as error:
        raise InputError(
            f"expected sample {sample} in {path}, found: {error}; start again"
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
        fingerprint: Of the data set as it is now: what was kept of another one is not used.
            None: nobody knows, so that nothing that was kept is.
        version: Of a sample, as its source has it now: what was kept of another is not used.

    Raises:
        InputError: The folder holds other samples.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        fingerprint: str | None,
        version: Callable[[int], int] | None = None,
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(f"*{PART}"):
            part.unlink()  # of a run that was killed

        # What the samples are is written down; other samples stop the run.
        written = folder / IDENTITY
        if written.exists():
            if written.read_text() != identity:
                raise InputError(
                    f"expected samples of {identity} in {folder}, found samples of "
                    f"{written.read_text()}: remove them or use another folder"
                )
        elif next(folder.glob(f"*{SUFFIX}"), None) is not None:
            raise InputError(f"expected {IDENTITY} in {folder}, found none: use another")
        else:
            _write(written, np.frombuffer(identity.encode(), np.uint8))

        # The same ones of another state of the data set are dropped.
        mark = folder / FINGERPRINT
        same = mark.exists() and mark.read_text() == fingerprint
        if not same:
            mark.unlink(missing_ok=True)
        for path in folder.glob(f"*{SUFFIX}"):
            if not same or not _is_current(path, version):
                path.unlink()
        if not same and fingerprint is not None:  # behind the last sample of another one
            text = np.frombuffer(fingerprint.encode(), np.uint8)
            _write(mark, text)

    def add(self, message: Bytes) -> None:
        """Writes the sample's file.

        Raises:
            InputError: It cannot be written.
        """
        # The version and a CRC behind the bytes tell later whether they can be used again.
        version = read_version(message)
        trailer = _TRAILER.pack(version, _compute_crc(content(message), version))
        try:
            _write(self._path(sample_of(message)), content(message), trailer)
        except OSError as error:
            raise InputError(
                f"expected room for {message.nbytes} bytes in {self._folder}, found: {error}; "
                "lower the fraction or use another folder"
            ) from error

    def message(self, sample: int) -> Bytes:
        """The file's bytes behind a header.

        Raises:
            InputError: There is no such file, or it is damaged.
        """
        return _read_kept(self._path(sample), sample)

    def discard(self, sample: int) -> None:
        """Removes the file, if it is here."""
        self._path(sample).unlink(missing_ok=True)

    def sizes(self) -> dict[int, int]:
        """Ids that are here, with their bytes."""
        return {
            int(path.stem): path.stat().st_size - _TRAILER.size
            for path in self._folder.glob(f"*{SUFFIX}")
        }

    def _path(self, sample: int) -> Path:
        return self._folder / f"{sample:010d}{SUFFIX}"


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
        # Counted behind the store: what it refuses is not held.
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


def _compute_crc(values: Bytes, version: int) -> int:
    crc = google_crc32c.value(values.tobytes())  # it takes bytes only
    return int(google_crc32c.extend(crc, version.to_bytes(8, "little", signed=True)))


def _read_kept(path: Path, sample: int) -> Bytes:
    """The message of a file of a folder.

    Raises:
        InputError: It cannot be read, or is damaged.
    """
    whole = read_file(path, sample)
    nbytes = len(content(whole)) - _TRAILER.size
    if nbytes >= 0:
        # The trailer is the file's last: what was cut off or changed does not match its CRC-32C.
        version, crc = _TRAILER.unpack(content(whole)[nbytes:].tobytes())
        message = whole[: HEADER_NBYTES + nbytes]
        if _compute_crc(content(message), version) == crc:
            message[:HEADER_NBYTES].view(np.int64)[1] = version
            return message
    raise InputError(
        f"expected sample {sample} as it was kept in {path}, found a damaged one: remove the "
        "file and start again"
    )


def _is_current(path: Path, version: Callable[[int], int] | None) -> bool:
    """True where a kept sample is whole, and its source was not replaced since."""
    sample = int(path.stem)
    try:
        message = _read_kept(path, sample)
    except InputError:
        return False
    return version is None or version(sample) == read_version(message)


def _write(path: Path, values: Bytes, trailer: bytes = b"") -> None:
    # Under another name until it is whole: a killed run leaves a part, which the next one removes.
    part = path.with_name(f"{path.name}{PART}")
    try:
        with part.open("wb", buffering=0) as file:
            for left in (values.data, memoryview(trailer)):
                while left:
                    left = left[file.write(left) :]
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
