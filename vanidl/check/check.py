"""Are these logs whole, and what do they miss? One verdict a file."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from vanidl.errors import InputError
from vanidl.formatting.names import printable
from vanidl.formatting.units import percent, plural
from vanidl.readers import discover, registry
from vanidl.readers.discover import explain_foreign
from vanidl.readers.format import FileKind, Opening, Progress
from vanidl.readers.verdict import FOREIGN, STATES, UNREADABLE, Verdict, report_empty
from vanidl.schema.schema import Kind, fields_of

_Entry = tuple[FileKind | None, Path]


def check(paths: Sequence[str | Path], progress: Progress | None = None) -> tuple[Verdict, ...]:
    """One verdict for each log and trace file at the paths, in order of path within each.

    A path is a file, or a folder that is searched as for any command. Nothing raises: what
    cannot be read is a verdict too.
    """
    entries = [entry for path in paths for entry in _find_entries(Path(path))]
    counter = _Counter(progress, len(entries))
    verdicts: dict[int, Verdict] = {}
    # Format by format, each with all of its files; then what no format takes for its own.
    for known in registry.FORMATS:
        mine = [(i, kind, path) for i, (kind, path) in enumerate(entries) if kind in known.kinds]
        if mine:
            files = [(kind, path) for _, kind, path in mine if kind]
            answers = known.check(files, counter.step)
            verdicts |= {i: answer for (i, _, _), answer in zip(mine, answers, strict=True)}
    for i, (kind, path) in enumerate(entries):
        if kind is None:
            counter.step()
            verdicts[i] = _judge_stranger(path)
    return tuple(verdicts[i] for i in range(len(entries)))


class _Counter:
    """Tells of each file before it is checked."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._done, self._total = 0, total

    def step(self) -> None:
        """The next file is about to be checked."""
        if self._progress:
            self._progress("files", self._done, self._total)
        self._done += 1


def _find_entries(path: Path) -> list[_Entry]:
    """(kind, file) for everything at a path."""
    try:
        found = discover.find(path)
    except InputError:
        strangers = discover.find_strangers(path) if path.is_dir() else {}
        return [(None, each) for each in strangers or [path]]
    return [
        (kind, file)
        for known in registry.FORMATS
        for kind, files in found.of(known).items()
        for file in files
    ]


def _judge_stranger(path: Path) -> Verdict:
    """A file that is of no known format: why, as far as can be told."""
    state, kind = FOREIGN, ""
    why = "neither its name nor its first bytes are those of a log or a profile"
    if path.is_dir():
        kind = "folder"
        why = "expected logs or profiler output in this folder, found none; give another folder"
    elif not path.exists():
        state, why = UNREADABLE, "nothing is there under this name; check the path"
    elif not path.is_file():
        why = "expected a file, found a pipe, a socket or a device: save what it gives to a file"
    elif path.stat().st_size == 0:
        return report_empty(path, kind)
    else:
        # It may be something that is often taken for a log.
        with suppress(OSError):
            why = explain_foreign(Opening(path)) or why
    return Verdict(str(path), kind, state, read=False, missing=(why,))


# Verdicts on logs as one table, or as JSON.

SCHEMA = "vanidl/check/1"
WIDTH = 98  # columns of a line
MOST_A_STATE = 100  # files of a state that are listed, unless all are asked for
MOST_SENTENCES = 20  # about one file
_HEAD = ("state", "version", "traced", "kind", "file")


