"""Copies of batches, whatever a loader hands out, and how much memory they take.

A copy shares nothing with its original that can be modified: training code may normalise a batch
in place, and workers hand out memory of `/dev/shm`, of which there is little.
"""

from __future__ import annotations

import sys
from copy import deepcopy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEEPEST = 6
_IMMUTABLE = (str, bytes, int, float, complex, bool, type(None))


def copied(value: Any) -> Any:  # noqa: ANN401
    """A copy that is of the same types, on the same device, and pinned where the original is.

    Raises:
        Exception: whatever a type of the program raises that cannot be copied.
    """
    kind = type(value)
    if kind in _IMMUTABLE or _of("tensorflow", "Tensor", value):
        return value
    if kind is dict:
        return {key: copied(inner) for key, inner in value.items()}
    if kind is list:
        return [copied(inner) for inner in value]
    if kind is tuple:
        return tuple([copied(inner) for inner in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(copied(inner) for inner in value))
    if _of("torch", "Tensor", value):
        return _copied_tensor(value)
    if _of("jax", "Array", value):  # deepcopy would take it to the host
        return value.copy()
    return deepcopy(value)


def _of(module: str, name: str, value: object) -> bool:
    """Whether a value is of a class of a module that the program has imported."""
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(value, found)


def _copied_tensor(tensor: Any) -> Any:  # noqa: ANN401
    """`clone` alone would give memory that is not pinned, which takes longer to the device."""
    import torch

    with torch.no_grad():
        if tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.is_pinned():
            made = torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        else:
            made = tensor.clone()
    return made.requires_grad_() if tensor.requires_grad else made


def nbytes(value: Any, depth: int = _DEEPEST) -> int:  # noqa: ANN401
    """The memory that a batch takes, near enough for a budget; of what is nested deeper, nothing.

    Objects may hold each other.
    """
    if not depth:
        return 0
    own = getattr(value, "nbytes", None)  # of NumPy, JAX and PyTorch
    if isinstance(own, int):
        return own
    if isinstance(value, dict):
        return sum(nbytes(inner, depth - 1) for inner in value.values())
    if isinstance(value, (list, tuple)):
        return sum(nbytes(inner, depth - 1) for inner in value)
    parts = getattr(value, "__dict__", None)
    if not parts:
        return sys.getsizeof(value)
    return sum(nbytes(inner, depth - 1) for inner in parts.values())
