"""Whether one file is whole: the states, the verdict, and what most formats need to reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vanidl.encoding.budget import RAISED_BY, names_limit
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError
from vanidl.formatting.from_logs import clean_path, clean_text, clean_texts, set_clean
from vanidl.schema.dataclass import dataclass

WHOLE = "whole"
PARTIAL = "partial"
CUT = "cut"
DAMAGED = "damaged"
LIMITED = "limited"
UNKNOWN_VERSION = "unknown version"
FOREIGN = "foreign"
EMPTY = "empty"
UNREADABLE = "unreadable"
NOT_CHECKED = "not checked"

STATES = {
    WHOLE: "everything that was written is there",
    PARTIAL: "whole, but the tracer itself says that it left records out or did not finish",
    CUT: "the end of the file is missing; what comes before is used",
    LIMITED: "it holds more than a file of its size may; what came before is used, and "
    f"{RAISED_BY} raises the limit",
    DAMAGED: "bytes inside the file are wrong; what can be read is used",
    UNKNOWN_VERSION: "a log in a version of its format that vanidl does not know",
    FOREIGN: "not what its name says, or of no kind that vanidl knows",
    EMPTY: "the file is empty",
    UNREADABLE: "missing, or permission denied",
    NOT_CHECKED: "output of another kind: named here, not looked into",
}
"""Every state and what it means."""

_EMPTY_FILE = "the file is empty"


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """Operations that the counters of a log hold, and that its trace holds."""

    layer: str
    counted_ops: int | None  # None: no counters, or they cannot be read
    traced_ops: int | None  # None: no trace of this layer

    @property
    def traced_fraction(self) -> float | None:
        """Traced / counted operations; None where either is unknown or nothing was counted."""
        if self.traced_ops is None or not self.counted_ops:
            return None
        return self.traced_ops / self.counted_ops


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one file. `missing` holds a sentence for each thing that is not there."""

    path: str
    kind: str  # "Darshan log", "PyTorch profiler trace", ... or "" where nothing tells
    state: str  # one of STATES
    read: bool  # whether at least a part of it could be read
    version: str = ""  # "" where the file says none
    missing: tuple[str, ...] = ()
    layers: tuple[LayerCheck, ...] = ()

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        version, missing = clean_text(self.version), clean_texts(self.missing)
        set_clean(self, path=clean_path(self.path), version=version, missing=missing)


def check_file(
    path: Path,
    kind: str,
    losses_of: Callable[[Path], Sequence[str]],
    state_of: Callable[[Sequence[str]], str] | None = None,
) -> Verdict:
    """The verdict on a file that is read as a whole.

    Args:
        path: the file.
        kind: what it is called.
        losses_of: reads it; a sentence for each loss.
        state_of: what losses say of the file; by default `state_by_losses`.
    """
    try:
        losses = tuple(read_one(losses_of, path))
        empty = path.stat().st_size == 0
    except (InputError, OSError) as error:
        return report_refused(path, kind, str(error))
    if empty:
        return report_empty(path, kind)
    state = (state_of or classify_losses)(losses)
    return Verdict(str(path), kind, state, read=True, missing=losses)


def classify_losses(losses: Sequence[str]) -> str:
    """What the losses of a file that could be read mean."""
    if any(map(names_limit, losses)):
        return LIMITED
    if ends_early(losses):
        return CUT
    return DAMAGED if losses else WHOLE


def ends_early(sentences: Iterable[str]) -> bool:
    """Whether the reader says so: readers of JSON tell a cut text from a wrong one."""
    return any("is cut" in sentence for sentence in sentences)


def report_refused(path: Path, kind: str, why: str) -> Verdict:
    """The verdict on a file that its reader does not take, and why not."""
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError:
        return Verdict(str(path), kind, UNREADABLE, read=False, missing=(why,))
    known = LIMITED if names_limit(why) else CUT if ends_early([why]) else FOREIGN
    state = EMPTY if empty else known
    return Verdict(str(path), kind, state, read=False, missing=(why,))


def report_empty(path: Path, kind: str) -> Verdict:
    """The verdict on an empty file."""
    return Verdict(str(path), kind, EMPTY, read=False, missing=(_EMPTY_FILE,))


def report_unchecked(path: Path, kind: str) -> Verdict:
    """The verdict on a file that no command looks into."""
    if path.stat().st_size == 0:
        return report_empty(path, kind)
    return Verdict(str(path), kind, NOT_CHECKED, read=False)
