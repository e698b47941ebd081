"""Whether two results are the same, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np


def same(a: object, b: object) -> bool:
    """Equality of nested frozen records with arrays in them; nan equals nan.

    Mappings are the same where they hold the same, of whatever type, and so is a record of a
    type that refines the other's.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(b, type(a)) and is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if is_dataclass(b):
        return isinstance(a, type(b)) and same(b, a)
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)
