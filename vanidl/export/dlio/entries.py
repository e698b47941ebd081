"""What a workload file is made of: keys with values, and where each value is from."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping

from vanidl.dataclass import dataclass

MEASURED, GIVEN, ASSUMED, UNKNOWN = "measured", "given", "assumed", "not known"
"""Computed from the run; stated by the user; a default, named; to be set before DLIO runs."""

Scalar = bool | int | float | str
Value = Scalar | tuple[int, ...] | Mapping[str, Scalar]

_WIDTH = 96


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of one section (""; the file itself), and why it has this value."""

    section: str
    key: str
    value: Value
    source: str  # MEASURED, GIVEN, ASSUMED or UNKNOWN
    note: str


def mark_unknown(section: str, key: str, note: str) -> Entry:
    """A number that the user must set: DLIO stops and names the variable until it is there.

    A key that is left out, or `???`, would silently become DLIO's own default.
    """
    variable = f"DLIO_{key.upper()}"
    value = f"${{oc.decode:${{oc.env:{variable}}}}}"
    return Entry(section, key, value, UNKNOWN, f"{note}; set it here or as {variable}")


def render_entries(header: Iterable[str], entries: Iterable[Entry], footer: Iterable[str]) -> str:
    """The file: comments, sections in the order of their first key, comments."""
    sections: dict[str, list[Entry]] = {}
    for entry in entries:
        sections.setdefault(entry.section, []).append(entry)
    lines = [line for text in header for line in _format_comment(text, "")]
    for section, members in sections.items():
        lines.append("")
        indent = "  " if section else ""
        lines += [f"{section}:"] if section else []
        for entry in members:
            lines += _format_comment(f"{entry.source}: {entry.note}", indent)
            lines.append(f"{indent}{entry.key}: {_format_literal(entry.value)}")
    lines += ["", *(line for text in footer for line in _format_comment(text, ""))]
    return "\n".join(lines).rstrip() + "\n"


def _format_comment(text: str, indent: str) -> list[str]:
    """Comment lines; what is indented, as a command, stays as it is."""
    safe = "".join(c if c.isprintable() else "?" for c in text)
    if not safe.strip():
        return [f"{indent}#"]
    if safe.startswith(" "):
        return [f"{indent}# {safe}"]
    return [f"{indent}# {line}" for line in textwrap.wrap(safe, _WIDTH - len(indent))]


def _format_literal(value: Value) -> str:
    """YAML that every reader takes for the same: no exponents, words always quoted."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        whole, part = f"{value:.9f}".split(".")
        return f"{whole}.{part.rstrip('0') or '0'}"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f"{{{', '.join(f'{key}: {_format_literal(each)}' for key, each in value.items())}}}"
