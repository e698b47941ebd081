"""DFTracer traces (`.pfw`, `.pfw.gz`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vanidl.readers.format import FileKind, Files, Format, Opening, Reading, Records

if TYPE_CHECKING:
    from vanidl.readers.verdict import Verdict

_TRACE = "dftracer"


def _read(files: Files, reading: Reading) -> Records:
    from vanidl.readers.dftracer import reading as traces  # where there is one: it takes time

    return traces.read_traces(files.get(_TRACE, ()), reading)


def _check(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> Sequence[Verdict]:
    from vanidl.readers.dftracer import reading as traces

    return traces.check_traces(files, before_each)


def _sniff(opening: Opening) -> str:
    return _TRACE if opening.is_event_a_line else ""


FORMAT = Format(
    name="dftracer",
    title="DFTracer traces",
    patterns=(".pfw", ".pfw.gz"),
    kinds=(FileKind(_TRACE, "DFTracer trace", (".pfw", ".pfw.gz")),),
    read=_read,
    check=_check,
    traces_io=True,
    sniff=_sniff,
    outputs=r"\.pfw(\.gz)?$",
)
