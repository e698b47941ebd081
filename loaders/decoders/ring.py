"""Host buffers used in turn: read into, copied to the device, read into again.

A buffer is handed out only when the copy out of it has ended. Where nothing is copied away (the
CPU decodes), it is given back when the batch has been decoded.
"""

from __future__ import annotations

import queue
from typing import Protocol

import torch

from .staging import HostBuffer


class Copied(Protocol):
    """A copy to the device that was begun, maybe ended."""

    @property
    def bytes(self) -> torch.Tensor:
        """The bytes on the device, for work that comes behind `order`."""

    def order(self) -> None:
        """What is launched from now on runs behind the copy. Does not wait."""

    def wait(self) -> None:
        """Waits for the end of the copy."""


class Transfer(Protocol):
    """How bytes get to a device."""

    device: torch.device

    def begin(self, host: torch.Tensor) -> Copied:
        """Begins to copy."""


class Ring:
    """Buffers for so many batches; each is with at most one reader, or on its way."""

    def __init__(self, buffers: int, *, pin_memory: bool = False) -> None:
        self._free: queue.SimpleQueue[tuple[HostBuffer, Copied | None]] = queue.SimpleQueue()
        for _ in range(buffers):
            self._free.put((HostBuffer(pin_memory=pin_memory), None))

    def take(self) -> HostBuffer:
        """An empty buffer; waits until one is free, and until the copy out of it has ended."""
        buffer, copied = self._free.get()
        if copied is not None:
            copied.wait()
        buffer.clear()
        return buffer

    def give_back(self, buffer: HostBuffer, copied: Copied | None = None) -> None:
        """The buffer may be used again, behind the end of the copy."""
        self._free.put((buffer, copied))


class CudaTransfer:
    """Copies on a stream of their own, beside the kernels of the current stream."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)

    def begin(self, host: torch.Tensor) -> Copied:
        """Begins to copy from page-locked memory."""
        with torch.cuda.stream(self._stream):
            held = host.to(self.device, non_blocking=True)
            ended = torch.cuda.Event(blocking=True)  # whoever waits sleeps
            ended.record(self._stream)
        return _OnStream(held, ended)


class _OnStream:
    def __init__(self, held: torch.Tensor, ended: torch.cuda.Event) -> None:
        self.bytes, self._ended = held, ended

    def order(self) -> None:
        """The current stream goes on behind the copy, and its memory is kept until then."""
        stream = torch.cuda.current_stream(self.bytes.device)
        stream.wait_event(self._ended)
        self.bytes.record_stream(stream)

    def wait(self) -> None:
        """The calling thread waits for the copy."""
        self._ended.synchronize()


class HostTransfer:
    """To the CPU as the device, where kernels run in Triton's interpreter: a plain copy."""

    device = torch.device("cpu")

    def begin(self, host: torch.Tensor) -> Copied:
        """Copies."""
        return _OnHost(host.clone())


class _OnHost:
    def __init__(self, held: torch.Tensor) -> None:
        self.bytes = held

    def order(self) -> None:
        """Nothing: the copy has ended."""

    def wait(self) -> None:
        """Nothing: the copy has ended."""
