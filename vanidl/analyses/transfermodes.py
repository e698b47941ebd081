"""Where the sizes of dataset reads cluster, and what makes them so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.dataset.hdf5 import INDEX_NODES
from vanidl.dataset.tfrecord import READ_BUFFER
from vanidl.model.file_facts import Block
from vanidl.model.user_data import UserData

Int64Array = NDArray[np.int64]

_LEAST = 0.02  # of the reads or of the bytes makes a mode
_MANY = 16  # different sizes that lie together


@dataclass(frozen=True, slots=True)
class TransferMode:
    """Dataset reads of one size, or of sizes that belong together: low <= size <= high bytes.

    `certain`: the cause was found in opened files; else it is what such a size is typical of.
    `cause` None: unknown.
    """

    low: int
    high: int
    reads: int
    share_of_reads: float
    share_of_bytes: float
    cause: str | None
    certain: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Distinct sizes with their number of reads, and the totals that shares are of."""

    nbytes: Int64Array
    reads: Int64Array
    all_reads: int
    all_bytes: int

    def pick(self, rows: NDArray[np.bool_]) -> _Sizes:
        """Some of the sizes, with the same totals."""
        return _Sizes(self.nbytes[rows], self.reads[rows], self.all_reads, self.all_bytes)

    @property
    def large_alone(self) -> NDArray[np.bool_]:
        """For each size whether it is a mode by itself."""
        often: NDArray[np.bool_] = self.reads >= _LEAST * self.all_reads
        return often | (self.nbytes * self.reads >= _LEAST * self.all_bytes)

    @property
    def large(self) -> bool:
        """Whether all sizes together are a mode."""
        volume = int((self.nbytes * self.reads).sum())
        return int(self.reads.sum()) >= _LEAST * self.all_reads or volume >= _LEAST * self.all_bytes


def modes(
    sizes: tuple[Int64Array, Int64Array], paths: Sequence[str], user_data: UserData
) -> tuple[TransferMode, ...]:
    """Modes that hold 2 % of the reads or bytes, most bytes first.

    First sizes that opened files account for, by cause; then single sizes; then what is left,
    by powers of two.
    """
    nbytes, reads = (column[sizes[0] > 0] for column in sizes)
    total = _Sizes(nbytes, reads, int(reads.sum()), int((nbytes * reads).sum()))
    if len(nbytes) == 0:
        return ()
    known = _known(paths, user_data)
    found: list[TransferMode] = []
    cause = np.array([known[n].what if n in known else "" for n in nbytes.tolist()], object)
    for what in sorted(set(cause.tolist()) - {""}):
        mine = total.pick(cause == what)
        if mine.large:
            found.append(_mode(mine, what, True, _evidence(mine, known)))
    rest = total.pick(cause == "")
    single = rest.large_alone
    alone = rest.nbytes[single].tolist()
    found += [_hinted(rest.pick(rest.nbytes == size), paths) for size in alone]
    rest = rest.pick(~single)
    octave = np.frexp(rest.nbytes.astype(float))[1]
    groups = [rest.pick(octave == k) for k in np.unique(octave).tolist()]
    found += [_hinted(group, paths) for group in groups if group.large]
    return tuple(sorted(found, key=lambda m: (-m.share_of_bytes, -m.reads, m.low)))


def _mode(mine: _Sizes, cause: str | None, certain: bool, evidence: str) -> TransferMode:
    return TransferMode(
        int(mine.nbytes.min()),
        int(mine.nbytes.max()),
        int(mine.reads.sum()),
        int(mine.reads.sum()) / mine.all_reads,
        int((mine.nbytes * mine.reads).sum()) / mine.all_bytes,
        cause,
        certain,
        evidence,
    )


def _known(paths: Sequence[str], user_data: UserData) -> dict[int, Block]:
    """Size -> what opened files have of it; the reader's buffer of TFRecord files first."""
    facts = [user_data.facts[path] for path in paths if path in user_data.facts]
    known: dict[int, Block] = {}
    for file in facts:
        for block in file.blocks:
            known.setdefault(block.nbytes, block)
        if file.format == "TFRecord":
            known[READ_BUFFER] = Block(READ_BUFFER, 0, "TFRecord reader's buffer")
    return known


def _evidence(mine: _Sizes, known: dict[int, Block]) -> str:
    pieces = sum(known[n].count for n in mine.nbytes.tolist())
    if not pieces:
        return "the opened files are TFRecord; 256 KiB is what their reader asks for by default"
    return f"{pieces:,} pieces of exactly these sizes in the opened files"


def _hinted(mine: _Sizes, paths: Sequence[str]) -> TransferMode:
    for hint in _HINTS:
        text = hint(mine.nbytes, paths)
        if text:
            evidence = "by size and file names; no file was opened to confirm it"
            return _mode(mine, f"typical of {text}", False, evidence)
    return _mode(mine, None, False, "unknown")


def _tfrecord_hint(nbytes: Int64Array, paths: Sequence[str]) -> str:
    named = any("tfrecord" in p.rsplit("/", 1)[-1].lower() for p in paths)
    if named and nbytes.tolist() == [READ_BUFFER]:
        return "the TFRecord reader's buffer (256 KiB by default)"
    return ""


def _hdf5_hint(nbytes: Int64Array, paths: Sequence[str]) -> str:
    if not any(p.lower().endswith((".h5", ".hdf5", ".he5", ".nc")) for p in paths):
        return ""
    if len(nbytes) == 1:
        return INDEX_NODES.get(int(nbytes[0]), "")
    return "compressed HDF5 chunks (many sizes close together)" if len(nbytes) >= _MANY else ""


def _buffered_hint(nbytes: Int64Array, paths: Sequence[str]) -> str:
    del paths
    names = {4096: "a page or C's stdio buffer", 8192: "Python's file buffer"}
    return names.get(int(nbytes[0]), "") if len(nbytes) == 1 else ""


_HINTS: tuple[Callable[[Int64Array, Sequence[str]], str], ...] = (
    _tfrecord_hint,
    _hdf5_hint,
    _buffered_hint,
)
