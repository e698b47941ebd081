"""The runs that a server may speak of: those below the folders it was started with, no others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError, UsageError
from vanidl.formatting.from_logs import clean_paths
from vanidl.formatting.names import elided
from vanidl.readers import run_json
from vanidl.readers.runs_below import lies_within, runs_below, signature
from vanidl.run import Run, open_run
from vanidl.wording.ending import ending_words

_LONGEST, _ALIKE = 200, 0.6  # characters of a name, and how alike others must be to be named
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

    def names(self) -> list[str]:
        """The names of all runs as they are now."""
        return list(self._paths())

    def endings(self, names: Sequence[str]) -> dict[str, str]:
        """How the programs of these runs ended, in words, by name: of those that failed."""
        found, paths, roots = dict[str, str](), self._paths(), tuple(self._roots.values())
        for name in names:
            record = paths[name] / run_json.NAME
            if record.is_file() and lies_within(paths[name], roots):
                with suppress(InputError):  # opening the run says that it is damaged
                    found[name] = ending_words(read_one(run_json.read_record, record).ending)
        return {name: words for name, words in found.items() if words}

    def path(self, name: str) -> Path:
        """Where a run is.

        Raises:
            InputError: no run has this name, or a file of it lies outside the roots.
        """
        paths = self._paths()
        if name not in paths:
            near = get_close_matches(name[:_LONGEST], paths, 3, _ALIKE)
            listed = f" Names like it: {', '.join(map(elided, near))}." if near else ""
            raise InputError(
                f'expected a name that the tool "runs" lists, found {elided(name)!r}.{listed}'
            )
        if not lies_within(paths[name], tuple(self._roots.values())):
            raise InputError(f"{elided(name)}: a file of it is a link to outside: not read.")
        return paths[name]

    def open(self, name: str) -> Run:
        """The run, kept while its files stay the same.

        Raises:
            InputError: no run has this name, or it cannot be read.
        """
        path = self.path(name)
        key = signature(path)
        run = self._kept.pop(key, None) or open_run(path)
        self._kept[key] = run
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return run

    def _paths(self) -> dict[str, Path]:
        found = {
            base if name == "." else f"{base}/{name}": path
            for base, root in self._roots.items()
            for name, path in runs_below(root).items()
        }
        return dict(zip(clean_paths(tuple(found)), found.values(), strict=True))
