"""Operations on object storage that `vanidl record` recorded inside the program (`*.objects`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vanidl.readers.format import (
    FileKind,
    Files,
    Format,
    Opening,
    Reading,
    Records,
    check_by_reading,
    warn_of_unused,
)

_OBJECTS = "objects"
_TITLE = "recorded operations on object storage"


def _read(files: Files, reading: Reading) -> Records:
    # Where there are such files: importing what reads them takes time.
    from vanidl.readers.objects.log import build_counters, build_log, list_warnings
    from vanidl.readers.objects.operations import read_operations

    every = reading.each(_TITLE, read_operations, files.get(_OBJECTS, ()))
    asked = [file for file in every if len(file.requests)]
    counted = {file.path: build_counters(file) for file in asked}
    lost = [
        note
        for one in every
        if not len(one.requests)
        for note in warn_of_unused(one.path, one.losses)
    ]
    notices = (*list_warnings(asked), *lost)
    return Records(tuple(build_log(file) for file in asked), counted, notices=notices)


def _read_losses(path: Path) -> Sequence[str]:
    from vanidl.readers.objects.operations import read_operations

    return read_operations(path).losses


def _sniff(opening: Opening) -> str:
    from vanidl.readers.objects.operations import MAGIC

    return _OBJECTS if MAGIC.startswith(opening.head) and opening.head else ""


FORMAT = Format(
    name="objects",
    title=_TITLE,
    patterns=(".objects",),
    kinds=(FileKind(_OBJECTS, "recorded operations on object storage", (".objects",)),),
    read=_read,
    check=check_by_reading({_OBJECTS: _read_losses}),
    traces_io=True,
    sniff=_sniff,
    outputs=r"\.objects$",
)
