"""The samples of a batch in one host buffer, so that one copy takes them to the device.

Containers are read straight into the buffer (the read itself writes the bytes, once) and stay
where they lie: what a kernel needs to know is an index per array, (samples, columns) int64, each
column the offset of a section in bytes, or a number. What is not in the buffer yet (indices, what
the host derives) is put behind the rest. Everything begins at a multiple of 64 bytes.

Buffers are used in turn, from a `Ring`: read into, copied to the device, read into again. A buffer
is handed out only when the copy out of it has ended. Where nothing is copied away (the CPU
decodes), it is given back when the batch has been decoded.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from ..data.pread import read_into
from ..errors import InputError
from .container import ALIGNMENT, describe_damage

T = TypeVar("T")

Column = NDArray[Any] | int
"""A section, of which the index holds the offset, or a number that the index holds."""
SPARE = 16
"""A buffer that has to grow gets 1/16 more than asked for: containers differ little in size."""


class HostBuffer:
    """Bytes on the host, page-locked where asked for, used again for batch after batch."""

    def __init__(self, *, pin_memory: bool = False) -> None:
        self._pin_memory = pin_memory
        self._memory = self._allocate(0)
        self._former = list[torch.Tensor]()
        self.end = 0
        """Bytes in use."""

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """All of the memory; valid until `make_room` or `reserve` is called."""
        held: NDArray[np.uint8] = self._memory.numpy()
        return held

    @property
    def used(self) -> torch.Tensor:
        """(end,) uint8, the bytes in use."""
        return self._memory[: self.end]

    def clear(self) -> None:
        """Nothing is in use; the memory is kept."""
        self.end = 0
        self._former.clear()

    def make_room(self, sizes: Sequence[int]) -> None:
        """Memory for so many bytes each. What was in use stays, maybe elsewhere."""
        needed = self.end + sum(map(_round_up, sizes))
        if needed > len(self._memory):
            grown = self._allocate(needed + needed // SPARE)
            grown[: self.end] = self._memory[: self.end]
            # Sections in use are views of the former memory, and are found by it.
            self._former.append(self._memory)
            self._memory = grown

    def reserve(self, nbytes: int) -> int:
        """Bytes that are now in use; where they begin."""
        self.make_room([nbytes])
        begin, self.end = self.end, self.end + _round_up(nbytes)
        return begin

    def offset_of(self, section: NDArray[Any]) -> int | None:
        """Where an array lies in the bytes in use, or lay before they moved; None: elsewhere."""
        address = section.__array_interface__["data"][0]
        # By its address, as sections are views of the buffer.
        for memory in (self._memory, *self._former):
            at = address - memory.data_ptr()
            inside = at >= 0 and at + section.nbytes <= min(self.end, len(memory))
            if inside and section.flags.c_contiguous:
                return at
        return None

    def _allocate(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=self._pin_memory)


@dataclass(frozen=True)
class Staged:
    """One array of a batch, on the host or the device.

    Attributes:
        buffer: (nbytes,) uint8, nbytes a multiple of 64: the whole batch.
        index_at: Offset of the array's index in the buffer.
        samples: How many.
        columns: Of the index.
        most: Largest number of each column over the samples (0 for sections): sizes of grids.
    """

    buffer: torch.Tensor
    index_at: int
    samples: int
    columns: int
    most: tuple[int, ...]

    @property
    def index(self) -> torch.Tensor:
        """(samples, columns) int64."""
        end = self.index_at + 8 * self.samples * self.columns
        return self.buffer[self.index_at : end].view(torch.int64).view(-1, self.columns)

    def within(self, buffer: torch.Tensor) -> Staged:
        """The same in another buffer of the same bytes."""
        return replace(self, buffer=buffer)

    def to(self, device: torch.device) -> Staged:
        """The same on a device. From page-locked memory the copy is only begun."""
        return self.within(self.buffer.to(device, non_blocking=True))


def stage_rows(buffer: HostBuffer, rows: Sequence[Sequence[Column]]) -> Staged:
    """The rows of columns of one array in the buffer; sections that lie there are not moved."""
    index = np.zeros((len(rows), len(rows[0])), np.int64)
    outside = []
    # What was read into the buffer stays there; only its place is noted.
    for place in np.ndindex(index.shape):
        column = rows[place[0]][place[1]]
        at = column if isinstance(column, int) else buffer.offset_of(column)
        if at is not None:
            index[place] = at
        elif not isinstance(column, int):
            outside.append((place, column))
    # The rest is appended, in one piece of room: a buffer that grows would be copied.
    buffer.make_room([*(section.nbytes for _, section in outside), index.nbytes])
    for place, section in outside:
        index[place] = _append(buffer, section)
    index_at = _append(buffer, index)
    # The largest of each number decides the size of the launch.
    numbers = [isinstance(column, int) for column in rows[0]]
    most = np.where(numbers, index.max(0), 0)
    return Staged(buffer.used, index_at, *index.shape, tuple(most.tolist()))


def require_good(status: torch.Tensor) -> None:
    """Waits for the device; raises InputError where a kernel met what no encoder writes."""
    bad = torch.nonzero(status).flatten().tolist()
    if bad:
        raise describe_damage(
            "keys and segments within their tables", f"others in samples {bad} of batch"
        )


def _append(buffer: HostBuffer, array: NDArray[Any]) -> int:
    at = buffer.reserve(array.nbytes)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    buffer.bytes[at : at + array.nbytes] = flat
    return at


def _round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Copy(Protocol):
    """A copy to the device that was begun, maybe ended."""

    @property
    def bytes(self) -> torch.Tensor:
        """The bytes on the device, for work that comes behind `wait_for_copy`."""

    def wait_for_copy(self) -> None:
        """What is launched from now on runs behind the copy. Does not wait."""

    def synchronize(self) -> None:
        """Waits for the end of the copy."""


class Transfer(Protocol):
    """How bytes get to a device."""

    device: torch.device

    def begin(self, host: torch.Tensor) -> Copy:
        """Begins to copy."""


class Ring:
    """Buffers for so many batches; each is with at most one reader, or on its way."""

    def __init__(self, buffers: int, *, pin_memory: bool = False) -> None:
        self._free: queue.SimpleQueue[tuple[HostBuffer, Copy | None]] = queue.SimpleQueue()
        for _ in range(buffers):
            self._free.put((HostBuffer(pin_memory=pin_memory), None))

    def take(self) -> HostBuffer:
        """An empty buffer; waits until one is free, and until the copy out of it has ended."""
        buffer, copied = self._free.get()
        if copied is not None:
            copied.synchronize()
        buffer.clear()
        return buffer

    def give_back(self, buffer: HostBuffer, copied: Copy | None = None) -> None:
        """The buffer may be used again, behind the end of the copy."""
        self._free.put((buffer, copied))


class CudaTransfer:
    """Copies on a stream of their own, beside the kernels of the current stream."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)

    def begin(self, host: torch.Tensor) -> Copy:
        """Begins to copy from page-locked memory."""
        with torch.cuda.stream(self._stream):
            held = host.to(self.device, non_blocking=True)
            ended = torch.cuda.Event(blocking=True)  # whoever waits sleeps
            ended.record(self._stream)
        return _OnStream(held, ended)


