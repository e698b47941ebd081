"""The summary on one screen: verdict, sentence, bar of the step in characters, actions.

Lines are made of pieces with a style, so that a terminal can colour what a pipe gets plain.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vanidl.formatting.names import elided
from vanidl.formatting.terminal import printable
from vanidl.formatting.units import percent
from vanidl.report.overview import make_overview
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
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
    # How it failed, verdict and headline, then as much of what stands beside it as has room.
    head = _wrap_text(run.answer.ending, width, "bold red")
    head += _wrap_text(screen.verdict, width, "bold green")
    head += _wrap_text(run.answer.title, width, "bold")
    for sentence in run.answer.support:
        more = _wrap_text(sentence, width)
        if len(head) + len(more) <= _SENTENCES:
            head += more
    head = head[:_SENTENCES]
    # What the numbers rest on, and where there is more.
    trust = ", ".join(link.text for link in screen.trust)
    about = f"{trust}; {', '.join(screen.facts[-2:])}."
    name = elided(screen.name, limit=max(2 * width - 12 - len(about), _SHORTEST_NAME))
    end: list[Line] = [(), *_wrap_text(f"{name}: {about}", width)]
    # The path as given, to be copied; of a long one what is most asked for.
    given = shlex.quote(printable(run.path or "RUN"))
    pointers = (more.format(given) for more in _MORE)
    shortest = _MORE[0].format("RUN")[:width]
    pointer = next((each for each in pointers if len(each) <= width), shortest)
    end.append((Piece(pointer, "bright_black"),))
    # Between them the bar, and as many actions as have room.
    bar = list(_draw_bar(screen.bar, width, _BLOCKS if blocks else _ASCII)) if screen.bar else []
    room = LINES - len(head) - len(bar) - len(end)
    lines = [*head, *bar, *_list_actions(screen.actions, width, room), *end]
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


def _wrap_text(text: str, width: int, style: str = "", indent: str = "") -> list[Line]:
    rows = textwrap.wrap(
        printable(text), width, initial_indent=indent, subsequent_indent=indent,
        break_on_hyphens=False,
    )  # fmt: skip
    return [(Piece(row, style),) for row in rows]


def _draw_bar(bar: Bar, width: int, signs: str) -> Iterator[Line]:
    """Its title, the bar in signs, and what each sign is."""
    yield ()
    yield (Piece(f"{bar.title} ", "bold"), Piece(f"({bar.note})"))
    shown = _merge_smallest(bar.parts, len(signs))
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


def _merge_smallest(parts: Sequence[BarPart], most: int) -> Sequence[BarPart]:
    """The parts that have a sign, in order; behind them what all smaller ones take together."""
    if len(parts) <= most:
        return parts
    small = sorted(parts, key=lambda part: part.share)[: len(parts) - most + 1]
    share = sum(part.share for part in small)
    others = replace(
        small[-1],
        style="rest",
        name=f"{len(small)} smaller parts",
        amount="together",
        percent=percent(share / 100),
        share=share,
    )
    return [*(part for part in parts if part not in small), others]


def _list_actions(actions: Sequence[Action], width: int, room: int) -> Iterator[Line]:
    """The first actions, as many as have room, each in one line or two and its reason in one."""
    if not actions:
        return
    yield ()
    first = enumerate(actions[:_ACTIONS], start=1)
    blocks = [list(_write_action(number, action, width)) for number, action in first]
    while sum(map(len, blocks)) > room - 2:  # one line is empty, one says how many more there are
        blocks.pop()
    for block in blocks:
        yield from block
    if len(actions) > len(blocks):
        yield (Piece(f"{len(actions) - len(blocks)} more with --full", "bright_black"),)


def _write_action(number: int, action: Action, width: int) -> Iterator[Line]:
    mark = f"{number}. "

    # With its effect on one line where that fits, else below.
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
    # A longer reason goes without the codes, on two lines at most.
    if len(reason) > width - 3:
        reason = elided(action.reason, limit=2 * (width - 3))
    yield from _wrap_text(reason, width, indent="   ")
