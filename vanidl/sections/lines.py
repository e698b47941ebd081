"""Which lines of the program fetches and steps spend their time in."""

from __future__ import annotations

from collections.abc import Iterator

from vanidl.analyses.lines import Lines, PartLines
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import Row, aligned_table
from vanidl.formatting.units import Cell, count, percent, plural, seconds
from vanidl.run import Run
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.lines import how, place

_TITLE = "Which lines take the time"
_MOST_TEXT = 6
_COLUMNS = (
    Column("of"), Column("line"), Column("in"), Column("source"), Column("share", "share"),
    Column("share of processor time", "share"), Column("share of blocked time", "share"),
    Column("wall", "s"), Column("processor", "s"), Column("runs", "count"),
)  # fmt: skip
_MEANING = (
    "Lines of functions of the program, with what they call in libraries. Of a line that calls "
    "a sampled function of the program only the rest is its own, so shares add up to 100 % at most."
)
_NONE = (
    "No lines were sampled: vanidl record does that with PyTorch's DataLoader, where no debugger, "
    "coverage or profiler looks at the program itself."
)


def figure(run: Run) -> Figure:
    """A table of lines."""
    found = run.lines
    if found is None:
        return Figure("lines", "Input and compute", _TITLE, "", empty_reason=_NONE, applies=False)
    rows: list[tuple[Cell, ...]] = [
        (
            of, place(line), elided(line.function, limit=60), elided(line.text, limit=100),
            line.share, line.cpu_share, line.blocked_share, line.wall_s, line.cpu_s, line.hits,
        )
        for of, part in _parts(found)
        for line in part.lines
    ]  # fmt: skip
    said = "; ".join(f"{of}: {_basis(of, part)}" for of, part in _parts(found))
    caption = f"Sampled {said}. {_MEANING}"
    return Figure("lines", "Input and compute", _TITLE, caption, table=Table(_COLUMNS, tuple(rows)))


def _parts(found: Lines) -> Iterator[tuple[str, PartLines]]:
    for of, part in (("fetches", found.fetch), ("steps", found.loop)):
        if part is not None:
            yield of, part


def _basis(of: str, part: PartLines) -> str:
    one, many = ("fetch", "fetches") if of == "fetches" else ("step", "steps")
    return f"{plural(part.samples, one, many)} of {seconds(part.wall_s)} in all"


def _text(run: Run) -> str | None:
    found = run.lines
    if found is None:
        return None
    blocks = []
    for of, part in _parts(found):
        what = "in fetches" if of == "fetches" else "between batches"
        rows: list[Row] = [(f"Lines {what}", "share", "", "runs", "source")]
        rows += [
            (f"  {place(line)}", percent(line.share), how(line), count(line.hits),
             elided(line.text, limit=60))
            for line in part.lines[:_MOST_TEXT]
        ]  # fmt: skip
        blocks.append(aligned_table(f"Sampled: {_basis(of, part)}", rows) or "")
    return "\n".join(blocks)


def _json(run: Run) -> Object | None:
    found = run.lines
    return None if found is None else values_of(found)


SECTION = Section("lines", (figure,), _text, {"lines": Json(_json, Lines | None)}, traced=False)