def check_text(verdicts: Sequence[Verdict], *, every: bool = False) -> str:
    """One line a file with what it lacks below it, and how many there are of each state.

    Of thousands of files the first of each state, unless `every` one is asked for.
    """
    listed = list(verdicts) if every else _keep_first(verdicts)
    rows = [_list_row(verdict) for verdict in listed]
    widths = [max(len(row[i]) for row in [_HEAD, *rows]) for i in range(len(_HEAD) - 1)]
    lines = [_pad_cells(_HEAD, widths)]
    for verdict, row in zip(listed, rows, strict=True):
        lines.append(_pad_cells(row, widths))
        lines += [
            textwrap.fill(
                printable(sentence), WIDTH, initial_indent="    - ", subsequent_indent="      "
            )
            for sentence in verdict.missing
        ]
    more = ", ".join(f"{n:,} {state}" for state, n in _count_left_out(verdicts, listed).items())
    lines += ["", f"and {more} more: --all lists them"] * bool(more)
    # How many there are of each state, and what the states mean.
    counts = _count_states(verdicts)
    total = ", ".join(f"{number:,} {state}" for state, number in counts.items())
    lines += ["", f"{plural(len(verdicts), 'file')}: {total}"]
    lines += [f"  {state}: {STATES[state]}" for state in counts if state != "whole"]
    return "\n".join(lines) + "\n"


def check_object(verdicts: Sequence[Verdict], *, every: bool = False) -> dict[str, Any]:
    """The same for programs: files, their states and what they lack; unknown is null."""
    listed = list(verdicts) if every else _keep_first(verdicts)
    return {
        "schema": SCHEMA,
        "files": len(verdicts),
        "states": _count_states(verdicts),
        "checked": [_collect_entry(verdict) for verdict in listed],
        "left_out": _count_left_out(verdicts, listed),
    }


def check_json(verdicts: Sequence[Verdict], *, every: bool = False) -> str:
    """`check_object` as text."""
    return json.dumps(check_object(verdicts, every=every), indent=2, allow_nan=False) + "\n"


def _keep_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Of each state the first, of each the first sentences."""
    seen: Counter[str] = Counter()
    kept = []
    for verdict in verdicts:
        seen[verdict.state] += 1
        if seen[verdict.state] > MOST_A_STATE:
            continue
        more = len(verdict.missing) - MOST_SENTENCES
        if more > 0:
            cut = (*verdict.missing[:MOST_SENTENCES], f"and {more:,} more")
            verdict = replace(verdict, missing=cut)
        kept.append(verdict)
    return kept


def _count_left_out(verdicts: Sequence[Verdict], listed: Sequence[Verdict]) -> dict[str, int]:
    """How many files of each state are not listed."""
    shown = _count_states(listed)
    left = {state: n - shown.get(state, 0) for state, n in _count_states(verdicts).items()}
    return {state: n for state, n in left.items() if n}


def _list_row(verdict: Verdict) -> tuple[str, ...]:
    kind = verdict.kind or "unknown kind"
    return (
        verdict.state,
        printable(verdict.version) or "-",
        _describe_traced(verdict),
        kind,
        printable(verdict.path),
    )


def _describe_traced(verdict: Verdict) -> str:
    """The traced share of each layer with a trace; a dash where the share is not known."""
    known = [c for c in verdict.layers if c.traced_fraction is not None]
    if known:
        return ", ".join(f"{percent(c.traced_fraction)} {c.layer}" for c in known)
    counted = any(c.counted_ops for c in verdict.layers)
    return "no trace" if counted and all(c.traced_ops is None for c in verdict.layers) else "-"


def _pad_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, cells[-1]])


def _count_states(verdicts: Sequence[Verdict]) -> dict[str, int]:
    counts = Counter(verdict.state for verdict in verdicts)
    return {state: counts[state] for state in STATES if counts[state]}


def _collect_entry(verdict: Verdict) -> dict[str, Any]:
    layers = {
        c.layer: {
            "counted_ops": c.counted_ops,
            "traced_ops": c.traced_ops,
            "traced_fraction": c.traced_fraction,
        }
        for c in verdict.layers
    }
    return asdict(verdict) | {
        "kind": verdict.kind or None,
        "version": verdict.version or None,
        "layers": layers,
    }


_COUNTS = {"counted_ops": int | None, "traced_ops": int | None, "traced_fraction": float | None}
KIND: Kind = {
    "schema": Literal[SCHEMA],
    "files": int,
    "states": {str: int},
    "checked": [
        fields_of(Verdict) | {"kind": str | None, "version": str | None, "layers": {str: _COUNTS}}
    ],
    "left_out": {str: int},
}
"""What `check_object` gives."""
