"""States of threads that `vanidl record` sampled from outside of the program (`*.states`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vanidl.formatting.units import plural
from vanidl.model.states import join_states
from vanidl.model.warnings import Notice
from vanidl.readers.format import (
    FileKind,
    Files,
    Format,
    Opening,
    Reading,
    Records,
    check_by_reading,
)

if TYPE_CHECKING:
    from vanidl.readers.states.log import StatesLog

_STATES = "states"
_TITLE = "sampled states of threads"


def _read(files: Files, reading: Reading) -> Records:
    from vanidl.readers.states.log import read_states  # where there are such files: it takes time

    logs = reading.each(_TITLE, read_states, files.get(_STATES, ()))
    notices = tuple(notice for log in logs for notice in _list_warnings(log))
    return Records(states=join_states([log.states for log in logs]), notices=notices)


def _list_warnings(log: StatesLog) -> Iterator[Notice]:
    """What is missing of the samples of one recorder."""
    if log.forbidden:
        yield Notice(
            "states_forbidden",
            f"{log.path}: the system lets nobody look into {plural(len(log.forbidden), 'process')} "
            "of the run (Yama, hidepid or another user), so what its threads were doing was not "
            "sampled.",
            "info",
        )
    if log.left_out:
        yield Notice(
            "states_forbidden",
            f"{log.path}: there were more threads than can be sampled at once; the later ones "
            "were left out.",
            "info",
        )
    cut = () if log.ended else ("its end is missing, as that of a recorder that was killed",)
    for loss in (*log.losses, *cut):
        yield Notice("damaged", f"{log.path}: {loss}. The rest is used.", "info")


def _read_losses(path: Path) -> Sequence[str]:
    from vanidl.readers.states.log import read_states

    return read_states(path).losses


def _sniff(opening: Opening) -> str:
    from vanidl.readers.states.log import MAGIC

    return _STATES if MAGIC.startswith(opening.head[: len(MAGIC)]) and opening.head else ""


FORMAT = Format(
    name="states",
    title=_TITLE,
    patterns=(".states",),
    kinds=(FileKind(_STATES, _TITLE, (".states",)),),
    read=_read,
    check=check_by_reading({_STATES: _read_losses}),
    sniff=_sniff,
    outputs=r"\.states$",
)
