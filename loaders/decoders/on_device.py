"""Batches that a device decodes: what the host reads, what the device is told, what it found.

The host looks at descriptions only. The device computes the CRC-32 of the bodies, decodes, and
marks a byte per sample where something is wrong: nobody waits for it until `Verdict` is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch

from ..errors import InputError
from ..loader.loader import Batch
from .coding import require_alike, require_known
from .container import Opened, Spec, unpack_unchecked
from .kernels import Kernel, find_checksum, find_kernel
from .staging import Copy, HostBuffer, Staged, read_containers, stage_rows

NAMED_MOST = 10
"""Samples that an error names."""


@dataclass(frozen=True)
class StagedArray:
    """One array of a batch, to be decoded by a kernel into `spec`, samples first."""

    kernel: Kernel
    staged: Staged
    spec: Spec

    def decode(self, buffer: torch.Tensor, status: torch.Tensor) -> torch.Tensor:
        """The decoded array, soon on the device; `status` (samples,) uint8 as in `Kernel`."""
        kind = torch.from_numpy(np.empty(0, self.spec.dtype)).dtype
        shape = (self.staged.samples, *self.spec.shape)
        out = torch.empty(shape, dtype=kind, device=buffer.device)
        self.kernel.launch(self.staged.within(buffer), out, status)
        return out


@dataclass(frozen=True)
class StagedBatch:
    """A batch in a host buffer, to be copied as it is.

    Attributes:
        nbytes: Of the containers.
        bodies: Where their bodies lie, and the CRC-32 of each.
        arrays: What is decoded, by name.
    """

    nbytes: int
    bodies: Staged
    arrays: Mapping[str, StagedArray]

    def decode(self, copied: Copy, bad: torch.Tensor) -> Batch:
        """The arrays, soon on the device; `bad` as from `Verdict.of`."""
        copied.wait_for_copy()
        find_checksum().launch(self.bodies.within(copied.bytes), bad[0])
        return {name: each.decode(copied.bytes, bad[1]) for name, each in self.arrays.items()}


def read_batch(paths: Sequence[Path], buffer: HostBuffer) -> StagedBatch:
    """Reads containers into an empty buffer.

    Raises:
        InputError: A container is missing, or its description is damaged.
    """
    opened, nbytes = read_containers(paths, buffer, _open_staged)
    arrays = {name: _read_staged(name, opened, buffer) for name in opened[0].arrays}
    check = find_checksum().columns
    bodies = stage_rows(buffer, [check(each.body, each.body_crc) for each in opened])
    return StagedBatch(nbytes, bodies, arrays)


def _open_staged(content: memoryview) -> Opened:
    opened = unpack_unchecked(content)
    for encoded in opened.arrays.values():
        require_known(encoded.codec)
    return opened


def _read_staged(name: str, opened: Sequence[Opened], buffer: HostBuffer) -> StagedArray:
    encoded = [each.arrays[name] for each in opened if name in each.arrays]
    spec = require_alike(name, encoded, len(opened))
    kernel = find_kernel(encoded[0].codec)
    staged = stage_rows(buffer, [kernel.columns(each) for each in encoded])
    return StagedArray(kernel, staged, spec)


class Verdict:
    """What the device found wrong in an epoch: a byte per sample and kind, looked at when asked.

    Args:
        batches: The samples of each batch.
        device: Where they are decoded.
    """

    _KINDS = ("a body that is not of its CRC-32", "keys, codes or segments outside their tables")

    def __init__(self, batches: Sequence[Sequence[int]], device: torch.device) -> None:
        self._batches = batches
        self._ends = list(accumulate(map(len, batches)))
        places = self._ends[-1] if batches else 0
        self._bad = torch.zeros((len(self._KINDS), places), dtype=torch.uint8, device=device)
        self._unseen = False

    def of(self, batch: int) -> torch.Tensor:
        """(kinds, samples) uint8 on the device, for the kernels to write to."""
        self._unseen = True
        end = self._ends[batch]
        return self._bad[:, end - len(self._batches[batch]) : end]

    def require_good(self) -> None:
        """Waits for the device, once for all batches since the last time.

        Raises:
            InputError: A sample is damaged; named.
        """
        if not self._unseen:
            return
        self._unseen = False
        held = self._bad.to("cpu", copy=True).numpy()
        self._bad.zero_()
        if held.any():
            raise InputError("; ".join(self._found(held)) + ": encode the data again")

    def _found(self, held: np.ndarray) -> list[str]:
        samples = np.concatenate([np.asarray(each, np.int64) for each in self._batches])
        found = []
        for kind, bad in zip(self._KINDS, held, strict=True):
            named = np.unique(samples[bad.astype(bool)]).tolist()
            if named:
                more = f" and {len(named) - NAMED_MOST} more" * (len(named) > NAMED_MOST)
                found.append(f"found {kind} in samples {named[:NAMED_MOST]}{more}")
        return found
