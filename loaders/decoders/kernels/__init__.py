"""Decoding on a GPU: one module a codec, each with `columns`, `launch` and `reference`.

Imported only from here, when a GPU decodes: Triton is not needed otherwise. Where there is no
GPU, the kernels run in Triton's interpreter on CPU tensors if TRITON_INTERPRET=1 is set before
these modules are imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from ...errors import MissingError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from ..container import Encoded
    from ..staging import Column, Staged

KERNELS: dict[str, str] = {
    "cosmoflow": "vanidl_loaders.decoders.kernels.cosmoflow",
    "deepcam": "vanidl_loaders.decoders.kernels.deepcam",
    "lossless": "vanidl_loaders.decoders.kernels.lossless",
}
"""Name of each codec -> the module that decodes it on a GPU."""


class Kernel(Protocol):
    """What a module of this folder offers."""

    def columns(self, encoded: Encoded) -> tuple[Column, ...]:
        """What the index holds of a sample; raises InputError where its sections are damaged."""

    def launch(self, staged: Staged, out: torch.Tensor, status: torch.Tensor) -> None:
        """Begins to fill `out`; `status` (samples,) uint8 becomes 1 where a sample is damaged.

        Both lie on the device of `staged`. Whatever the sections hold, no access leaves them.
        """

    def reference(self, staged: Staged, out: torch.Tensor) -> None:
        """Fills `out` with PyTorch's own operators."""


class Checksum(Protocol):
    """What computes CRC-32 on a device."""

    def columns(self, body: NDArray[np.uint8], crc: int) -> tuple[Column, ...]:
        """What the index holds of a body: where it lies, and the CRC-32 that it must have."""

    def launch(self, staged: Staged, status: torch.Tensor) -> None:
        """`status` (samples,) uint8 becomes 1 where a body has another."""


def find_kernel(codec: str) -> Kernel:
    """The module for a codec.

    Raises:
        MissingError: Triton is not installed.
    """
    return cast(Kernel, _import_triton(KERNELS[codec]))


def find_checksum() -> Checksum:
    """The module for the CRC-32 of bodies.

    Raises:
        MissingError: Triton is not installed.
    """
    return cast(Checksum, _import_triton("vanidl_loaders.decoders.kernels.checksum"))


def _import_triton(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # Another package that is missing is a fault of its own.
        if error.name != "triton":
            raise
        raise MissingError(
            "expected the package triton to decode on a GPU, found none: "
            "pip install 'vanidl-io[decoders]', or decode on the CPU with device='cpu'"
        ) from error


def decode(samples: Sequence[Encoded], out: torch.Tensor) -> None:
    """Fills `out` (samples, *decoded shape) on its device, and waits for it.

    Raises:
        InputError: Sections, keys, codes and segments contradict each other.
    """
    import torch

    from ..staging import HostBuffer, require_good, stage_rows

    kernel = find_kernel(samples[0].codec)
    buffer = HostBuffer(pin_memory=out.is_cuda)
    # All sections in one copy to the device, and one launch for all samples.
    staged = stage_rows(buffer, [kernel.columns(each) for each in samples]).to(out.device)
    status = torch.zeros(len(samples), dtype=torch.uint8, device=out.device)
    kernel.launch(staged, out, status)
    require_good(status)
