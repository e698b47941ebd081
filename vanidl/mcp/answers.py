"""What the tools answer about known runs: parts of the JSON outputs, small enough to be read.

A server speaks of the runs below the folders that it was started with, no others (`KnownRuns`).
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from heapq import nlargest
from pathlib import Path
from typing import Any

from vanidl.compare.json import make_object
from vanidl.compare.runs import compare_runs
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError, UsageError
from vanidl.formatting.from_logs import clean_paths
from vanidl.formatting.names import elided
from vanidl.frames import plain_frame
from vanidl.model.run_facts import describe_ending
from vanidl.readers import run_folder
from vanidl.readers.discover import find_runs, get_signature, is_within
from vanidl.report.summary import summary_object
from vanidl.run import Run, open_run

Object = dict[str, Any]

MOST_CHARACTERS = 20_000
"""An answer is never longer."""
MOST_ROWS = 50
_MOST_TEXT = 600
_ITEMS = (MOST_ROWS, 20, 10, 5, 3, 2, 1, 0)
_SUMMARY = (
    "headline", "headline_cells", "verdict", "job", "coverage", "io", "storage", "steps", "overlap",
    "throughput", "step_parts",
)  # fmt: skip


class Answers:
    """The answers about the runs that are known."""

    def __init__(self, known: KnownRuns) -> None:
        self._known = known

    def runs(self) -> str:
        """The names of the runs that can be asked about, and how those ended that failed."""
        names = self._known.names()
        endings = self._known.endings(names[:MOST_ROWS])
        return bound_answer({"runs": names} | ({"endings": endings} if endings else {}))

    def summary(self, run: str) -> str:
        """How long training waited for input, how much I/O there was, and what was hidden."""
        content = summary_object(self._known.open(run))
        return bound_answer({name: content[name] for name in _SUMMARY})

    def findings(self, run: str) -> str:
        """What was found, most severe first, with evidence, advice and bounds on the gain."""
        content = summary_object(self._known.open(run))
        return bound_answer(
            {
                name: content[name]
                for name in ("headline", "headline_cells", "diagnoses", "findings")
            }
        )

    def what_if(self, run: str) -> str:
        """Predicted step times of changes, such as more workers or faster storage."""
        content = summary_object(self._known.open(run))
        return bound_answer(
            {name: content[name] for name in ("headline", "headline_cells", "what_if")}
        )

    def compare(self, a: str, b: str) -> str:
        """What changed from run a to run b, by how much, and how sure that is."""
        paths = [self._known.path(name) for name in (a, b)]
        content = make_object(compare_runs(*paths, labels=(a, b)).comparison)
        del content["comparisons"]
        return bound_answer(content)

    def steps(self, run: str, first: int = 0, count: int = 20) -> str:
        """Training steps, one row per step and rank: duration, input wait, I/O, hidden I/O."""
        opened = self._known.open(run)
        frame = opened.frame("steps")
        columns = [name for name in frame.columns if not name.startswith("slowest_files")]
        shown = frame[columns].iloc[_require_window(first, count)]
        rows = plain_frame(shown).to_dict("records")
        return bound_answer(
            _describe_ending(opened) | {"of": len(frame), "first": first, "steps": rows}
        )

    def files(self, run: str, first: int = 0, count: int = 20) -> str:
        """Files, those with most time in I/O first: reads, writes, bytes, seconds, ranks."""
        opened = self._known.open(run)
        rows = plain_frame(opened.frame("files")).to_dict("records")
        rows.sort(key=lambda row: (-(row["io_s"] or 0.0), -row["bytes_read"], row["file"]))
        shown = rows[_require_window(first, count)]
        return bound_answer(
            _describe_ending(opened) | {"of": len(rows), "first": first, "files": shown}
        )


def _describe_ending(run: Run) -> Object:
    """That the program failed, before anything else of it; nothing where it did not."""
    return {"ending": run.answer.ending} if run.answer.ending else {}


def _require_window(first: int, count: int) -> slice:
    if first < 0 or not 0 < count <= MOST_ROWS:
        raise UsageError(
            f"expected first from 0 on and count from 1 to {MOST_ROWS}, found {first} and {count}."
        )
    return slice(first, first + count)


def bound_answer(content: Object) -> str:
    """The content as JSON of at most MOST_CHARACTERS: long lists and texts are cut, and say so."""
    for items in _ITEMS:
        left_out: dict[str, str] = {}
        short = _cut_value(content, items, "", left_out)
        text = json.dumps(short | ({"left_out": left_out} if left_out else {}), allow_nan=False)
        if len(text) <= MOST_CHARACTERS:
            return text
    return json.dumps({"left_out": "everything: too long to answer"})


def _cut_value(value: Any, items: int, path: str, left_out: dict[str, str]) -> Any:  # noqa: ANN401
    """The value with nothing that is long or unprintable; what was cut is added to `left_out`."""
    if isinstance(value, str):
        return elided(value, limit=_MOST_TEXT)
    if isinstance(value, Mapping):
        names = _keep_first(list(value), items, path, left_out) if len(value) > MOST_ROWS else value
        return {
            elided(str(name)): _cut_value(value[name], items, f"{path}.{name}".strip("."), left_out)
            for name in names
        }
    if isinstance(value, list | tuple):
        kept = _keep_first(value, items, path, left_out)
        return [_cut_value(each, items, path, left_out) for each in kept]
    # Numbers of numpy as Python's; what is not a number was not recorded: null.
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _keep_first(
    values: Sequence[Any], items: int, path: str, left_out: dict[str, str]
) -> Sequence[Any]:
    if len(values) > items:
        left_out[elided(path)] = f"all but the first {items} of {len(values)}"
    return values[:items]


def _find_nearest(name: str, names: Iterable[str]) -> list[str]:
    """The names most like it, that one first: by the whole, or by what stands last in a path."""
    alike = SequenceMatcher(b=name)  # which keeps what it knows of b

    def score(other: str) -> float:
        scores = []
        for part in {other, other.rpartition("/")[2]}:
            alike.set_seq1(part)
            scores.append(alike.ratio())
        return max(scores)

    return nlargest(_MOST_NEAR, names, key=score)


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


_LONGEST, _MOST_NEAR = 200, 3  # characters of a name that are looked at, and names in an error
MOST_KEPT = 4
"""Opened runs that are kept; the one that was asked for longest ago goes first."""


class KnownRuns:
    """Runs by name: that of a root, and the path below it. A name is looked up, never opened."""

    def __init__(self, roots: Sequence[str | Path]) -> None:
        """Takes the folders.

        Raises:
            UsageError: one is no folder, or two have the same name.
        """
        self._roots = {Path(root).resolve().name or "root": Path(root).resolve() for root in roots}
        for root in roots:
            if not Path(root).is_dir():
                raise UsageError(f"{root}: expected a folder with runs in it, found none.")
        if len(self._roots) < len(roots):
            raise UsageError("expected folders of different names, found two with the same.")
        self._kept: OrderedDict[object, Run] = OrderedDict()
        self._listed: dict[str, Path] = {}

    def names(self) -> list[str]:
        """The names of all runs as they are now."""
        return list(self._list_paths())

    def endings(self, names: Sequence[str]) -> dict[str, str]:
        """How the programs of these runs ended, in words, by name: of those that failed."""
        found, roots = dict[str, str](), tuple(self._roots.values())
        paths = {name: self._listed[name] for name in names if name in self._listed}
        for name in paths:
            record = paths[name] / run_folder.RECORD_NAME
            if record.is_file() and is_within(paths[name], roots):
                with suppress(InputError):  # opening the run says that it is damaged
                    found[name] = describe_ending(read_one(run_folder.read_record, record).ending)
        return {name: words for name, words in found.items() if words}

    def path(self, name: str) -> Path:
        """Where a run is.

        Raises:
            InputError: no run has this name, or a file of it lies outside the roots.
        """
        paths = self._listed
        if name not in paths or not paths[name].exists():  # listing many folders takes its time
            paths = self._list_paths()
        if name not in paths:
            near = _find_nearest(name[:_LONGEST], paths)
            listed = f" Nearest names: {', '.join(map(elided, near))}." if near else ""
            raise InputError(
                f'expected a name that the tool "runs" lists, found {elided(name)!r}.{listed}'
            )
        if not is_within(paths[name], tuple(self._roots.values())):
            raise InputError(f"{elided(name)}: a file of it is a link to outside: not read.")
        return paths[name]

    def open(self, name: str) -> Run:
        """The run, kept while its files stay the same.

        Raises:
            InputError: no run has this name, or it cannot be read.
        """
        path = self.path(name)
        key = get_signature(path)
        run = self._kept.pop(key, None) or open_run(path)
        self._kept[key] = run
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return run

    def _list_paths(self) -> dict[str, Path]:
        found = {
            base if name == "." else f"{base}/{name}": path
            for base, root in self._roots.items()
            for name, path in find_runs(root).items()
        }
        self._listed = dict(zip(clean_paths(tuple(found)), found.values(), strict=True))
        return self._listed
