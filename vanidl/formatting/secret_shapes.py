"""Where secrets stand in commands, texts and paths, and what is left of these without them.

A secret is known by the name that it is given to (an option, a variable, a key of JSON, a header),
by its place (the user's part of a URL, a short option of a program that is known) or by its shape
(tokens of services that mark theirs, private keys). Every search takes time in proportion to the
text: a name is known by its last words, so that nothing looks back along it.

`vanidl.formatting.secrets` asks for this where a text may hold one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vanidl.formatting.secret_hints import (
    MASK,
    MASKED_WORD,
    NONE,
    ShortOptions,
    may_hold_secret,
    options_after,
)

_WORDS = (
    r"(?:(?<![A-Za-z0-9])(?:token|pass|auth|sig)|(?<![A-Za-z0-9])(?:pg|ssh|my_?sql_?)?pwd|sshpass|"
    r"passw(?:or)?d|passphrase|secret|credentials?|signature|apikey|"
    r"(?:access|auth|bearer|refresh|session|hub|hf|git|api)token|"
    r"(?:(?<![A-Za-z0-9])(?:api|access|secret|private|auth|account|encryption|license|session|"
    r"shared|master|signing|service)[._\-]?){1,8}key|(?-i:(?<=[a-z])(?:Token|Secret|ApiKey|AccessKey)))"
)
_NAME = (
    r"(?:(?<!pad[._\-])(?<!eos[._\-])(?<!bos[._\-])(?<!unk[._\-])(?<!sep[._\-])(?<!mask[._\-])"
    rf"(?<!cls[._\-]){_WORDS})(?:[_\-]?\d{{1,3}})?"
)
_BEFORE = r"[\w.\-+@]*?"  # of a whole word alone: elsewhere it would be looked for at every letter
_OPTION = re.compile(rf"--?{_BEFORE}{_NAME}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"((?:--?|\+{{1,2}})?{_BEFORE}{_NAME}[=:])(?!/)(.+)", re.I | re.DOTALL)

_HEADER_NAME = r"(?:proxy-)?authorization|x-[\w\-]{0,40}(?:key|token|auth)|api-key"
_HEADER = re.compile(rf"((?:{_HEADER_NAME}|(?:set-)?cookie)\s*:).+", re.IGNORECASE | re.DOTALL)
_HEADER_WITHIN = re.compile(
    rf"(?<![\w\-])((?:{_HEADER_NAME})\s*:\s*)(?!\*\*\*)"
    r"(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?[^\s\"']+",
    re.IGNORECASE,
)
_COOKIE_WITHIN = re.compile(
    r"(?<![\w\-])((?:set-)?cookie\s*:\s*)(?!\*\*\*)[^\s;\"']+(?:;\s*[^\s;\"'=]+=[^\s;\"']*)*",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer\s+)(?!\*\*\*)[\w\-+/.=~]{6,}", re.IGNORECASE)

_SHELL_QUOTE = r"'\"'\"'"  # a quote within quotes, as shells join it
_QUOTED = (
    rf"{_SHELL_QUOTE}[^']*(?:{_SHELL_QUOTE})?|\\+\"[^\"]*\"?|\\+'[^']*'?|"
    r"\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?"
)
_KEY = re.compile(  # of JSON, of a dictionary as Python prints it
    rf"({_NAME}(?:\\*[\"']|{_SHELL_QUOTE})\s*[:=]\s*)(?!\*\*\*)({_QUOTED}|[^\s,;}}\])\"']+)",
    re.IGNORECASE,
)
_IN_YAML = re.compile(  # a space behind the colon: `pass: 3` is no text of a configuration
    r"(?<![A-Za-z0-9/._\-])((?:[a-z0-9]{1,20}[_\-.]){0,4}"
    r"(?:password|passwd|passphrase|secret|(?:api|access|secret|private)[_\-]?key|token)"
    rf"\s*:\s+)(?!\*\*\*)({_QUOTED}|[^\s,;}}\])\"']+)",
    re.IGNORECASE,
)
_IN_QUERY = re.compile(
    r"((?:[?&;]|%26|%3F)(?:[\w\-.]{1,60}[\-_.])?"
    r"(?:token|key|secret|password|passwd|pwd|signature|sig|credential|auth)(?:=|%3D))"
    r"(?!\*\*\*)[^&#\s\"']+",
    re.IGNORECASE,
)
_WITHIN = re.compile(rf"({_NAME}(?:=|%3D))(?!/|\*\*\*)({_QUOTED}|[^\s&\"']+)", re.IGNORECASE)
_IN_PATH = re.compile(r"(?:^|[\s\"'(\[])(?:[/~]|\.{1,2}/|[a-z0-9]{1,10}://)\S*$", re.IGNORECASE)
_FARTHEST_CHARACTERS = 300  # before a value, in which its name may stand
_IN_COMPONENT = re.compile(rf"({_NAME}(?:=|%3D|:(?!\s)))(?!\*\*\*).+", re.IGNORECASE | re.DOTALL)

_URL = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.\-]{0,20}:/{2,3})[^\s/?#\"']+@", re.IGNORECASE)
_URL_WITH_SLASH = re.compile(  # in its password; a port and a path are no user and password
    r"(?P<scheme>\b[a-z][a-z0-9+.\-]{0,20}://)[^\s/?#@:\"']{1,100}:(?!\d{1,5}[/?#])"
    r"[^\s@\"':]{1,200}@",
    re.IGNORECASE,
)
_URL_CUT = re.compile(  # before the @: what is no number is no port
    r"(?P<scheme>\b[a-z][a-z0-9+.\-]{0,20}://)[^\s/?#@:\"'\[\]*]{1,100}:(?!\d{1,5}(?!\w))"
    r"[^\s/?#@:\"']+$",
    re.IGNORECASE,
)
_USER = re.compile(r"(?<![\w.\-/:+])([\w.\-+]{1,64}:)(?!/|\*\*\*)[^\s:@/\"']{3,}@(?=[\w.\-])")

# With hyphens, too: in a name the next token may follow behind an underscore (ghp_..._sk-...).
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[\w\-]{16,}|[sr]k_(?:live|test)_[\w\-]{10,}|gh[pousr]_[\w\-]{20,}|"
    r"github_pat_[\w\-]{20,}|gl(?:pat|dt|rt|ptt)-[\w\-]{16,}|xox[abeoprs]-[\w\-]{10,}|xapp-[\w\-]{16,}|"
    r"(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}|hf_[\w\-]{20,}|AIza[\w\-]{30,}|npm_[\w\-]{20,}|pypi-[\w\-]{20,}|"
    r"dop_v1_[\w\-]{20,}|dckr_pat_[\w\-]{16,}|hvs\.[\w\-]{16,}|ya29\.[\w\-]{20,}|r8_[\w\-]{20,}|"
    r"SG\.[\w\-]{16,64}\.[\w\-]{16,}|eyJ[\w\-]{8,}(?:\.[\w\-]*){0,2}|"
    r"AGE-SECRET-KEY-[0-9A-Z]{20,}|wandb_v1_[\w\-]{16,}|nvapi-[\w\-]{16,})"
)
_WEBHOOK = re.compile(r"(hooks\.slack\.com/(?:services|workflows)/)[^\s\"']+", re.IGNORECASE)
_PRIVATE_KEY = "PRIVATE KEY-----"
_KEY_BLOCK = re.compile(r"-----BEGIN[A-Z ]{0,30} PRIVATE KEY-----.*?(?:-----END[^-]*-----|$)", re.S)
_TOKEN = re.compile(r"((?:[^\s\"']|\"[^\"]*\"|'[^']*'|[\"'])+)")


def is_secret_name(name: str) -> bool:
    """Whether what is called so (a variable, a setting) is a secret."""
    return _OPTION.fullmatch(f"-{name}") is not None


def masked(words: Iterable[str]) -> Iterator[str]:
    """The words of a command, with MASK for what looks like a secret.

    A word with blanks may be a command of its own, as after `sh -c`.
    """
    follows, options = False, NONE
    for word in words:
        is_value = follows and not word.startswith("--") and not _hides(word)
        yield MASK if is_value else _mask_word(word, options)
        follows = word in options.apart or _OPTION.fullmatch(word) is not None
        options = options_after(word, options)


def masked_text(text: str) -> str:
    """The text with MASK for what looks like a secret: a label, a message, words joined by blanks.

    The value of an option ends at the next blank, as nothing says where the word ended.
    """
    return _mask_tokens(_mask_within(text), within_quotes=False)


def _mask_tokens(text: str, *, within_quotes: bool) -> str:
    """The text without what follows options, within quotes (as after `sh -c`) too."""
    tokens = _TOKEN.split(text)
    follows, options = False, NONE
    for i in range(1, len(tokens), 2):  # what is between them is blank
        token = tokens[i]
        is_value = follows and not token.startswith("--") and not _hides(token)
        shown = _mask_short(_mask_assigned(token) if token.startswith("-") else token, options)
        if not within_quotes and token[0] in "\"'" and any(map(str.isspace, token)):
            shown = f"{token[0]}{_mask_tokens(token[1:-1], within_quotes=True)}{token[-1]}"
        tokens[i] = MASK if is_value else shown
        follows = token in options.apart or _OPTION.fullmatch(token) is not None
        options = options_after(token, options)
    return "".join(tokens)


def masked_path(path: str) -> str:
    """The path with MASK for what looks like a secret in one of its parts, or in its URL."""
    path = _mask_within_urls(path)
    scheme, joint, rest = path.rpartition("://")
    return f"{scheme}{joint}{'/'.join(map(_mask_component, rest.split('/')))}"


def _mask_component(part: str) -> str:
    return _SHAPES.sub(MASK, _IN_COMPONENT.sub(rf"\g<1>{MASK}", part))


def _mask_word(word: str, options: ShortOptions) -> str:
    if _PRIVATE_KEY in word:
        return MASK
    if header := _HEADER.fullmatch(word):
        return f"{header[1]} {MASK}"
    word = _mask_short(_mask_assigned(word), options)
    return masked_text(word) if any(map(str.isspace, word)) else _mask_within(word)


def _hides(word: str) -> bool:
    return MASKED_WORD.fullmatch(word.strip("\"'")) is not None


def _mask_assigned(word: str) -> str:
    """The word without the value that it gives a secret; a path is none."""
    value = _ASSIGNED.fullmatch(word)
    return word if value is None or _hides(value[2]) else f"{value[1]}{MASK}"


def _mask_short(word: str, options: ShortOptions) -> str:
    option = options.option_of(word)
    return word if option is None else f"{option}{MASK}"


def _mask_within(text: str) -> str:
    """The text without what is a secret by its name, place or shape, whatever words it is in."""
    if not may_hold_secret(text):
        return text
    text = _KEY_BLOCK.sub(MASK, text)
    for named in (_HEADER_WITHIN, _COOKIE_WITHIN, _BEARER, _KEY, _IN_YAML):
        text = named.sub(rf"\g<1>{MASK}", text)
    text = _mask_within_urls(text)
    text = _WITHIN.sub(_mask_value, text)
    return _SHAPES.sub(MASK, text)


def _mask_value(found: re.Match[str]) -> str:
    """A name and its value, which ends with the part of a path that it stands in."""
    name, value = found.groups()
    if _hides(value):
        return found[0]
    behind = value[len(value.rstrip(":,;)")) :]
    before = found.string[max(0, found.start() - _FARTHEST_CHARACTERS) : found.start()]
    if "/" in value and _IN_PATH.search(before):
        rest = value.partition("/")[2]
        return f"{name}{MASK}/{'/'.join(map(_mask_component, rest.split('/')))}"
    return f"{name}{MASK}{behind}"


def _mask_within_urls(text: str) -> str:
    for of_url in (_URL, _URL_WITH_SLASH, _URL_CUT):
        text = of_url.sub(rf"\g<scheme>{MASK}@", text)
    text = _IN_QUERY.sub(rf"\g<1>{MASK}", text)
    return _WEBHOOK.sub(rf"\g<1>{MASK}", _USER.sub(rf"\g<1>{MASK}@", text))
