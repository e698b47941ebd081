"""Names that say nothing about whose they are: the same one for the same thing, all along.

Paths by their components, free text by its tokens (`text`). Hosts, users, commands
and devices become numbers, unknown words in a text letters, so that it has its own numbers only.
"""

from __future__ import annotations

import builtins
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from importlib import resources
from signal import Signals
from typing import TYPE_CHECKING

from vanidl.model.file_kinds import is_named_checkpoint
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # novm: since Python 3.11, for types alone

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
        at, given = _replace_token(text, token, known)
        out.append(given)
    out.append(text[at:])
    return "".join(out)


def _replace_token(text: str, token: re.Match[str], known: Known) -> tuple[int, str]:
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
    return _PIECE.sub(lambda piece: _replace_piece(piece[0], known), word)


def _is_path(word: str) -> bool:
    if word.startswith(_STARTS):
        return True
    if "/" in word:
        return not all(is_public(piece) for piece in _PIECE.findall(word))
    return has_ending(word) and word.lower() not in public_words()


def _replace_piece(piece: str, known: Known) -> str:
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
_LEAST_NAME = 3  # letters of a name that is looked for inside of texts


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
            given[word] = f"name-{_write_letters(len(given))}"
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


def _write_letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ...: counted in letters."""
    out = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        out = chr(ord("a") + digit) + out
    return out


# Pseudonyms of paths, component by component: a tree, so time and memory follow their length. A
# path keeps its depth, the kind of its file and endings that are those of a format; what is in
# /proc, /sys, /dev and /etc keeps that folder, an object its scheme (`s3://dir1/data2.npy`).

_KEPT_BELOW_ROOT = frozenset(("proc", "sys", "dev", "etc"))
_KEPT = frozenset(("", ".", ".."))
_SCHEMES = frozenset(("s3:", "gs:", "http:", "https:", "memory:"))
_STREAM = re.compile(r"<STD(IN|OUT|ERR)>")
ENDINGS = frozenset(
    (
        "arrow", "avro", "bin", "bmp", "bp", "bz2", "c", "ckpt", "conf", "cfg", "cpp", "cpython",
        "csv", "cu", "darshan", "darshan_partial", "dat", "data", "db", "exr", "feather", "flac",
        "gif", "gz", "h", "h5", "hdf", "hdf5", "he5", "html", "idx", "index", "ini", "ipynb",
        "jpeg", "jpg", "json", "jsonl", "keras", "lmdb", "lock", "log", "lz4", "mdb", "mds", "meta",
        "mp3", "mp4", "msgpack", "nc", "nc4", "netcdf", "nii", "npy", "npz", "onnx", "parquet",
        "part", "pb", "pfw", "pickle", "pkl", "png", "pt", "pth", "pyc", "pyo", "py", "rec",
        "safetensors", "sh", "shard", "so", "sqlite", "tar", "tfevents", "tfrecord", "tfrecords",
        "tgz", "tif", "tiff", "tmp", "toml", "trace", "tsv", "txt", "wav", "webp", "xml", "xplane",
        "xz", "yaml", "yml", "zarr", "zip", "zst",
    )
)  # fmt: skip
"""Endings that name a format. Any other may be part of a name."""

_MOST_ENDINGS = 4  # of a name: archive.tar.gz.part has three
_LONGEST_COMPONENT = 1024  # characters of a component with blanks that is looked for in a text
_MOST_BORDERS = 6
_BORDER = re.compile(r"(?=[\s:;,()'\"]|\.?$|\.\s)")


class _Folder:
    """A folder's own pseudonym, and what lies in it."""

    __slots__ = ("files", "folders", "given")

    def __init__(self, given: str) -> None:
        self.given = given
        self.folders: dict[str, _Folder] = {}
        self.files: dict[str, str] = {}


