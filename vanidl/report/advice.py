"""Findings and predictions as the page shows them: plain texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from vanidl.advice.finding import Value
from vanidl.advice.levers import LoaderCall, WhatIf, beyond_ceiling
from vanidl.formatting.names import elided
from vanidl.formatting.units import count, nbytes, number, percent, plural, seconds
from vanidl.run import Run
from vanidl.schema.meanings import meaning_of

_MOST = 12
_LONG = 400


Numbers = tuple[tuple[str, str], ...]
"""Names and values of what a finding rests on."""

BY_KEY = {
    "at_buffer_of_different_bytes": "with buffers of {} of the unique bytes",
    "at_most_s": "at most, {}",
    "bytes_read_then": "bytes read then, {}",
}
"""What a key of a mapping is that has one value per rank, codec or size: its noun."""
_BY_UNIT: dict[str, Callable[[float], str]] = {"s": seconds, "bytes": nbytes}


@dataclass(frozen=True, slots=True)
class Replayed:
    """The table of predictions: rows are change, step time, of what it was, gain.

    `loaders` are changes, and the loader that makes each.
    """

    note: str
    rows: tuple[tuple[str, str, str, str], ...]
    assumptions: tuple[str, ...]
    loaders: tuple[tuple[str, LoaderCall], ...] = ()


def of_one(name: str, ranks: int) -> str:
    """A change of a single rank is of the run."""
    return name if ranks > 1 else name.removesuffix(" per rank")


def replayed(run: Run) -> Replayed | None:
    """The predictions; None where the run cannot be replayed."""
    found = run.what_if
    if found is None:
        return None
    rows = tuple(
        (
            of_one(row.name, len(run.trace.ranks)),
            seconds(row.step_s),
            number(row.ratio),
            seconds(row.gain_at_most_s),
        )
        for row in found.rows
    )
    calls = tuple(_explained_once(found))
    return Replayed(replay_note(found), rows, found.assumptions, calls)


def _explained_once(found: WhatIf) -> Iterator[tuple[str, LoaderCall]]:
    known = set[str]()
    for row in found.rows:
        if row.loader is not None:
            first = row.loader.name not in known
            known.add(row.loader.name)
            yield row.name, row.loader if first else replace(row.loader, explanation="")


def replay_note(found: WhatIf) -> str:
    """How well the model gives back what was measured."""
    if found.refused:
        return f"The mean step took {seconds(found.step_s)}. {found.refused}."
    return (
        f"The mean step took {seconds(found.step_s)}; the same batches replayed with nothing "
        f"changed give {seconds(found.replayed_s)}.{beyond_ceiling(found)}"
    )


def numbers(evidence: Mapping[str, Value]) -> Numbers:
    """The values of a finding; of many the first, and how many more there are, and where."""
    found = tuple(_flat("", "findings.evidence", evidence))
    if len(found) <= _MOST + 1:  # a line that says "1 more" has room for it
        return found
    more = f"{plural(len(found) - _MOST, 'value')}, in vanidl summary --json"
    return (*found[:_MOST], ("more", more))


def _flat(prefix: str, path: str, values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Names and texts of all values, those of inner mappings behind their name."""
    for name, value in values.items():
        if value is None:
            continue
        inner, here = f"{prefix}{_readable(name)}", f"{path}.{name}"
        if name in BY_KEY and isinstance(value, Mapping):
            for key, of_key in value.items():
                label = prefix + BY_KEY[name].format(key.replace("%", " %"))
                if isinstance(of_key, Mapping):
                    yield from _flat(f"{label}: ", here, of_key)
                else:
                    yield _pair(label, here, of_key)
        elif isinstance(value, Mapping):
            yield from _flat(f"{inner}: ", here, value)
        else:
            yield _pair(inner, here, value)


def _readable(name: str) -> str:
    """The name of a value as a person reads it; its unit is beside the value."""
    text = re.sub(r"_s(?=_|$)", "", name).replace("_a_", "_per_")
    return text.replace("different", "unique").replace("_mib", "_MiB").replace("_", " ")


def _pair(label: str, path: str, value: Value) -> tuple[str, str]:
    return elided(label, limit=120), elided(_text(path, value), limit=_LONG)


def _text(path: str, value: Value) -> str:
    if isinstance(value, list):
        more = f" and {count(len(value) - _MOST)} more" if len(value) > _MOST else ""
        return ", ".join(str(v) for v in value[:_MOST]) + more
    if isinstance(value, str) or value is None or isinstance(value, Mapping):
        return "not recorded" if value is None else str(value)
    unit, text = _meaning(path)
    if unit in _BY_UNIT:
        return _BY_UNIT[unit](value)
    if unit == "1" and re.search("share|fraction", f"{path} {text}".lower()):
        return percent(value)
    return count(value) if float(value).is_integer() else number(value)


def _meaning(path: str) -> tuple[str, str]:
    """(unit, meaning) of a field; none of a finding that the schema does not know."""
    try:
        found = meaning_of(path)
    except TypeError:
        return "", ""
    return found.unit, found.text
