"""Names of operators that say what a loop is doing, whichever profiler wrote them down."""

from __future__ import annotations

import re

BACKWARD = re.compile(r"autograd::engine::evaluate_function")
"""Beginning of the names of operators of a backward pass."""

SAMPLING = re.compile(
    r"(aten::)?(empty|empty_strided|random_|item|_local_scalar_dense|randperm|multinomial|randint"
    r"|scalar_tensor|to|_to_copy|copy_|resize_|set_|select|as_strided|unbind|detach|detach_"
    r"|resolve_conj|resolve_neg)"
)
"""Operators with which a loader draws its seed and its order: they are no training."""
