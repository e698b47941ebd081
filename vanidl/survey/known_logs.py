"""Who wrote each log, as an earlier survey read it: what did not change is not opened again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from vanidl.errors import InputError
from vanidl.files.atomic import write_whole
from vanidl.files.checked_json import checked_fields
from vanidl.readers.budget import read_whole
from vanidl.readers.records import TracerLog

Identity = tuple[str, TracerLog | None, str]
"""(path, who wrote the log, why that cannot be said); exactly one of the last two is set."""

FILE = "logs.known"
_VERSION = 2  # raised when `TracerLog` comes to say more of who wrote a log, or the lines change
_HEAD = orjson.dumps({"version": _VERSION})
_UNREAD: dict[str, Any] = {
    "metadata": {}, "mounts": (), "names": {}, "modules": (), "operations": (),
    "partial_layers": (), "losses": (),
}  # fmt: skip
"""What an identity leaves out of a log (`read_identity`)."""


class KnownLogs:
    """The identities in the folder of what is done; `kept`: whether names may stay there.

    They lie in a file with a line for each log, [state, fields], so that of many logs none but
    those that are asked for are objects in memory.
    """

    def __init__(self, folder: Path, *, kept: bool) -> None:
        self._file, self._kept = folder / FILE, kept

    def identities(
        self,
        states: Mapping[str, str],
        read: Callable[[Sequence[str]], Sequence[Identity]],
    ) -> list[Identity]:
        """Those of all paths, sorted by them; `read` is asked for the ones that are new or changed.

        `states` are what is seen of the files from outside, by path (`jobs.states_of`).

        Raises:
            VanidlError: they cannot be written.
        """
        by_state = {state: path for path, state in states.items()}
        known, stored = self._known(by_state) if self._kept else ({}, 0)
        new = read([path for path in states if path not in known])
        found: list[Identity] = [*((path, log, "") for path, log in known.items()), *new]
        if self._kept and (any(log for _, log, _ in new) or len(known) < stored):
            self._write(found, states)
        return sorted(found, key=lambda one: one[0])

    def _known(self, by_state: Mapping[str, str]) -> tuple[dict[str, TracerLog], int]:
        """(the logs whose files are as they were, by path; how many are stored in all)."""
        lines = _lines(self._file)
        known = {}
        for line in lines:
            with suppress(ValueError, TypeError, KeyError):  # damaged: read again
                state, fields = orjson.loads(line)
                if (path := by_state.get(state)) is not None:
                    plain = checked_fields(TracerLog, fields)
                    known[path] = TracerLog(**plain | _UNREAD | {"path": path})
        return known, len(lines)

    def _write(self, found: Sequence[Identity], states: Mapping[str, str]) -> None:
        content = bytearray(_HEAD)  # a list of lines took 9 KB a log until it was joined
        for path, log, _ in found:
            if log is not None:
                with suppress(TypeError):  # a name that is no text: this log is read again
                    content += b"\n" + orjson.dumps([states[path], _fields(log)])
        write_whole(self._file, content, "what is known of the logs", private=True)


def _fields(log: TracerLog) -> dict[str, Any]:
    return checked_fields(TracerLog, {name: getattr(log, name) for name in log.__slots__})


def _lines(file: Path) -> list[bytes]:
    """One of each log; none where the file is of another version or not there."""
    with suppress(OSError, InputError):
        head, *lines = read_whole(file).split(b"\n")
        return lines if head == _HEAD else []
    return []
