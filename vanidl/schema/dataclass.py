"""Dataclasses that load fast: methods of all of them are the same few functions.

`dataclasses` generates and compiles six methods for each class: 0.2 s of CPU time in every command,
as there are some 400 classes, of which few are ever compared, printed or sent. Here only
`__init__` is written for each, where a class is frozen with the setters of its own slots; the
others look up the fields of their class when they are first called, and do the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:  # noqa: ANN401
        """As `dataclasses.dataclass`."""
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        # Other options ask for methods of their own, which the standard library makes.
        if options.keys() - {"frozen", "slots"}:
            return dataclasses.dataclass(**options)(cls)
        # `_freeze` knows the setters of a class's own slots only.
        derived = any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
        if options.get("frozen") and not derived:
            made = _freeze(dataclasses.dataclass(
                eq=False, repr=False, init=False, slots=options.get("slots", False)
            )(cls))  # fmt: skip
        else:
            made = dataclasses.dataclass(eq=False, repr=False, **options)(cls)

        # The shared methods, where the class has none of its own.
        own = cls.__dict__
        if "__repr__" not in own:
            made.__repr__ = _repr
        if "__eq__" not in own:
            made.__eq__ = _eq
        # A class with `__eq__` alone has a `__hash__` of None.
        if "__hash__" not in own or ("__eq__" in own and own["__hash__"] is None):
            made.__hash__ = _hash if options.get("frozen") else None
        return made


def _freeze(made: Any) -> Any:  # noqa: ANN401 - a class of any fields
    """A dataclass without `__init__`, with one, and frozen; `dataclasses` takes it for its own."""
    made.__dataclass_params__.frozen = True
    made.__setattr__, made.__delattr__ = _refuse, _refuse
    if "__slots__" in made.__dict__ and "__getstate__" not in made.__dict__:
        made.__getstate__, made.__setstate__ = _get_state, _set_state
    if "__init__" in made.__dict__:
        return made

    # A parameter and an assignment for each field; factories run where no value was given.
    names: dict[str, object] = {"_set": object.__setattr__, "_NEW": _NEW}
    parameters, by_keyword, lines = ["self"], list[str](), list[str]()
    for each in dataclasses.fields(made):
        name, value = each.name, each.name
        parameter = name
        if each.default_factory is not dataclasses.MISSING:
            names[f"_new_{name}"] = each.default_factory
            value = (
                f"_new_{name}() if {name} is _NEW else {name}" if each.init else f"_new_{name}()"
            )
            parameter = f"{name}=_NEW"
        elif each.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = each.default
            value = name if each.init else f"_default_{name}"
            parameter = f"{name}=_default_{name}"
        elif not each.init:
            continue
        if each.init:
            (by_keyword if each.kw_only else parameters).append(parameter)

        # By the setter of its slot, as the class itself refuses to set anything.
        setter = made.__dict__.get(name)
        if isinstance(setter, MemberDescriptorType):
            names[f"_set_{name}"] = setter.__set__
            lines.append(f"_set_{name}(self, {value})")
        else:
            lines.append(f"_set(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    taken = ", ".join([*parameters, *(["*", *by_keyword] if by_keyword else [])])
    body = "\n    ".join(lines or ["pass"])
    exec(f"def __init__({taken}):\n    {body}", names)
    made.__init__ = names["__init__"]
    made.__init__.__qualname__ = f"{made.__qualname__}.__init__"
    made.__init__.__annotations__ = {each.name: each.type for each in dataclasses.fields(made)}
    return made


_NEW = object()  # default of fields that have a factory


def _refuse(self: object, name: str, *_: object) -> None:
    """Records are frozen."""
    raise dataclasses.FrozenInstanceError(
        f"{type(self).__name__} is frozen: its field {name!r} cannot be set or deleted"
    )


def _get_state(self: object) -> list[object]:
    """The values of all fields, in order: what is sent to another process."""
    return [getattr(self, name) for name in _list_names(self.__class__)]


def _set_state(self: object, state: list[object]) -> None:
    """Restores what was sent, as it was."""
    for set_field, value in zip(_list_setters(self.__class__), state, strict=True):
        set_field(self, value)


Record = TypeVar("Record")
_NAMES: dict[type, tuple[str, ...]] = {}
_FIELD_SETTERS: dict[type, tuple[Callable[[object, object], None], ...]] = {}


def restore(cls: type[Record], *values: object) -> Record:
    """A record with slots that has these values, in the order of its fields, as they are.

    For values that were in one before: nothing checks or cleans them, which takes a third of the
    time where there are tens of thousands.
    """
    record: Record = object.__new__(cls)
    for set_field, value in zip(_list_setters(cls), values, strict=True):
        set_field(record, value)
    return record


def _list_setters(cls: type) -> tuple[Callable[[object, object], None], ...]:
    """What sets each field of a class with slots, frozen or not."""
    if cls not in _FIELD_SETTERS:
        _FIELD_SETTERS[cls] = tuple(getattr(cls, name).__set__ for name in _list_names(cls))
    return _FIELD_SETTERS[cls]


def _list_names(cls: Any) -> tuple[str, ...]:  # noqa: ANN401 - a class of any fields
    """The fields of a class, in order."""
    if cls not in _NAMES:
        _NAMES[cls] = tuple(each.name for each in dataclasses.fields(cls))
    return _NAMES[cls]


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
