"""Free text for the public: token by token, and only what is known to be public stays.

Numbers, punctuation and public words stay. Everything else is a path, a known name or an unknown
one. One pass, so the time follows the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from vanidl.anonymize.paths import PathNames, has_ending
from vanidl.anonymize.words import is_public, public_words
from vanidl.dataclass import dataclass

_TOKEN = re.compile(r"""[^\s!"#$&'()*,:;<=>?\[\]^`{|}]+""")
_SIGNS = "\N{MULTIPLICATION SIGN}\N{EN DASH}\N{EM DASH}…±·"
_PIECE = re.compile(rf"[^\-+%@.\\~_/{_SIGNS}]+")
_NUMBER = re.compile(
    r"[+\-~±]{0,2}\d{1,20}(?:[.\-/+x]\d{1,20}){0,6}(?:e[+-]?\d{1,3})?"
    r"(?:[KMGTPE]?i?B|[kmnµ]?s|x|\N{MULTIPLICATION SIGN}|%|st|nd|rd|th|T\d\d|Z)?[.%+]?",
    re.ASCII | re.IGNORECASE,
)
_STARTS = ("/", "~", "./", "../")


@dataclass(frozen=True, slots=True)
class Known:
    """Where names get their pseudonyms from."""

    paths: PathNames
    command_at: Callable[[str, int], tuple[int, str] | None]
    path: Callable[[str], str]  # of a file, known or new
    person: Callable[[str], str | None]  # of a host or a user, None for what is neither
    unknown: Callable[[str], str]  # of any other name


def public_text(text: str, known: Known) -> str:
    """The text with a pseudonym for all that is not known to be public."""
    out, at = list[str](), 0
    while token := _TOKEN.search(text, at):
        out.append(text[at : token.start()])
        at, given = _replaced(text, token, known)
        out.append(given)
    out.append(text[at:])
    return "".join(out)


def _replaced(text: str, token: re.Match[str], known: Known) -> tuple[int, str]:
    """Where the text goes on, and what stands there instead of the token."""
    word, begin, end = token[0], token.start(), token.end()
    found = known.command_at(text, begin)
    if found is None and "/" in word:
        found = known.paths.known_at(text, begin)
    if found is not None:
        return found
    if _NUMBER.fullmatch(word) or not _PIECE.search(word):
        return end, word
    core = word.strip("-.+%@~") if word[0] not in "/~" and "/" not in word else word.rstrip(".+%@-")
    at = word.index(core)
    return end, f"{word[:at]}{_name(core, known)}{word[at + len(core) :]}"


def _name(word: str, known: Known) -> str:
    person = known.person(word)
    if person is not None:
        return person
    if _is_path(word):
        return known.path(word)
    return _PIECE.sub(lambda piece: _piece(piece[0], known), word)


def _is_path(word: str) -> bool:
    if word.startswith(_STARTS):
        return True
    if "/" in word:
        return not all(is_public(piece) for piece in _PIECE.findall(word))
    return has_ending(word) and word.lower() not in public_words()


def _piece(piece: str, known: Known) -> str:
    person = known.person(piece)
    if person is not None:
        return person
    return piece if is_public(piece) else known.unknown(piece)