class PathNames:
    """Pseudonyms of the paths asked for; `numbered` gives a word its next number."""

    def __init__(self, numbered: Callable[[str], str]) -> None:
        self._numbered = numbered
        self._root = _Folder("")

    def file(self, path: str, kind: str) -> str:
        """The pseudonym of a file; `kind` is a word for what it is, unless it is known."""
        if _STREAM.fullmatch(path) or not path:
            return path
        *folders, name = path.split("/")
        if name in _KEPT:
            return self.folder(path)
        folder, given = self._descend(folders)
        if name not in folder.files:
            folder.files[name] = f"{self._numbered(_choose_word(name, kind))}{_list_endings(name)}"
        return "/".join([*given, folder.files[name]])

    def folder(self, path: str) -> str:
        """The pseudonym of a folder."""
        return "/".join(self._descend(path.split("/"))[1])

    def known_at(self, text: str, at: int) -> tuple[int, str] | None:
        """(its end, its pseudonym) of the longest known path that begins there in a text.

        Components may hold blanks. A path ends where a component does.
        """
        folder, given = self._root, list[str]()
        while True:
            slash = text.find("/", at, at + _LONGEST_COMPONENT)
            inner = folder.folders.get(text[at:slash]) if slash >= 0 else None
            if inner is None:
                end = slash if slash >= 0 else min(at + _LONGEST_COMPONENT, len(text))
                return _find_last_component(folder, text, (at, end), given)
            folder, at = inner, slash + 1
            given.append(inner.given)

    def _descend(self, parts: Sequence[str]) -> tuple[_Folder, list[str]]:
        folder, given = self._root, list[str]()
        for depth, part in enumerate(parts):
            inner = folder.folders.get(part)
            if inner is None:
                below_root = depth == 1 and not parts[0]
                kept = part in _KEPT or (below_root and part in _KEPT_BELOW_ROOT)
                kept = kept or (depth == 0 and part in _SCHEMES)
                inner = folder.folders[part] = _Folder(part if kept else self._numbered("dir"))
            given.append(inner.given)
            folder = inner
        return folder, given


def _find_last_component(
    folder: _Folder, text: str, where: tuple[int, int], before: Sequence[str]
) -> tuple[int, str] | None:
    """(its end, the whole pseudonym) of the longest name in a folder that begins there."""
    found, (at, end) = None, where
    for i, border in enumerate(_BORDER.finditer(text, at, end)):
        name = text[at : border.start()]
        inner = folder.folders.get(name)
        given = folder.files.get(name) or (inner.given if inner and name else None)
        if given:
            found = (border.start(), "/".join([*before, given]))
        if i == _MOST_BORDERS:
            break
    return found


def has_ending(name: str) -> bool:
    """Whether the name ends like a file of a known format."""
    return bool(_list_endings(name))


def _choose_word(name: str, kind: str) -> str:
    """What the file is, in the words that other parts of vanidl look for in a name."""
    if "tfrecord" in name.lower():
        return f"{kind}-tfrecord"
    if kind == "checkpoint" and not is_named_checkpoint(name):
        return "written"
    return kind


def _list_endings(name: str) -> str:
    kept: list[str] = []
    for part in name.rsplit(".", _MOST_ENDINGS)[:0:-1]:
        if part.lower() not in ENDINGS:
            break
        kept.insert(0, f".{part.lower()}")
    return "".join(kept)


# Words that say nothing about whose a run is: any other word in a text is a name. These are the
# words of vanidl's own messages, those of the system's error messages, and those that profilers and
# their libraries give operations and devices. A word that is missing here costs readability, never
# a name: what is not known to be public is replaced.

_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_WORD = re.compile(r"[^\W\d_]{3,}")
_FILE_WORD = re.compile(r"\b[a-z_]+\.[a-z_]+\b")  # run.json, np.load
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:[dD](?![a-z]))?")
_LEAST = 3  # letters; shorter ones stand below, as a random name is soon made of such pieces
_MOST_DIGITS = 9
_LONGEST_WORD = 64
_SYSTEM_ERRORS = range(1, 134)  # those of Linux
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
    # Words of the system, of Python and of profilers, and this package's own strings.
    root = resources.files("vanidl")
    texts = [os.strerror(number) for number in _SYSTEM_ERRORS]
    texts += [_LIBRARIES, " ".join(dir(builtins)), " ".join(each.name for each in Signals)]
    texts.append((root / "anonymize" / "profiler_words.txt").read_text("utf-8"))
    found = set(_SHORT.split())
    for source in _read_sources(root):
        for quoted in _QUOTED.findall(source):
            texts.append(quoted)
            found.update(_FILE_WORD.findall(quoted))
    for text in texts:
        found.update(_WORD.findall(text.lower()))
        found.update(word.lower() for part in _WORD.findall(text) for word in _PARTS.findall(part)
                     if len(word) >= _LEAST)  # fmt: skip
    return frozenset(found)


def _read_sources(folder: Traversable) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read_sources(entry)
        elif entry.name.endswith(".py"):
            yield entry.read_text("utf-8")


def is_public(word: str) -> bool:
    """Whether a word, or all words that it is made of (`Conv2dBackward`), are public."""
    return len(word) <= _LONGEST_WORD and _is_public(word)


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
