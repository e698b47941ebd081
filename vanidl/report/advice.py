"""Findings and predictions as the page shows them: plain texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vanidl.findings.finding import Value
from vanidl.formatting.names import elided
from vanidl.formatting.units import count, nbytes, number, percent, seconds
from vanidl.run import Run
from vanidl.whatif import WhatIf
from vanidl.wording.ceiling import beyond_ceiling

_MOST = 12
_LONG = 400


Numbers = tuple[tuple[str, str], ...]
"""Names and values of what a finding rests on."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The table of predictions: rows are change, step time, of what it was, gain."""

    note: str
    rows: tuple[tuple[str, str, str, str], ...]
    assumptions: tuple[str, ...]


def replayed(run: Run) -> Replayed | None:
    """The predictions; None where the run cannot be replayed."""
    found = run.what_if
    if found is None:
        return None
    rows = tuple(
        (row.name, seconds(row.step_s), number(row.ratio), seconds(row.gain_at_most_s))
        for row in found.rows
    )
    return Replayed(replay_note(found), rows, found.assumptions)


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
    found = tuple(_flat("", evidence))
    if len(found) <= _MOST:
        return found
    more = f"{count(len(found) - _MOST)} values, in vanidl summary --json"
    return (*found[:_MOST], ("and", more))


def _flat(prefix: str, values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Names and texts of all values, those of inner mappings behind their name."""
    for name, value in values.items():
        label = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _flat(f"{label}: ", value)
        else:
            yield elided(label, limit=120), elided(_text(name, value), limit=_LONG)


def _text(name: str, value: Value) -> str:
    if isinstance(value, list):
        more = f" and {count(len(value) - _MOST)} more" if len(value) > _MOST else ""
        return ", ".join(str(v) for v in value[:_MOST]) + more
    if isinstance(value, str) or value is None or isinstance(value, Mapping):
        return "not recorded" if value is None else str(value)
    if name.endswith(("_s", "seconds", "_s_a_rank")):
        return seconds(value)
    if "bytes" in name and "share" not in name:
        return nbytes(value)
    if "share" in name or "fraction" in name or name == "jumps":
        return percent(value)
    return count(value) if float(value).is_integer() else number(value)
