"""What was kept in memory in a ceiling run, and which loaders stayed real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vanidl.formatting.names import elided
from vanidl.formatting.units import plural
from vanidl.readers.steps.journal import REPLAY, Journal

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
    texts = [(text, handed) for journal in journals for text, handed in _handed_out(journal)]
    on = [text for text, handed in texts if handed]
    real = Counter(_remark(text) for text, handed in texts if not handed)
    return Kept(
        len(on),
        sum(_number(text.get("kept")) for text in on),
        sum(_number(text.get("nbytes")) for text in on),
        tuple(f"{text}{f' ({count} times)' if count > 1 else ''}" for text, count in real.items()),
    )


def _handed_out(journal: Journal) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """What became of each loader, and whether any batch of it came from memory."""
    events = journal.events
    handed = set(events.number[events.kind == REPLAY].tolist())
    yield from ((text, text["replay"] in handed) for text in journal.replayed)


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
    return f"{name} stayed real: {_why_no_more(text)}"


def _why_no_more(text: Mapping[str, Any]) -> str:
    """Why no batch of a loader came from memory that could be kept."""
    length, needed = _number(text.get("length")), _number(text.get("needed"))
    if length == 1:
        return (
            "its passes have one batch, and none began after one whose end was asked for, which "
            "is when a batch is kept"
        )
    if length > needed + 1 or text.get("endless"):
        return f"no pass over it got past the warm-up of {plural(needed, 'batch', 'batches')}"
    if length:
        return (
            f"its one pass has {length} batches, no more than the warm-up of {needed}: where data "
            "are made again for each pass, as Keras's predict and evaluate do in each call, each "
            f"has a warm-up of its own (--warm-up {max(length // 2, 1)} leaves batches for memory)"
        )
    return (
        "how many batches a pass has is not known before one has ended, and none began after that "
        "(--epoch-batches N says it)"
    )
