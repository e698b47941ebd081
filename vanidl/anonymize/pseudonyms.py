"""Names that say nothing about whose they are: the same one for the same thing, all along.

A path keeps its depth, the kind of its file and its ending; what is in /proc, /sys, /dev and
/etc keeps that folder. Hosts, users and commands become numbers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter

from vanidl.model.file_kinds import is_named_checkpoint

_KEPT_FOLDERS = frozenset(("/proc", "/sys", "/dev", "/etc"))
_KEPT_PARTS = frozenset(("", ".", ".."))
_STREAM = re.compile(r"<STD(IN|OUT|ERR)>")
_ENDINGS = frozenset(
    (
        "arrow", "feather", "h5", "hdf5", "he5", "jsonl", "keras", "lmdb", "msgpack", "netcdf",
        "npy", "npz", "onnx", "parquet", "pickle", "safetensors", "shard", "tfrecord", "tfrecords",
        "zarr", "cpython", "darshan", "darshan_partial", "sqlite", "index", "tfevents", "trace",
        "xplane",
    )
)  # fmt: skip
_SHORT_ENDING = 4  # letters; a longer ending is kept only where it is known: it may be a name
_MOST_ENDINGS = 4
_HOME = re.compile(r"^/(?:home|Users|users|u)/([^/]+)")
_LOG_OF = re.compile(r"(?:^|/)([^/]+?)_[^/]*_id\d+[-_][^/]*\.darshan")
_LOOSE = re.compile(r"(?<![\w./<-])(?:~?/[^\s:;,()'\"]{2,}|[^\s/:;,()'\"]+/[^\s/]+/[^\s:;,()'\"]+)")
_WHATS = ("path", "folder", "host", "user", "command", "job")
_START = " \t\n('\"="
_COMMAND_START = 60  # characters of a command that messages quote
_LEAST_NAME = 3


class Pseudonyms:
    """Gives every name a pseudonym, in the order in which it is first asked for."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, str]] = {what: {} for what in _WHATS}
        self._counts: Counter[str] = Counter()
        self._sorted: list[str] | None = None  # paths and folders that text may hold
        self._words: re.Pattern[str] | None = None  # hosts and users

    def path(self, path: str, kind: str = "file") -> str:
        """The pseudonym of a file's path; `kind` is a word for what the file is."""
        known = self._given["path"].get(path)
        if known is not None:
            return known
        if _STREAM.fullmatch(path) or not path:
            return path
        self._learn_users(path)
        folder, slash, name = path.rpartition("/")
        before = self.folder(folder) + slash if slash else ""
        given = f"{before}{self._numbered(_word(name, kind))}{_ending(name)}"
        self._sorted = None
        return self._given["path"].setdefault(path, given)

    def folder(self, path: str) -> str:
        """The pseudonym of a folder, part by part."""
        known = self._given["folder"].get(path)
        if known is not None:
            return known
        before, slash, name = path.rpartition("/")
        if path in _KEPT_FOLDERS or name in _KEPT_PARTS:
            given = f"{self.folder(before) if before else ''}{slash}{name}"
        else:
            given = f"{self.folder(before) if before else ''}{slash}{self._numbered('dir')}"
        self._sorted = None
        return self._given["folder"].setdefault(path, given)

    def host(self, name: str) -> str:
        """The pseudonym of a host; its short and its full name have the same."""
        if not name:
            return name
        known = self._given["host"].get(name)
        if known is None:
            known = self._given["host"][name] = self._name("host", name.split(".")[0])
            self._words = None
        return known

    def command(self, text: str) -> str:
        """The pseudonym of a command; one that is a hash already is left as it is."""
        return text if not text or text.isdecimal() else self._name("command", text)

    def job(self, identity: str | None) -> str | None:
        """A job's id where it is made of numbers, else its pseudonym."""
        if identity is None or re.fullmatch(r"[\d+.\-]*", identity):
            return identity
        return self._name("job", identity)

    def text(self, message: str) -> str:
        """A message with every name replaced that was seen before, and all that looks like a path.

        A name counts where it stands as a word of its own.
        """
        held: list[str] = []
        for given in (self._commands_out, self._paths_out, self._loose_out):
            message = given(message, held)
        message = self._words_out(message)
        return re.sub("\ue000(\\d+)\ue001", lambda m: held[int(m[1])], message)

    def _name(self, what: str, name: str) -> str:
        if name not in self._given[what]:
            self._given[what][name] = self._numbered(what)
            self._words = None
        return self._given[what][name]

    def _numbered(self, word: str) -> str:
        self._counts[word] += 1
        return f"{word}-{self._counts[word]}"

    def _learn_users(self, path: str) -> None:
        for pattern in (_HOME, _LOG_OF):
            found = pattern.search(path)
            if found:
                self._name("user", found[1])

    def _commands_out(self, message: str, held: list[str]) -> str:
        commands = self._given["command"].items()
        for command, given in sorted(commands, key=lambda pair: -len(pair[0])):
            for form in (command, command[:_COMMAND_START]):
                if len(form) >= _LEAST_NAME and form in message:
                    message = message.replace(form, _hold(given, held))
        return message

    def _paths_out(self, message: str, held: list[str]) -> str:
        """Known paths and folders, spaces in them and all, wherever one may begin."""
        out, at = "", 0
        while at < len(message):
            begins = message[at] == "/" or not at or message[at - 1] in _START
            found = self._known_at(message, at) if begins else ""
            if found:
                out += _hold(self._pseudonym(found), held)
                at += len(found)
            else:
                out += message[at]
                at += 1
        return out

    def _known_at(self, message: str, at: int) -> str:
        """The longest known path that stands in the message from here on, "" for none."""
        if self._sorted is None:
            names = {*self._given["path"], *self._given["folder"]}
            self._sorted = sorted(names - _KEPT_PARTS)
        rest = message[at:]
        while rest:
            place = bisect_right(self._sorted, rest)
            if not place:
                return ""
            before = self._sorted[place - 1]
            if rest.startswith(before):
                return before
            rest = rest[: _common(before, rest)]
        return ""

    def _pseudonym(self, path: str) -> str:
        return self._given["path"].get(path) or self._given["folder"][path]

    def _loose_out(self, message: str, held: list[str]) -> str:
        return _LOOSE.sub(lambda m: _hold(self.path(m[0]), held), message)

    def _words_out(self, message: str) -> str:
        names = self._given["user"] | self._given["host"]
        if self._words is None:
            longest = sorted((n for n in names if len(n) >= _LEAST_NAME), key=len, reverse=True)
            words = "|".join(map(re.escape, longest)) or "(?!)"
            self._words = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")
        return self._words.sub(lambda m: names[m[0]], message)


def _hold(given: str, held: list[str]) -> str:
    """A mark in place of a pseudonym, so that no later step reads it."""
    held.append(given)
    return f"\ue000{len(held) - 1}\ue001"


def _common(a: str, b: str) -> int:
    """Characters that both begin with."""
    differs = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differs, min(len(a), len(b)))


def _word(name: str, kind: str) -> str:
    """What the file is, in the words that other parts of vanidl look for in a name."""
    if "tfrecord" in name.lower():
        return f"{kind}-tfrecord"
    if kind == "checkpoint" and not is_named_checkpoint(name):
        return "written"
    return kind


def _ending(name: str) -> str:
    parts = name.split(".")
    kept: list[str] = []
    for part in reversed(parts[1:]):
        plain = part.isascii() and part.isalnum()
        known = part.lower() in _ENDINGS or (plain and len(part) <= _SHORT_ENDING)
        if not known or len(kept) == _MOST_ENDINGS:
            break
        kept.insert(0, f".{part}")
    return "".join(kept)
