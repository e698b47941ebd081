"""Dataclasses that load fast: methods of all of them are the same few functions.

`dataclasses` writes and compiles `__eq__`, `__hash__` and `__repr__` anew for every class: 0.11 of
the 0.8 s of processor time that a report of a small log takes, as there are some 400 classes, of
which few are ever compared or printed. Here these three look up the fields of their class when they
are first called, and do the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:  # noqa: ANN401
        """As `dataclasses.dataclass`."""
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        if options.keys() - {"frozen", "slots"}:
            return dataclasses.dataclass(**options)(cls)
        made = dataclasses.dataclass(eq=False, repr=False, **options)(cls)
        own = cls.__dict__
        if "__repr__" not in own:
            made.__repr__ = _repr
        if "__eq__" not in own:
            made.__eq__ = _eq
        if "__hash__" not in own or ("__eq__" in own and own["__hash__"] is None):
            made.__hash__ = _hash if options.get("frozen") else None
        return made


Record = TypeVar("Record")
_FIELD_SETTERS: dict[type, tuple[Callable[[object, object], None], ...]] = {}


def restore(cls: type[Record], *values: object) -> Record:
    """A record with slots that has these values, in the order of its fields, as they are.

    For values that were in one before: nothing checks or cleans them, which takes a third of the
    time where there are tens of thousands.
    """
    if cls not in _FIELD_SETTERS:
        names = cls.__dataclass_fields__  # type: ignore[attr-defined]
        _FIELD_SETTERS[cls] = tuple(getattr(cls, name).__set__ for name in names)
    record: Record = object.__new__(cls)
    for set_field, value in zip(_FIELD_SETTERS[cls], values, strict=True):
        set_field(record, value)
    return record


_Getter = Callable[[object], tuple[Any, ...]]
_COMPARED: dict[type, _Getter] = {}
_SHOWN: dict[type, tuple[str, ...]] = {}


def _list_values(cls: type) -> _Getter:
    """What gives the fields of a class that are compared, as a tuple."""
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    if len(names) > 1:
        getter: _Getter = attrgetter(*names)
    elif names:
        one = attrgetter(names[0])
        getter = lambda record: (one(record),)  # noqa: E731 - as attrgetter is
    else:
        getter = lambda _: ()  # noqa: E731
    _COMPARED[cls] = getter
    return getter


def _eq(self: Any, other: object) -> Any:  # noqa: ANN401 - fields of any kind
    """Whether both are of one class, with equal fields."""
    cls = self.__class__
    if other.__class__ is not cls:
        return NotImplemented
    values = _COMPARED.get(cls) or _list_values(cls)
    return values(self) == values(other)


def _hash(self: Any) -> int:  # noqa: ANN401
    """Of the fields that are compared."""
    cls = self.__class__
    return hash((_COMPARED.get(cls) or _list_values(cls))(self))


@recursive_repr()
def _repr(self: Any) -> str:  # noqa: ANN401
    """`Class(field=value, ...)`."""
    cls = self.__class__
    if cls not in _SHOWN:
        _SHOWN[cls] = tuple(each.name for each in dataclasses.fields(cls) if each.repr)
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _SHOWN[cls])
    return f"{cls.__qualname__}({shown})"
