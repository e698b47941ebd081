"""Fields of a record from a JSON object by a stranger: only values of the declared types."""

from __future__ import annotations

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
    for name, hint in get_type_hints(record).items():
        allowed = get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
        if not set(allowed) <= set(_PLAIN):
            continue
        value = values[name]
        if type(value) not in allowed and not (type(value) is int and float in allowed):
            raise TypeError(f"{name} is of type {type(value).__name__}")
        found[name] = value
    return found
