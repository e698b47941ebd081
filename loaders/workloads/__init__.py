"""Workloads: synthetic samples with the papers' shapes and statistics, and a small model each.

A module each with NAME, HELP, SIZE, describe, sample, model and loss. Imported when asked for:
making data needs no PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from ..errors import UsageError

if TYPE_CHECKING:
    from .workload import Workload

WORKLOADS: dict[str, str] = {
    "ptycho": "vanidl_loaders.workloads.ptycho",
    "cosmoflow": "vanidl_loaders.workloads.cosmoflow",
    "deepcam": "vanidl_loaders.workloads.deepcam",
    "images": "vanidl_loaders.workloads.images",
}
"""Name of each workload -> its module."""


def find_workload(name: str) -> Workload:
    """The module of a workload.

    Raises:
        UsageError: No workload of that name.
    """
    if name not in WORKLOADS:
        known = ", ".join(WORKLOADS)
        raise UsageError(f"expected a workload among {known}, found {name}: choose one")
    return cast("Workload", import_module(WORKLOADS[name]))
