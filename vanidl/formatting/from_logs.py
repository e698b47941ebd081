"""The gate for text that comes from logs: what is past it may be shown to anybody.

Whatever a reader takes from a file passes here before anything else sees it: secrets masked,
control characters escaped, the length bounded, valid UTF-8. The records of `vanidl.readers.records`
and `vanidl.model` do it as they are made, so no reader can forget it. All of it may be done twice:
the second time changes nothing.

Only the names of files stay true within the process, as they join what logs say, and are opened
with --inspect. What shows a trace has `Files.path`, which passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import starmap

from vanidl.formatting.names import printable
from vanidl.formatting.secret_hints import MASK, may_hold_secret, may_hold_secret_in_paths
from vanidl.formatting.secrets import is_secret_name, masked, masked_path, masked_text

MOST_TEXT_CHARACTERS = 4096
MOST_COMMAND_CHARACTERS = 32_768
"""A quarter of what Linux takes for one argument; a longer one is cut."""

_FEW = 16  # texts, so that what is kept of them is little

CUT_MARK = "…"
"""The last word of a command that was cut."""


def clean_command(command: str | Iterable[str]) -> str:
    """A command as one line: of its words, or of a text in which blanks join them."""
    if isinstance(command, str):
        return _clean_line(command)
    return " ".join(clean_words(command)).strip()


def clean_words(words: Iterable[str]) -> tuple[str, ...]:
    """The words of a command; of one that is too long those at its beginning."""
    kept, left = list[str](), MOST_COMMAND_CHARACTERS
    for word in words:
        left -= len(word) + 1
        if left < 0:
            kept.append(CUT_MARK)
            break
        kept.append(word)
    return tuple(map(printable, masked(kept)))


@lru_cache(4096)  # processes of a job have few different commands
def _clean_line(command: str) -> str:
    mark = f" {CUT_MARK}" if len(command) > MOST_COMMAND_CHARACTERS else ""
    return printable(masked_text(_cut(command, MOST_COMMAND_CHARACTERS))).strip() + mark


@lru_cache(16_384)  # hosts, versions and losses of thousands of logs are alike
def clean_text(text: str, most: int = MOST_TEXT_CHARACTERS) -> str:
    """A name, a label or a message."""
    if len(text) > most:
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        text = f"{_cut(text, most - 32)}… ({digest})"
    return printable(masked_text(text)) if may_hold_secret(text) else printable(text)


def clean_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """`clean_text` of each; of names of which none holds anything looked at as one."""
    texts = tuple(texts)
    if not texts:
        return texts
    return _clean_few(texts) if len(texts) <= _FEW else _clean_all(texts)


@lru_cache(4096)  # modules and layers of thousands of logs are alike
def _clean_few(texts: tuple[str, ...]) -> tuple[str, ...]:
    return _clean_all(texts)


def _clean_all(texts: tuple[str, ...]) -> tuple[str, ...]:
    joined = "\0".join(texts)
    bounded = len(joined) < MOST_TEXT_CHARACTERS or max(map(len, texts)) <= MOST_TEXT_CHARACTERS
    if bounded and joined.replace("\0", "").isprintable() and not may_hold_secret(joined):
        return texts
    return tuple(map(clean_text, texts))


@lru_cache(1 << 16)  # a log's path is that of its process, which is made again and again
def clean_path(path: str) -> str:
    """A path, which keeps its parts."""
    if len(path) > MOST_TEXT_CHARACTERS:
        path = path[:MOST_TEXT_CHARACTERS]
    return printable(masked_path(path))


def clean_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """`clean_path` of each; of different ones different: `token=***/a` and `token=***2/a`."""
    # Nearly all paths need nothing: one look at all of them.
    if all(path.isprintable() for path in paths):
        joined = "\n".join(paths)
        if MASK not in joined and not may_hold_secret_in_paths(joined):
            return tuple(paths)
    given: dict[str, str] = {}
    taken = set[str]()
    for path in paths:
        if path in given:
            continue
        clean, number = clean_path(path), 1
        shown = clean
        # Two paths that look alike once they are clean get numbers: they are two files.
        while shown in taken:
            number += 1
            mark = f"{MASK}{number}"
            shown = clean.replace(MASK, mark, 1) if MASK in clean else f"{clean}~{number}"
        given[path] = shown
        taken.add(shown)
    return tuple(given[path] for path in paths)


def clean_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Variables or settings by name: what is called a secret is one, whatever it looks like."""
    return dict(starmap(_clean_setting, settings.items()))


@lru_cache(16_384)
def _clean_setting(name: str, value: str) -> tuple[str, str]:
    return clean_text(name), MASK if value and is_secret_name(name) else clean_text(value)


def set_clean(record: object, **fields: object) -> None:
    """Gives a frozen record, as it is made, fields that have passed."""
    for name, value in fields.items():
        object.__setattr__(record, name, value)


def _cut(text: str, most: int) -> str:
    """The beginning, up to a blank where there is one: half a secret would look like none."""
    if len(text) <= most:
        return text
    head = text[:most]
    return head[: head.rfind(" ")] if " " in head else head
