"""Step times under the usual changes of the input."""

from __future__ import annotations

from vanidl.advice.levers import WhatIf, beyond_ceiling
from vanidl.formatting.terminal import aligned_table, paragraph
from vanidl.formatting.units import number, seconds
from vanidl.run import Run
from vanidl.sections.section import Json, Object, Section, values_of


def _text(run: Run) -> str | None:
    found = run.what_if
    if found is None:
        return None
    if found.refused or found.replayed_s is None:
        return f"What if\n{paragraph(found.refused + '.')}\n"
    header = ("if", "mean step", "of now", "gains at most")
    now = ("nothing changed, replayed", seconds(found.replayed_s),
           number(found.replayed_s / found.step_s), "")  # fmt: skip
    rows = [
        (r.name, seconds(r.step_s), number(r.ratio), seconds(r.gain_at_most_s)) for r in found.rows
    ]
    table = aligned_table("What if (replayed with changed input)", [header, now, *rows])
    beyond = beyond_ceiling(found).strip()
    noted = f"{table}{paragraph(beyond)}\n" if beyond else table or ""
    return noted + _loaders(found)


def _loaders(found: WhatIf) -> str:
    """What makes each change, explained once, and the command in lines of its own, to copy."""
    lines, known = list[str](), set[str]()
    for row in found.rows:
        if row.loader is not None:
            said = f"{row.name}: {row.loader.name} loader of vanidl_loaders."
            more = "" if row.loader.name in known else f" {row.loader.explanation}"
            known.add(row.loader.name)
            first, rest = row.loader.command.split(" --loader ")
            lines += [paragraph(said + more), f"  {first} \\", f"      --loader {rest}"]
    return "".join(f"{line}\n" for line in lines)


def _json(run: Run) -> Object | None:
    found = run.what_if
    return None if found is None else values_of(found)


SECTION = Section("what if", text=_text, json={"what_if": Json(_json, WhatIf | None)})