class _OnStream:
    def __init__(self, held: torch.Tensor, ended: torch.cuda.Event) -> None:
        self.bytes, self._ended = held, ended

    def wait_for_copy(self) -> None:
        """The current stream goes on behind the copy, and its memory is kept until then."""
        stream = torch.cuda.current_stream(self.bytes.device)
        stream.wait_event(self._ended)
        self.bytes.record_stream(stream)

    def synchronize(self) -> None:
        """The calling thread waits for the copy."""
        self._ended.synchronize()


class HostTransfer:
    """To the CPU as the device, where kernels run in Triton's interpreter: a plain copy."""

    device = torch.device("cpu")

    def begin(self, host: torch.Tensor) -> Copy:
        """Copies."""
        return _OnHost(host.clone())


class _OnHost:
    def __init__(self, held: torch.Tensor) -> None:
        self.bytes = held

    def wait_for_copy(self) -> None:
        """Nothing: the copy has ended."""

    def synchronize(self) -> None:
        """Nothing: the copy has ended."""


def read_containers(
    paths: Sequence[Path], buffer: HostBuffer, open_container: Callable[[memoryview], T]
) -> tuple[list[T], int]:
    """What `open_container` makes of the bytes of each container, and how many bytes there are.

    Raises:
        InputError: A container is missing, cannot be read, or is damaged; it names the file.
    """
    # Room for all of them at once: a buffer that grows is copied.
    try:
        buffer.make_room([path.stat().st_size for path in paths])
    except OSError as error:
        raise InputError(
            f"expected a container {error.filename}, found: {error.strerror}; go on with "
            "python -m vanidl_loaders encode"
        ) from error

    # Where each begins in the buffer, and its bytes; a container may have been replaced since.
    places = []
    for path in paths:
        try:
            with path.open("rb", buffering=0) as file:
                nbytes = os.fstat(file.fileno()).st_size
                begin = buffer.reserve(nbytes)
                read_into(file.fileno(), buffer.bytes.data[begin : begin + nbytes], 0)
        except OSError as error:
            raise InputError(f"expected to read {path}, found: {error.strerror}") from error
        places.append((begin, nbytes))

    # Opened behind the last read: the buffer grows no more, so views of it stay valid.
    memory = buffer.bytes.data

    def open_named(path: Path, begin: int, nbytes: int) -> T:
        try:
            return open_container(memory[begin : begin + nbytes])
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    containers = [open_named(path, *place) for path, place in zip(paths, places, strict=True)]
    return containers, sum(nbytes for _, nbytes in places)


# Distributes work over the processor's cores, and compiles what runs there.
#
# Compiled functions let go of the interpreter lock: plain threads run them side by side.

F = TypeVar("F", bound=Callable[..., object])


def compile_function(function: F) -> F:
    """The function, compiled on its first call and kept on disk, free of the interpreter lock."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[int, int], T], count: int, threads: int | None = None) -> list[T]:
    """What `work(begin, end)` gave for half-open parts of range(count), in order.

    Args:
        work: Called once a thread.
        count: Items in all.
        threads: At most; None: one per core. One runs in the calling thread.
    """
    parts = max(1, min(threads or count_cores(), count))
    edges = [count * part // parts for part in range(parts + 1)]
    if parts == 1:
        return [work(0, count)]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, edges[:-1], edges[1:]))
