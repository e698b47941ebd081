"""Darshan logs, finished (`.darshan`) or left by a process that was stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vanidl.encoding.text_stream import GZIP_MAGIC
from vanidl.readers.darshan.header import MAGIC
from vanidl.readers.darshan.log import UNFINISHED
from vanidl.readers.darshan.reading import LOG, UNFINISHED_LOG, read_darshan
from vanidl.readers.format import FileKind, Format, Opening

if TYPE_CHECKING:
    from vanidl.readers.verdict import Verdict

_MAGIC_PLACE = slice(8, 16)
_PERHAPS = (".darshan.gz", ".darshan.txt")  # as attachments of mails and of threads are called


def _sniff(opening: Opening) -> str:
    packed = opening.head.startswith(GZIP_MAGIC)
    magic = (opening.text if packed else opening.head)[_MAGIC_PLACE]
    whole = len(magic) == _MAGIC_PLACE.stop - _MAGIC_PLACE.start
    orders = (int.from_bytes(magic, "little"), int.from_bytes(magic, "big"))
    return LOG if whole and MAGIC in orders else ""


def _check(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> Sequence[Verdict]:
    from vanidl.readers.darshan.verdict import check_logs

    return check_logs(files, before_each)


FORMAT = Format(
    name="darshan",
    title="Darshan logs",
    patterns=(".darshan",),
    kinds=(
        FileKind(LOG, "Darshan log", (".darshan",), perhaps=_PERHAPS, is_log=True),
        FileKind(UNFINISHED_LOG, "Darshan log", (UNFINISHED,), is_log=True),
    ),
    read=read_darshan,
    check=_check,
    traces_io=True,
    sniff=_sniff,
    sniff_among=_sniff,
    outputs=r"\.darshan",
)
