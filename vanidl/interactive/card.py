"""What a notebook shows of a run: name, sentence, the mean step as a bar, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from vanidl.figures import palette
from vanidl.report.overview import make_overview
from vanidl.run import Run
from vanidl.sections.actions import Action
from vanidl.sections.step_bar import Bar
from vanidl.wording.cells import cells_of

MOST_ACTIONS = 3
_COLOURS = {
    "io": palette.IN_WAIT,
    "decode": palette.WRITE,
    "comm": palette.COMMUNICATION,
    "compute": palette.HIDDEN,
    "rest": palette.UNOBSERVED,
}
"""Part of the bar -> its colour; sites strip style sheets from notebooks, not colours."""


def card(run: Run) -> str:
    """HTML without script, style sheet or address: it shows in trusted and other notebooks."""
    screen = make_overview(run)
    name = " · ".join([screen.name, *screen.facts])
    return "".join([
        '<div style="max-width:56em">',
        f"<div><small>{escape(name)}</small></div>",
        f"<p><b>{escape(run.answer.ending)}</b></p>" if run.answer.ending else "",
        f"<p><b>{escape(screen.verdict)}</b></p>" if screen.verdict else "",
        f'<p style="font-size:1.25em">{_mark_cells(run.answer.title)}</p>',
        *(_bar(screen.bar) if screen.bar else ()),
        *_actions(screen.actions[:MOST_ACTIONS]),
        "</div>",
    ])  # fmt: skip


def _bar(bar: Bar) -> Iterator[str]:
    """The mean step as a stack, with the same in words for who does not see it."""
    yield f"<div>{escape(bar.title)}</div>"
    yield f'<div role="img" aria-label="{escape(bar.label)}" style="display:flex;height:1.6em">'
    for part in bar.parts:
        yield (
            f'<div title="{escape(part.name)}" style="width:{part.share:.3f}%;'
            f'background:{_COLOURS[part.style]}"></div>'
        )
    yield "</div><div><small>"
    yield "; ".join(escape(f"{part.name} {part.amount} ({part.percent})") for part in bar.parts)
    yield "</small></div>"
    yield from _table(bar)


def _table(bar: Bar) -> Iterator[str]:
    """The bar and its changes as a table, closed until it is asked for."""
    yield f"<details><summary>as table</summary><table><caption>{escape(bar.title)}</caption>"
    yield '<tr><th scope="col">part</th><th scope="col">time</th><th scope="col">share</th></tr>'
    rows = [(part.key, part.name, part.amount, part.percent) for part in bar.parts]
    rows += [("", f"if: {ghost.name}", ghost.amount, ghost.basis) for ghost in bar.ghosts]
    for key, name, *cells in rows:
        yield f'<tr><th scope="row">{escape(name)}</th>'
        yield "".join(f"<td{_name_cell(key)}>{escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</table></details>"


def _actions(actions: Sequence[Action]) -> Iterator[str]:
    if not actions:
        return
    yield "<ol>"
    for action in actions:
        effect = f" ({_mark_cells(action.effect)})" if action.effect else ""
        reason = _mark_cells(action.reason)
        yield f"<li><b>{escape(action.title)}</b>{effect}<br/>{reason}</li>"
    yield "</ol>"


def _name_cell(key: str) -> str:
    """The attribute of a number that is of a cell."""
    return f' data-cell="{escape(key)}"' if key else ""


def _mark_cells(sentence: str) -> str:
    """A sentence in which numbers of cells carry their keys."""
    pieces, done = list[str](), 0
    for cell in cells_of(sentence):
        pieces.append(escape(sentence[done : cell.at]))
        pieces.append(f"<span{_name_cell(cell.key)}>{escape(cell.text)}</span>")
        done = cell.at + len(cell.text)
    return "".join([*pieces, escape(sentence[done:])])
