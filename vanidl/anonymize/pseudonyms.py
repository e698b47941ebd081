"""Names that say nothing about whose they are: the same one for the same thing, all along.

Paths by their components (`paths`), free text by its tokens (`text`). Hosts, users, commands
and devices become numbers, unknown words in a text letters, so that it has its own numbers only.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable

from vanidl.anonymize.paths import PathNames, has_ending
from vanidl.anonymize.words import is_public, public_words
from vanidl.dataclass import dataclass

# Free text for the public: token by token, and only what is known to be public stays.
#
# Numbers, punctuation and public words stay. Everything else is a path, a known name or an unknown
# one. One pass, so the time follows the length of the text.

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


_HOME = re.compile(r"^/(?:home|Users|users|u)/([^/]+)")
_VERSION = re.compile(r"\d{0,9}(?:\.\d{1,9}){0,3}(?:-?(?:rc|pre|dev|a|b)\d{0,3})?", re.ASCII)
_MODEL = re.compile(
    r"(?:[AHVPTLBv]|GB|GH|MI|RTX|GTX|SXM|PCIE|TPU|i)\d{1,4}[A-Z]?|\d{1,3}GB|\d{1,4}"
)
_BETWEEN = re.compile(r"[\s\-_:/.,()]+")
_FILE_SYSTEMS = """
    9p afs aufs autofs bcachefs beegfs btrfs ceph cifs cvfs cvmfs2 daos debugfs devpts devtmpfs dvs
    ecryptfs efivarfs exfat ext2 ext3 ext4 f2fs fuse fuseblk glusterfs gpfs hdfs hugetlbfs iso9660
    jfs lustre mqueue nfs nfs4 nfsd ntfs ntfs3 ocfs2 orangefs overlay panfs proc pvfs2 ramfs
    reiserfs rootfs shm smb3 smbfs squashfs sysfs tmpfs udf unknown vboxsf vfat virtiofs wekafs
    xfs zfs
"""
_KNOWN_FILE_SYSTEMS = frozenset(_FILE_SYSTEMS.split())
_COMMAND_START = 60  # characters of a command that messages quote
_MOST_ALIKE = 8  # commands with one start that are tried at a place of a text
_LEAST_NAME = 3


class Pseudonyms:
    """Gives every name a pseudonym, in the order in which it is first asked for."""

    def __init__(self) -> None:
        self._given: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._counts: Counter[str] = Counter()
        self._paths = PathNames(self._numbered)
        self._by_start: defaultdict[str, list[str]] = defaultdict(list)
        self._lengths: tuple[int, ...] = ()  # of these starts, longest first
        self._known = Known(self._paths, self._command_at, self.path, self._person, self._unknown)

    def path(self, path: str, kind: str = "file") -> str:
        """The pseudonym of a file's path; `kind` is a word for what the file is."""
        if home := _HOME.match(path):
            self._name("user", home[1])
        user, joint, rest = path.rpartition("/")[2].partition("_")
        if joint and ".darshan" in rest and "_id" in rest:
            self._name("user", user)
        return self._paths.file(path, kind)

    def user(self, name: str) -> str:
        """The pseudonym of a user; that of the folder with their name is the same."""
        return self._name("user", name)

    def folder(self, path: str) -> str:
        """The pseudonym of a folder, part by part."""
        return self._paths.folder(path)

    def host(self, name: str) -> str:
        """The pseudonym of a host; its short and its full name have the same."""
        if not name:
            return name
        given = self._name("host", name.split(".")[0] or name)
        return self._given["host"].setdefault(name, given)

    def command(self, text: str) -> str:
        """The pseudonym of a command."""
        if not text:
            return text
        if text not in self._given["command"] and " " in text:
            start = text[:_COMMAND_START]
            self._by_start[start].append(text)
            self._by_start[start[:_LEAST_NAME]] += ()
            self._lengths = tuple(sorted({*self._lengths, len(start)}, reverse=True))
        return self._name("command", text)

    def job(self, identity: str | None) -> str | None:
        """The pseudonym of a job's id: by a scheduler's number anybody there finds whose it was."""
        return None if identity is None else self._name("job", identity)

    def version(self, text: str) -> str:
        """A version that is made of numbers, else its pseudonym."""
        return text if _VERSION.fullmatch(text) else self._name("version", text)

    def device(self, text: str) -> str:
        """A device's name where it is one of a product, else its pseudonym."""
        words = [word for word in _BETWEEN.split(text) if word]
        if all(_MODEL.fullmatch(word) or (word.isalpha() and is_public(word)) for word in words):
            return text
        return self._name("device", text)

    def file_system(self, kind: str) -> str:
        """The type of a file system where it is a known one, else its pseudonym."""
        if {*kind.split(".")} - {""} <= _KNOWN_FILE_SYSTEMS:  # fuse.lustre, too
            return kind
        return self._name("file-system", kind)

    def text(self, message: str) -> str:
        """A message in which only numbers and words that say nothing stay as they are."""
        return public_text(message, self._known)

    def _name(self, what: str, name: str) -> str:
        given = self._given[what]
        if name not in given:
            given[name] = self._numbered(what)
        return given[name]

    def _numbered(self, word: str) -> str:
        self._counts[word] += 1
        return f"{word}-{self._counts[word]}"

    def _unknown(self, word: str) -> str:
        given = self._given["name"]
        if word not in given:
            given[word] = f"name-{_letters(len(given))}"
        return given[word]

    def _person(self, word: str) -> str | None:
        if len(word) < _LEAST_NAME:
            return None
        return self._given["user"].get(word) or self._given["host"].get(word)

    def _command_at(self, text: str, at: int) -> tuple[int, str] | None:
        """(its end, its pseudonym) of the longest known command there, or of its start."""
        if text[at : at + _LEAST_NAME] not in self._by_start:
            return None
        for length in self._lengths:
            alike = self._by_start.get(text[at : at + length], ())
            if alike and (length == _COMMAND_START or not _goes_on(text, at + length)):
                whole = (c for c in alike[:_MOST_ALIKE] if text.startswith(c, at))
                command = max(whole, key=len, default=alike[0])
                end = at + (len(command) if text.startswith(command, at) else length)
                return end, self._given["command"][command]
        return None


def _goes_on(text: str, at: int) -> bool:
    """Whether the word that ends there goes on."""
    return at < len(text) and (text[at].isalnum() or text[at] in "-_./")


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ...: counted in letters."""
    out = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        out = chr(ord("a") + digit) + out
    return out
