"""Passwords and tokens of command lines, masked: a record of a run is shown and handed on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vanidl.record.short_secrets import NONE, ShortOptions, options_after

MASK = "***"

_NAME = (
    r"(?:[\w.\-]*[._\-]|pg|ssh)?(?<!pad[._\-])(?<!eos[._\-])(?<!bos[._\-])(?<!unk[._\-])(?<!sep[._\-])"
    r"(?<!mask[._\-])(?:token|pass|passw(?:or)?d|passphrase|pwd|secret|credentials?|auth|"
    r"(?:(?:api|access|secret|private|auth|account|encryption|license|session|shared)[._\-]?)+key|"
    r"apikey|signature|sig)"
)
_OPTION = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_VALUE = re.compile(rf"((?:--?)?(?:{_NAME}))([=:])(?!/)(.+)", re.IGNORECASE | re.DOTALL)
_HEADER = re.compile(
    r"((?:proxy-)?authorization|x-[\w\-]*(?:key|token|auth)|api-key|(?:set-)?cookie)\s*:.+",
    re.IGNORECASE | re.DOTALL,
)
_WITHIN = re.compile(
    rf"(?P<before>(?<![\w\-])(?:--?{_NAME}[=\s]\s*|{_NAME}=)|\bbearer\s+|"
    rf"[?&;](?:[\w\-]*[\-_])?(?:token|key|secret|password|signature|sig|credential)=)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s&;\"']+)",
    re.IGNORECASE,
)
_URL = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.\-]{0,20}://)[^\s/@?#]+@", re.IGNORECASE)
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[\w\-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|"
    r"xox[abeoprs]-[\w\-]{10,}|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}|hf_\w{20,}|AIza[\w\-]{30,}|"
    r"npm_\w{20,}|pypi-[\w\-]{20,}|dop_v1_\w{20,}|ya29\.[\w\-]{20,}|"
    r"eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*)"
)
_TOKEN = re.compile(r"((?:[^\s\"']|\"[^\"]*\"|'[^']*'|[\"'])+)")
_PRIVATE_KEY = "PRIVATE KEY-----"


def masked(words: Iterable[str]) -> Iterator[str]:
    """The words of a command, with MASK for what looks like a secret.

    A word with blanks may be a command of its own, as after `sh -c`.
    """
    follows, options = False, NONE
    for word in words:
        apart = not word.startswith("--")
        yield MASK if follows and apart else _masked(_without_short(_inner(word), options))
        follows = word in options.apart or _OPTION.fullmatch(word) is not None
        options = options_after(word, options)


def _without_short(word: str, options: ShortOptions) -> str:
    option = options.option_of(word)
    return word if option is None else f"{option}{MASK}"


def _inner(word: str) -> str:
    """The word, where the short options of a command within it are masked."""
    if not any(map(str.isspace, word)):
        return word
    tokens = _TOKEN.split(word)
    follows, options = False, NONE
    for i in range(1, len(tokens), 2):  # what is between them is blank
        token = tokens[i]
        tokens[i] = MASK if follows else _without_short(token, options)
        follows = token in options.apart
        options = options_after(token, options)
    return "".join(tokens)


def _masked(word: str) -> str:
    if _PRIVATE_KEY in word:
        return MASK
    if header := _HEADER.fullmatch(word):
        return f"{header[1]}: {MASK}"
    if value := _VALUE.fullmatch(word):
        return f"{value[1]}{value[2]}{MASK}"
    word = _URL.sub(rf"\g<scheme>{MASK}@", word)
    word = _WITHIN.sub(rf"\g<before>{MASK}", word)
    return _SHAPES.sub(MASK, word)
