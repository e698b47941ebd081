"""Words that say nothing about whose a run is: any other word in a text is a name.

These are the words of vanidl's own messages, those of the system's error messages, and those
that profilers and their libraries give operations and devices. A word that is missing here
costs readability, never a name: what is not known to be public is replaced.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import resources
from signal import Signals
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # novm: since Python 3.11, for types alone

_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_WORD = re.compile(r"[^\W\d_]{3,}")
_FILE_WORD = re.compile(r"\b[a-z_]+\.[a-z_]+\b")  # run.json, np.load
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:[dD](?![a-z]))?")
_LEAST = 3  # letters; shorter ones stand below, as a random name is soon made of such pieces
_MOST_DIGITS = 9
_LONGEST = 64
_SYSTEM_ERRORS = range(1, 134)
_SHORT = """
    a an as at be by do e g go i if in is it n no o of on op or r s so to up us w we x y z
    b kb mb gb tb kib mib gib tib pib eib ms ns µs min h c dl
    1d 2d 3d io id ok py pt h5 hdf5 gz so mm bn cu utf8 utf float16 float32 float64 int8 int16
    int32 int64 uint8 bfloat16 f16 f32 f64 nn nt tn tt ll ul np sha256 c10 c10d crc32 crc32c
    p50 p90 p99
"""
_JOINTS = frozenset(("op", "to", "no", "of", "by", "in", "v"))  # AssignVariableOp, GatherV2
_LIBRARIES = """
    invalid incorrect unexpected truncated corrupt corrupted unsupported unknown mismatch header
    stream stored checksum block lengths distance code literal character line column char input
    object expecting value delimiter property name enclosed quotes trailing data surrogates escape
    stdin stdout stderr codec decode position continuation start null magic footer thrift schema
    unable open file signature superblock addr eof base address found missing required beyond
"""


@cache
def public_words() -> frozenset[str]:
    """All of them, in small letters; read once, from the package itself."""
    root = resources.files("vanidl")
    texts = [os.strerror(number) for number in _SYSTEM_ERRORS]
    texts += [_LIBRARIES, " ".join(dir(builtins)), " ".join(each.name for each in Signals)]
    texts.append((root / "anonymize" / "profiler_words.txt").read_text("utf-8"))
    found = set(_SHORT.split())
    for source in _sources(root):
        for quoted in _QUOTED.findall(source):
            texts.append(quoted)
            found.update(_FILE_WORD.findall(quoted))
    for text in texts:
        found.update(_WORD.findall(text.lower()))
        found.update(word.lower() for part in _WORD.findall(text) for word in _PARTS.findall(part)
                     if len(word) >= _LEAST)  # fmt: skip
    return frozenset(found)


def _sources(folder: Traversable) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry.read_text("utf-8")


def is_public(word: str) -> bool:
    """Whether a word, or all words that it is made of (`Conv2dBackward`), are public."""
    return len(word) <= _LONGEST and _is_public(word)


@lru_cache(maxsize=65_536)
def _is_public(word: str) -> bool:
    words = public_words()
    if word.lower() in words or _is_short_number(word):
        return True
    parts = _PARTS.findall(word)
    letters = [part.lower() for part in parts if part.isalpha()]
    return (
        "".join(parts) == word
        and all(len(part) <= _LEAST for part in parts if not part.isalpha())
        and any(len(part) >= _LEAST for part in letters)
        and all(part in (words if len(part) >= _LEAST else _JOINTS) for part in letters)
    )


def _is_short_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS
