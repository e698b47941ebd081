"""The measured ceiling: what the steps take with batches from memory."""

from __future__ import annotations

from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.terminal import paragraph
from vanidl.model.ceiling import Ceiling
from vanidl.run import Run
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.ceiling import details, sentence

_COLUMNS = (
    Column("steps after the warm-up"), Column("mean", "s"), Column("median", "s"),
)  # fmt: skip
_MEANING = (
    "This is the most that faster input can gain, measured. The interval is of this pair of runs; "
    "vanidl ab --ceiling repeats them."
)


def figure(run: Run) -> Figure:
    """Steps as they were, and with batches from memory."""
    title = "The ceiling: steps with batches from memory"
    found = run.ceiling
    if found is None:
        reason = "Not measured: vanidl ceiling --against RUN -- COMMAND measures it."
        return Figure("ceiling", "Input and compute", title, "", empty_reason=reason, applies=False)
    rows = (
        ("as it trained", found.step_s, found.median_step_s),
        ("with batches from memory", found.free_s, found.median_free_s),
        ("of that, copying the batch", found.copying_s, None),
    )
    said = " ".join((sentence(found), details(found), *found.remarks, _MEANING))
    return Figure("ceiling", "Input and compute", title, said, table=Table(_COLUMNS, rows))


def _text(run: Run) -> str | None:
    found = run.ceiling
    if found is None:
        return None
    said = (sentence(found), details(found), *found.remarks)
    return "\n".join(["Ceiling, measured", *map(paragraph, said)]) + "\n"


def _json(run: Run) -> Object | None:
    found = run.ceiling
    if found is None:
        return None
    return values_of(found) | {"remarks": list(found.remarks)}


SECTION = Section("ceiling", (figure,), _text, {"ceiling": Json(_json, Ceiling | None)})
