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
from vanidl.survey.jobs import state_of

Identity = tuple[str, TracerLog | None, str]
"""(path, who wrote the log, why that cannot be said); exactly one of the last two is set."""

FILE = "logs.known"
_VERSION = 1  # raised when `TracerLog` comes to say more of who wrote a log
_UNREAD: dict[str, Any] = {
    "metadata": {}, "mounts": (), "names": {}, "modules": (), "operations": (),
    "partial_layers": (), "losses": (),
}  # fmt: skip
"""What an identity leaves out of a log (`read_identity`)."""


class KnownLogs:
    """The identities in the folder of what is done; `kept`: whether names may stay there."""

    def __init__(self, folder: Path, *, kept: bool) -> None:
        self._file, self._kept = folder / FILE, kept
        self._stored = _stored(self._file) if kept else {}

    def identities(
        self, paths: Sequence[str], read: Callable[[Sequence[str]], Sequence[Identity]]
    ) -> list[Identity]:
        """Those of all paths, sorted by them; `read` is asked for the ones that are new or changed.

        Raises:
            VanidlError: they cannot be written.
        """
        states = {path: state_of(path) for path in paths}
        known = {path: log for path, state in states.items() if (log := self._log(path, state))}
        new = read([path for path in paths if path not in known])
        found: list[Identity] = [*((path, log, "") for path, log in known.items()), *new]
        if self._kept and (any(log for _, log, _ in new) or len(known) < len(self._stored)):
            self._write(found, states)
        return sorted(found, key=lambda one: one[0])

    def _log(self, path: str, state: str) -> TracerLog | None:
        """The log of a path whose file is as it was; None where nothing sound is stored."""
        stored = self._stored.get(state)
        if stored is None:
            return None
        with suppress(KeyError, TypeError):
            return TracerLog(**checked_fields(TracerLog, stored) | _UNREAD | {"path": path})
        return None

    def _write(self, found: Sequence[Identity], states: Mapping[str, str]) -> None:
        logs = {states[path]: _fields(log) for path, log, _ in found if log is not None}
        with suppress(TypeError):  # a name that is no text: these logs are read again
            content = orjson.dumps({"version": _VERSION, "logs": logs})
            write_whole(self._file, content, "what is known of the logs", private=True)


def _fields(log: TracerLog) -> dict[str, Any]:
    return checked_fields(TracerLog, {name: getattr(log, name) for name in log.__slots__})


def _stored(file: Path) -> dict[str, Any]:
    """By the state of its file; empty where it is of another version or damaged."""
    with suppress(OSError, ValueError, TypeError, KeyError, InputError, RecursionError):
        content = orjson.loads(read_whole(file))
        if content["version"] == _VERSION:
            return dict(content["logs"])
    return {}
