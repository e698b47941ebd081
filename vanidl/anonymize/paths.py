"""Pseudonyms of paths, component by component: a tree, so time and memory follow their length.

A path keeps its depth, the kind of its file and endings that are those of a format; what is in
/proc, /sys, /dev and /etc keeps that folder, an object its scheme (`s3://dir1/data2.npy`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from vanidl.model.file_kinds import is_named_checkpoint

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

_MOST_ENDINGS = 4
_LONGEST = 1024  # characters of a component with blanks that is looked for in a text
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
        folder, given = self._descended(folders)
        if name not in folder.files:
            folder.files[name] = f"{self._numbered(_word(name, kind))}{_endings(name)}"
        return "/".join([*given, folder.files[name]])

    def folder(self, path: str) -> str:
        """The pseudonym of a folder."""
        return "/".join(self._descended(path.split("/"))[1])

    def known_at(self, text: str, at: int) -> tuple[int, str] | None:
        """(its end, its pseudonym) of the longest known path that begins there in a text.

        Components may hold blanks. A path ends where a component does.
        """
        folder, given = self._root, list[str]()
        while True:
            slash = text.find("/", at, at + _LONGEST)
            inner = folder.folders.get(text[at:slash]) if slash >= 0 else None
            if inner is None:
                end = slash if slash >= 0 else min(at + _LONGEST, len(text))
                return _last_component(folder, text, (at, end), given)
            folder, at = inner, slash + 1
            given.append(inner.given)

    def _descended(self, parts: Sequence[str]) -> tuple[_Folder, list[str]]:
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


def _last_component(
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
    return bool(_endings(name))


def _word(name: str, kind: str) -> str:
    """What the file is, in the words that other parts of vanidl look for in a name."""
    if "tfrecord" in name.lower():
        return f"{kind}-tfrecord"
    if kind == "checkpoint" and not is_named_checkpoint(name):
        return "written"
    return kind


def _endings(name: str) -> str:
    kept: list[str] = []
    for part in name.rsplit(".", _MOST_ENDINGS)[:0:-1]:
        if part.lower() not in ENDINGS:
            break
        kept.insert(0, f".{part.lower()}")
    return "".join(kept)
