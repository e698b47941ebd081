"""Decoding on a GPU: one module a codec, each with `stage`, `launch`, `reference` and `decode`.

Imported only from here, when a GPU decodes: Triton is not needed otherwise. Where there is no
GPU, the kernels run in Triton's interpreter on CPU tensors if TRITON_INTERPRET=1 is set before
these modules are imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from ...errors import MissingError

if TYPE_CHECKING:
    import torch

    from ..container import Encoded
    from ..staging import Staged

KERNELS: dict[str, str] = {
    "cosmoflow": "vanidl_loaders.decoders.kernels.cosmoflow",
    "deepcam": "vanidl_loaders.decoders.kernels.deepcam",
    "lossless": "vanidl_loaders.decoders.kernels.lossless",
}
"""Name of each codec -> the module that decodes it on a GPU."""


class Kernel(Protocol):
    """What a module of this folder offers."""

    def stage(self, samples: Sequence[Encoded], *, pin_memory: bool = False) -> Staged:
        """The samples in one buffer on the host."""

    def launch(self, staged: Staged, out: torch.Tensor) -> torch.Tensor:
        """Begins to fill `out` on its device; (samples,) int32, not 0 where one is damaged."""

    def reference(self, staged: Staged, out: torch.Tensor) -> None:
        """Fills `out` with PyTorch's own operators."""

    def decode(self, samples: Sequence[Encoded], out: torch.Tensor) -> None:
        """Fills `out` (samples, *decoded shape) on its device, and waits for it."""


def find_kernel(codec: str) -> Kernel:
    """The module for a codec.

    Raises:
        MissingError: Triton is not installed.
    """
    try:
        return cast(Kernel, import_module(KERNELS[codec]))
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise MissingError(
            "expected the package triton to decode on a GPU, found none: pip install triton, "
            "or decode on the CPU with device='cpu'"
        ) from error
