"""What was kept in memory in a ceiling run, and which loaders stayed real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vanidl.formatting.names import elided
from vanidl.readers.steps.journal import Journal

_MOST_NBYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Kept:
    """Over all processes. `remarks` name loaders whose batches stayed real, and say why."""

    loaders: int
    batches: int
    nbytes: int
    remarks: tuple[str, ...]


def kept(journals: Sequence[Journal]) -> Kept:
    """What the journals of a ceiling run say of its loaders."""
    texts = [text for journal in journals for text in journal.replayed]
    on = [text for text in texts if text["state"] == "on"]
    real = Counter(_remark(text) for text in texts if text["state"] != "on")
    return Kept(
        len(on),
        sum(_number(text.get("kept")) for text in on),
        sum(_number(text.get("nbytes")) for text in on),
        tuple(f"{text}{f' ({count} times)' if count > 1 else ''}" for text, count in real.items()),
    )


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < _MOST_NBYTES else 0


def _remark(text: Mapping[str, Any]) -> str:
    data = text.get("dataset")
    of_data = f" ({data})" if isinstance(data, str) and data != "NoneType" else ""
    name = elided(f"{text.get('class', 'a loader')}{of_data}", limit=80)
    if text["state"] == "refused":
        why = elided(str(text.get("why", "")), limit=200)
        return f"{name} stayed real: its batches cannot be copied ({why})"
    if text["state"] == "unsupported":
        return f"{name} stayed real: {elided(str(text.get('why', '')), limit=200)}"
    if _number(text.get("length")) == 1:
        return (
            f"{name} stayed real: its passes have one batch, and nobody asks for their end, which "
            "is when a batch is kept"
        )
    return (
        f"{name} stayed real: it gave fewer batches than the warm-up of {text.get('needed')}, or "
        "how many a pass has was not known, as none had ended (--epoch-batches N says so)"
    )
