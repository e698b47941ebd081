"""From kinds to JSON Schema (2020-12): closed objects, every field with its meaning and unit.

A kind says what a JSON value is, beside the code that makes it: an annotation (`int`,
`str | None`, `tuple[float, ...]`, a dataclass), `{name: kind}` for an object of these names,
`{str: kind}` for one with names of its own, `[kind]` for a list, or `Maybe(kind)` where null is a
value, too.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from vanidl.schema.dataclass import dataclass
from vanidl.schema.meanings import Meaning, meaning_of

Kind = Any
"""An annotation, a dict, a list of one kind, or Maybe."""


@dataclass(frozen=True, slots=True)
class Maybe:
    """The kind, or null."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Partly:
    """An object of which any field may be missing, and which has no others."""

    fields: Mapping[str, Kind]


def fields_of(record: type, *, without: tuple[str, ...] = ()) -> dict[str, Kind]:
    """The fields of a dataclass by name, some left out: what `values_of` makes of it."""
    hints = get_type_hints(record, include_extras=True)
    names = [field.name for field in dataclasses.fields(record)]
    return {name: hints[name] for name in names if name not in without}


Schema = dict[str, Any]

_PLAIN = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}
_UNIONS = (Union, types.UnionType)
_ARRAYS = (tuple, list, Sequence)


def own_meaning(kind: Kind) -> Meaning | None:
    """What the annotation of a record's field says that it means; None: nothing.

    A column, which holds a list of such values, means the same.
    """
    if isinstance(kind, list) and len(kind) == 1:
        return own_meaning(kind[0])
    said = [each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Meaning)]
    return said[0] if said else None


def bare(kind: Kind) -> Kind:
    """The kind without what its annotation says beside it."""
    return kind.__origin__ if hasattr(kind, "__metadata__") else kind


def schema_of(kind: Kind, path: str = "") -> Schema:
    """The schema of a kind; `path` is where it lies, so that its fields find their meanings.

    Raises:
        TypeError: the kind has no form in JSON, or a field has no meaning.
    """
    if isinstance(kind, Maybe):
        schema = schema_of(kind.kind, path)
        return _unite([schema, {"type": "null"}])
    if isinstance(kind, Partly):
        return _describe_object(kind.fields, path) | {"required": []}
    if isinstance(kind, dict):
        return _describe_object(kind, path)
    if isinstance(kind, list):
        return {"type": "array", "items": schema_of(kind[0], path)}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _describe_object(fields_of(kind), path)
    return _describe_annotated(kind, path)


def _describe_annotated(kind: Kind, path: str) -> Schema:
    origin: Any = get_origin(kind)
    arguments = get_args(kind)
    # From plain types to those made of others; what has no form in JSON is an error of ours.
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Annotated:
        return schema_of(bare(kind), path)
    if origin in _UNIONS:
        return _unite([schema_of(each, path) for each in arguments])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in _ARRAYS:
        # A list of any length, or one of as many items as a tuple names.
        if len(arguments) == 1 or arguments[1:] == (...,):
            return {"type": "array", "items": schema_of(arguments[0], path)}
        return {
            "type": "array",
            "prefixItems": [schema_of(each, path) for each in arguments],
            "items": False,
            "minItems": len(arguments),
        }
    if origin in (dict, Mapping, get_origin(Mapping[str, int])):
        return _describe_object({str: arguments[1]}, path)
    raise TypeError(f"{path}: {kind!r} has no form in JSON")


def _describe_object(kinds: Mapping[Any, Kind], path: str) -> Schema:
    if set(kinds) == {str}:
        return {"type": "object", "additionalProperties": schema_of(kinds[str], path)}
    return {
        "type": "object",
        "properties": {name: _describe_field(name, kind, path) for name, kind in kinds.items()},
        "required": list(kinds),
        "additionalProperties": False,
    }


def _describe_field(name: str, kind: Kind, path: str) -> Schema:
    here = f"{path}.{name}" if path else name
    meaning = own_meaning(kind) or meaning_of(here)
    unit = {"unit": meaning.unit} if meaning.unit else {}
    return schema_of(kind, here) | {"description": meaning.text} | unit


def _unite(schemas: list[Schema]) -> Schema:
    """One schema with a list of types where that says it, else `anyOf`."""
    if {} in schemas:
        return {}
    plain = [s["type"] for s in schemas if set(s) == {"type"}]
    others = [s for s in schemas if set(s) != {"type"}]
    named = list(dict.fromkeys(t for types_ in plain for t in _list_types(types_)))
    if not others:
        return {"type": named[0] if len(named) == 1 else named}
    if len(others) == 1 and named == ["null"] and isinstance(others[0].get("type"), str):
        return others[0] | {"type": [others[0]["type"], "null"]}
    return {"anyOf": [*others, *({"type": name} for name in named)]}


def _list_types(types_: str | list[str]) -> list[str]:
    return [types_] if isinstance(types_, str) else types_
