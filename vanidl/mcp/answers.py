"""What the tools answer: parts of the JSON outputs, made small enough to be read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vanidl.compare.json import make_object
from vanidl.compare.runs import compare_runs
from vanidl.errors import UsageError
from vanidl.formatting.names import elided
from vanidl.frames import plain_frame
from vanidl.mcp.known_runs import KnownRuns
from vanidl.report.json import summary_object
from vanidl.run import Run

Object = dict[str, Any]

MOST_CHARACTERS = 20_000
"""An answer is never longer."""
MOST_ROWS = 50
_MOST_TEXT = 600
_ITEMS = (MOST_ROWS, 20, 10, 5, 3, 2, 1, 0)
_SUMMARY = (
    "headline", "verdict", "job", "coverage", "io", "storage", "steps", "overlap", "throughput",
    "step_parts",
)  # fmt: skip


class Answers:
    """The answers about the runs that are known."""

    def __init__(self, known: KnownRuns) -> None:
        self._known = known

    def runs(self) -> str:
        """The names of the runs that can be asked about, and how those ended that failed."""
        names = self._known.names()
        endings = self._known.endings(names[:MOST_ROWS])
        return bounded({"runs": names} | ({"endings": endings} if endings else {}))

    def summary(self, run: str) -> str:
        """How long training waited for input, how much I/O there was, and what was hidden."""
        content = summary_object(self._known.open(run))
        return bounded({name: content[name] for name in _SUMMARY})

    def findings(self, run: str) -> str:
        """What was found, most severe first, with evidence, advice and bounds on the gain."""
        content = summary_object(self._known.open(run))
        return bounded({name: content[name] for name in ("headline", "diagnoses", "findings")})

    def what_if(self, run: str) -> str:
        """Predicted step times of changes, such as more workers or faster storage."""
        content = summary_object(self._known.open(run))
        return bounded({name: content[name] for name in ("headline", "what_if")})

    def compare(self, a: str, b: str) -> str:
        """What changed from run a to run b, by how much, and how sure that is."""
        paths = [self._known.path(name) for name in (a, b)]
        content = make_object(compare_runs(*paths, labels=(a, b)).comparison)
        del content["comparisons"]
        return bounded(content)

    def steps(self, run: str, first: int = 0, count: int = 20) -> str:
        """Training steps, one row per step and rank: duration, input wait, I/O, hidden I/O."""
        opened = self._known.open(run)
        frame = opened.frame("steps")
        columns = [name for name in frame.columns if not name.startswith("slowest_files")]
        shown = frame[columns].iloc[_window(first, count)]
        rows = plain_frame(shown).to_dict("records")
        return bounded(_ending(opened) | {"of": len(frame), "first": first, "steps": rows})

    def files(self, run: str, first: int = 0, count: int = 20) -> str:
        """Files, those with most time in I/O first: reads, writes, bytes, seconds, ranks."""
        opened = self._known.open(run)
        rows = plain_frame(opened.frame("files")).to_dict("records")
        rows.sort(key=lambda row: (-(row["io_s"] or 0.0), -row["bytes_read"], row["file"]))
        shown = rows[_window(first, count)]
        return bounded(_ending(opened) | {"of": len(rows), "first": first, "files": shown})


def _ending(run: Run) -> Object:
    """That the program failed, before anything else of it; nothing where it did not."""
    return {"ending": run.answer.ending} if run.answer.ending else {}


def _window(first: int, count: int) -> slice:
    if first < 0 or not 0 < count <= MOST_ROWS:
        raise UsageError(
            f"expected first from 0 on and count from 1 to {MOST_ROWS}, found {first} and {count}."
        )
    return slice(first, first + count)


def bounded(content: Object) -> str:
    """The content as JSON of at most MOST_CHARACTERS: long lists and texts are cut, and say so."""
    for items in _ITEMS:
        left_out: dict[str, str] = {}
        short = _cut(content, items, "", left_out)
        text = json.dumps(short | ({"left_out": left_out} if left_out else {}), allow_nan=False)
        if len(text) <= MOST_CHARACTERS:
            return text
    return json.dumps({"left_out": "everything: too long to answer"})


def _cut(value: Any, items: int, path: str, left_out: dict[str, str]) -> Any:  # noqa: ANN401
    """The value with nothing that is long or unprintable; what was cut is added to `left_out`."""
    if isinstance(value, str):
        return elided(value, limit=_MOST_TEXT)
    if isinstance(value, Mapping):
        names = _first(list(value), items, path, left_out) if len(value) > MOST_ROWS else value
        return {
            elided(str(name)): _cut(value[name], items, f"{path}.{name}".strip("."), left_out)
            for name in names
        }
    if isinstance(value, list | tuple):
        kept = _first(value, items, path, left_out)
        return [_cut(each, items, path, left_out) for each in kept]
    return _number(value)


def _first(values: Sequence[Any], items: int, path: str, left_out: dict[str, str]) -> Sequence[Any]:
    if len(values) > items:
        left_out[elided(path)] = f"all but the first {items} of {len(values)}"
    return values[:items]


def _number(value: Any) -> Any:  # noqa: ANN401
    """Numbers of numpy as Python's; what is not a number was not recorded: null."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


TOOLS: tuple[Callable[..., str], ...] = (
    Answers.runs,
    Answers.summary,
    Answers.findings,
    Answers.what_if,
    Answers.compare,
    Answers.steps,
    Answers.files,
)
"""Every tool: its name, arguments and docstring are what an assistant sees."""
