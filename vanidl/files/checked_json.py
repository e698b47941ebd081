"""Fields of a record from a JSON object by a stranger: only values of the declared types."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_UNIONS = (Union, UnionType)
_PLAIN = (str, int, float, bool, type(None))


def checked_fields(record: type, values: object) -> dict[str, Any]:
    """The values of all fields of a dataclass that are declared as plain JSON values.

    A whole number is a float, too; a bool is no number. Fields of other types are left out.

    Raises:
        KeyError: A field is missing.
        TypeError: A value is of another type, or `values` is no object.
    """
    if not isinstance(values, dict):
        raise TypeError(f"expected an object, found {type(values).__name__}")
    found = {}
    for name, allowed in _plain_fields(record).items():
        value = values[name]
        if type(value) not in allowed and not (type(value) is int and float in allowed):
            raise TypeError(f"{name} is of type {type(value).__name__}")
        found[name] = value
    return found


@cache
def _plain_fields(record: type) -> dict[str, tuple[type, ...]]:
    """The types that each field may have, of those that are plain JSON values."""
    hints = get_type_hints(record).items()
    types = {name: get_args(h) if get_origin(h) in _UNIONS else (h,) for name, h in hints}
    return {name: allowed for name, allowed in types.items() if set(allowed) <= set(_PLAIN)}
