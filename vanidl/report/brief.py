"""The summary on one screen: verdict, sentence, bar of the step in characters, actions.

Lines are made of pieces with a style, so that a terminal can colour what a pipe gets plain.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vanidl.dataclass import dataclass
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import printable
from vanidl.formatting.units import percent
from vanidl.report.overview import Overview, make_overview
from vanidl.run import Run
from vanidl.sections.actions import Action
from vanidl.sections.step_bar import Bar, BarPart

LINES, WIDTH = 25, 80  # a terminal as it opens
_SENTENCES = 7  # lines of verdict, headline and what stands beside it
_ACTIONS = 3
_MORE = (
    "Tables and evidence: vanidl summary --full {0}; page: vanidl report {0}",
    "More: vanidl summary --full {0}; vanidl report {0}",
    "More: vanidl summary --full {0}",
)
_SHORTEST_NAME = 8
_BLOCKS = "█▓▒░▚▞▌▄"
_ASCII = "#%+-=.:o"
_STYLES = {
    "io": "red", "run-io": "red", "decode": "magenta", "comm": "yellow", "compute": "blue",
    "rest": "bright_black",
}  # fmt: skip
_SEVERITY = {"high": "bold red", "medium": "bold yellow", "low": "bold"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a line; `style` in the words of rich."""

    text: str
    style: str = ""


Line = tuple[Piece, ...]


def brief(run: Run, width: int = WIDTH, *, blocks: bool = True) -> list[Line]:
    """At most `LINES` lines of at most `width` columns; with `blocks` the bar is of block signs."""
    screen = make_overview(run)
    signs = _BLOCKS if blocks else _ASCII
    end = list(_end(run, screen, width))
    head = list(_sentences(run, screen, width))
    bar = list(_bar(screen.bar, width, signs)) if screen.bar else []
    room = LINES - len(head) - len(bar) - len(end)
    lines = [*head, *bar, *_actions(screen.actions, width, room), *end]
    return [_cut(line, width) for line in lines]


def _cut(line: Line, width: int) -> Line:
    """The line up to the last column."""
    pieces, left = [], width
    for piece in line:
        pieces.append(Piece(piece.text[:left], piece.style))
        left -= len(pieces[-1].text)
    return tuple(piece for piece in pieces if piece.text)


def plain(lines: Sequence[Line]) -> str:
    """The lines as text without styles."""
    return "".join("".join(piece.text for piece in line) + "\n" for line in lines)


def _wrapped(text: str, width: int, style: str = "", indent: str = "") -> list[Line]:
    rows = textwrap.wrap(
        printable(text), width, initial_indent=indent, subsequent_indent=indent,
        break_on_hyphens=False,
    )  # fmt: skip
    return [(Piece(row, style),) for row in rows]


def _sentences(run: Run, screen: Overview, width: int) -> Iterator[Line]:
    """How it failed, verdict and headline, then as much of what stands beside it as has room."""
    said = _wrapped(run.answer.ending, width, "bold red") if run.answer.ending else []
    said += _wrapped(screen.verdict, width, "bold green") if screen.verdict else []
    said += _wrapped(run.answer.title, width, "bold")
    for sentence in run.answer.support:
        more = _wrapped(sentence, width)
        if len(said) + len(more) <= _SENTENCES:
            said += more
    yield from said[:_SENTENCES]


def _bar(bar: Bar, width: int, signs: str) -> Iterator[Line]:
    yield ()
    yield (Piece(f"{bar.title} ", "bold"), Piece(f"({bar.note})"))
    shown = _largest(bar.parts, len(signs))
    parts = list(zip(shown, signs, strict=False))
    # Ends are rounded, not lengths: so the bar is as wide as the screen whatever the shares are.
    ends = [round(width * sum(p.share for p in shown[: i + 1]) / 100) for i in range(len(parts))]
    begins = [0, *ends[:-1]]
    yield tuple(
        Piece(sign * (end - begin), _STYLES[part.style])
        for (part, sign), begin, end in zip(parts, begins, ends, strict=True)
        if end > begin
    )
    # What each sign is, as many to a line as fit.
    row: list[Piece] = []
    for part, sign in parts:
        entry = f" {part.name} {part.amount} ({part.percent})"
        used = sum(len(piece.text) for piece in row)
        if row and used + 3 + len(sign + entry) > width:
            yield tuple(row)
            row = []
        row += [Piece("   ")] if row else []
        row += [Piece(sign, _STYLES[part.style]), Piece(entry)]
    yield tuple(row)


def _largest(parts: Sequence[BarPart], most: int) -> Sequence[BarPart]:
    """The parts that have a sign, in order; behind them what all smaller ones take together."""
    if len(parts) <= most:
        return parts
    small = sorted(parts, key=lambda part: part.share)[: len(parts) - most + 1]
    together = sum(part.share for part in small)
    others = replace(
        small[-1],
        style="rest",
        name=f"{len(small)} smaller parts",
        amount="together",
        percent=percent(together / 100),
        share=together,
    )
    return [*(part for part in parts if part not in small), others]


def _actions(actions: Sequence[Action], width: int, room: int) -> Iterator[Line]:
    """The first actions, as many as have room, each in one line or two and its reason in one."""
    if not actions:
        return
    yield ()
    blocks = [list(_one(i, action, width)) for i, action in enumerate(actions[:_ACTIONS], start=1)]
    while sum(map(len, blocks)) > room - 2:  # one line is empty, one says how many more there are
        blocks.pop()
    for block in blocks:
        yield from block
    if len(actions) > len(blocks):
        yield (Piece(f"{len(actions) - len(blocks)} more with --full", "bright_black"),)


def _one(number: int, action: Action, width: int) -> Iterator[Line]:
    mark = f"{number}. "
    title = elided(action.title, limit=width - len(mark))
    if action.effect and len(mark) + len(title) + 2 + len(action.effect) <= width:
        yield (
            Piece(mark, _SEVERITY[action.severity]), Piece(title, "bold"), Piece(": "),
            Piece(action.effect, "green"),
        )  # fmt: skip
    else:
        yield (Piece(mark, _SEVERITY[action.severity]), Piece(title, "bold"))
        if action.effect:
            yield (Piece(f"   {elided(action.effect, limit=width - 3)}", "green"),)
    codes = ", ".join(item.code for item in action.evidence)
    reason = f"{action.reason} ({codes})"
    if len(reason) > width - 3:
        reason = elided(action.reason, limit=2 * (width - 3))
    yield from _wrapped(reason, width, indent="   ")


def _end(run: Run, screen: Overview, width: int) -> Iterator[Line]:
    """What the numbers rest on, and where there is more."""
    yield ()
    trust = ", ".join(link.text for link in screen.trust)
    about = f"{trust}; {', '.join(screen.facts[-2:])}."
    room = max(2 * width - 12 - len(about), _SHORTEST_NAME)
    yield from _wrapped(f"{elided(screen.name, limit=room)}: {about}", width)
    # The path as given, to be copied; of a long one what is most asked for.
    given = shlex.quote(printable(run.path or "RUN"))
    lines = [more.format(given) for more in _MORE]
    line = next((line for line in lines if len(line) <= width), _MORE[0].format("RUN")[:width])
    yield (Piece(line, "bright_black"),)
