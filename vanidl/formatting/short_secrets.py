"""Short options that hold a secret, of programs that are known.

`-p` is a port or a path for most programs (ssh, mkdir), so it is masked for those alone that take
a password there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
