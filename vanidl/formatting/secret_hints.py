"""What tells at a glance that a text holds no secret, as most do; short options that hold one.

`-p` is a port or a path for most programs (ssh, mkdir), so it is masked for those alone that take
a password there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vanidl.schema.dataclass import dataclass

MASK = "***"

MASKED_WORD = re.compile(r"\$VANIDL_SECRET_\d+")
"""What stands for a masked word in a command that is to be run again: it hides already."""

_NAME_HINTS = ("token", "pass", "pwd", "auth", "sig", "secret", "credential", "key", "cookie",
               "bearer", "@", "://", "hooks.slack")  # fmt: skip
_SHAPE_HINTS = (
    "sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
    "gldt-", "glrt-", "glptt-", "xox", "xapp-", "AKIA", "ASIA", "AROA", "AIDA", "hf_", "AIza",
    "npm_", "pypi-", "dop_v1_", "dckr_pat_", "hvs.", "ya29.", "r8_", "SG.", "eyJ", "AGE-SECRET",
    "wandb_v1_", "nvapi-",
)  # fmt: skip
_ALSO_ASCII = "ſıİ\u212a"  # a pattern that ignores case takes them for s, i and k
_HINTS_IN_PATHS = ("=", "@", ":", "%3", "hooks.slack", *_SHAPE_HINTS)


def may_hold_secret(text: str) -> bool:
    """Whether there is anything to look at in a text: megabytes of names mostly have nothing."""
    if any(map(text.__contains__, _SHAPE_HINTS)):
        return True
    if not text.isascii() and any(letter in text for letter in _ALSO_ASCII):
        return True
    small = text.lower()
    return any(map(small.__contains__, _NAME_HINTS))


def may_hold_secret_in_paths(text: str) -> bool:
    """The same of a path, or of many: there a name alone, as of `tokenizer.json`, has no value."""
    return any(map(text.__contains__, _HINTS_IN_PATHS))


@dataclass(frozen=True, slots=True)
class ShortOptions:
    """Options of one program: the secret is the next word, or the rest of their own."""

    apart: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    def option_of(self, word: str) -> str | None:
        """The option that the word begins with, where the rest of it is a secret."""
        return next((o for o in self.within if word.startswith(o) and word != o), None)


NONE = ShortOptions()
_P, _U = ShortOptions(("-p",), ("-p",)), ShortOptions(("-u", "-U"), ("-u", "-U"))
_GROUPS: tuple[tuple[str, ShortOptions], ...] = (
    # Apart from -p, these take the next word for the name of a database.
    ("mysql mysqldump mysqladmin mysqlimport mysqlshow mysqlcheck mariadb mariadb-dump "
     "mariadb-admin 7z 7za 7zz", ShortOptions((), ("-p",))),
    ("sshpass mongo mongosh mongodump mongorestore mongoimport mongoexport", _P),
    ("login", _P),  # docker login, podman login, az login
    ("zip unzip sqlcmd bcp mosquitto_pub mosquitto_sub", ShortOptions(("-P",), ("-P",))),
    ("ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami", ShortOptions(("-w",), ("-w",))),
    ("redis-cli", ShortOptions(("-a",))),
    ("curl", ShortOptions(("--user", "--proxy-user", *_U.apart), ("--user=", *_U.within))),
    ("smbclient lftp", _U),
    ("ssh scp sftp rsync", NONE),  # after sshpass
)  # fmt: skip
_KNOWN: Mapping[str, ShortOptions] = {
    name: options for names, options in _GROUPS for name in names.split()
}


def takes_short_secret(text: str) -> bool:
    """Whether a text may name one of the programs: a word of it or part of a word."""
    return any(name in text for name in _KNOWN)


def options_after(word: str, before: ShortOptions) -> ShortOptions:
    """Those of the program that the word names, or of the one before."""
    return _KNOWN.get(word.rpartition("/")[2], before)
