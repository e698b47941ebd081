"""DFTracer from PyPI as a recorder: no installation by an administrator, x86-64 Linux only."""

from __future__ import annotations

import gzip
import importlib.util
import re
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from vanidl.encoding.text_stream import TextStream
from vanidl.errors import InputError
from vanidl.record.recorder import (
    CUT,
    ENDED,
    PRELOAD,
    Recorder,
    Tracer,
    keep_private,
    prepend_preload,
)

NAME = "dftracer"
FOLDER = "dftracer"
BUFFER_BYTES = 4096
"""Measured: no dearer than 16 MiB, and a killed process loses this much of its trace at most."""

_START = re.compile(rb'"name":"start"[^\n]*?"pid":(\d+)')
_END = re.compile(rb'"name":"end"[^\n]*?"pid":(\d+)')
_TAIL_BYTES = 16_384


def find_library() -> Path | None:
    """The library to preload, None where the package is not installed."""
    spec = importlib.util.find_spec("dftracer")
    folders = (spec.submodule_search_locations if spec else None) or []
    candidates = (Path(folder) / "lib64" / "libdftracer_preload.so" for folder in folders)
    return next((path for path in candidates if path.is_file()), None)


def make_tracer(run: Path) -> Tracer:
    """DFTracer, writing into a folder of the run.

    Raises:
        InputError: the package is not installed.
    """
    preload = find_library()
    if preload is None:
        raise InputError(
            "expected the package dftracer, found none: pip install 'vanidl-io[record]' (wheels "
            "exist for x86-64 Linux only; elsewhere record with Darshan)"
        )
    folder = run / FOLDER
    folder.mkdir(0o700, parents=True, exist_ok=True)
    return Tracer(
        NAME,
        metadata.version("dftracer"),
        make_environment(preload, folder),
        lambda pids: list_logged(folder),  # noqa: ARG005  (every trace names its process)
        harm=HARM,
        goes_on=_GOES_ON,
    )


HARM = (
    "DFTracer can change what a program does: where the program closes descriptors that it did "
    "not open, as daemons do (os.closerange), trace text goes into files of its own, and on a full "
    "disk calls that fail set another errno. vanidl's own tracer (--tracer vanidl) does neither."
)
_GOES_ON = (
    "DFTracer cannot be stopped in a process that goes on, and writes until the disk is full."
)
_LOSE_CALLS = (
    "DFTRACER_ENABLE_AGGREGATION", "DFTRACER_DISABLE_IO", "DFTRACER_DISABLE_POSIX",
    "DFTRACER_DISABLE_STDIO",
)  # fmt: skip
"""Variables of the user's own with which single calls are not recorded: they are taken away."""


def make_environment(preload: Path, folder: Path) -> dict[str, str | None]:
    """The variables of a run.

    DATA_DIR matches the text of the path that a program gives, so only "all" sees relative
    ones; without INC_METADATA events have neither file nor size. Compression is off because
    DFTracer 2.2.0 damages the end of some traces with it (a trainer that spawned workers,
    each time); `found` compresses whole ones later.
    """
    return {
        PRELOAD: prepend_preload(preload),
        "DFTRACER_ENABLE": "1",
        "DFTRACER_INIT": "PRELOAD",
        "DFTRACER_LOG_FILE": str(folder / "trace"),
        "DFTRACER_DATA_DIR": "all",
        "DFTRACER_INC_METADATA": "1",
        "DFTRACER_WRITE_BUFFER_SIZE": str(BUFFER_BYTES),
        "DFTRACER_TRACE_COMPRESSION": "0",
        **dict.fromkeys(_LOSE_CALLS),
    }


def list_logged(folder: Path) -> Mapping[int, str]:
    """Processes with a trace: pid -> ENDED, or CUT where the trace has no end.

    Whole traces are compressed on the way, to about a tenth, where the disk has room for that.
    """
    states: dict[int, str] = {}
    for path in sorted(folder.glob("*.pfw*")):
        try:
            pid, ended = _read_ending(path)
        except (OSError, EOFError, ValueError):  # the report will say what is wrong with it
            continue
        if pid is not None:
            before = states.get(pid, CUT)
            states[pid] = ENDED if ended else before
        if ended and path.suffix == ".pfw":
            path = _compress(path)
        keep_private(path)
    return states


def _compress(path: Path) -> Path:
    """Where the trace is then: packed, or as it was where there is no room."""
    packed = path.with_suffix(".pfw.gz")
    part = path.with_suffix(".part")
    try:
        with path.open("rb") as plain, gzip.open(part, "wb", compresslevel=1) as file:
            shutil.copyfileobj(plain, file)
        part.replace(packed)
        path.unlink()
    except OSError:  # it stays as it is
        part.unlink(missing_ok=True)
        return path
    return packed


def _read_ending(path: Path) -> tuple[int | None, bool]:
    """The process that wrote a trace, and whether it ended it: it may do so in a second file."""
    pid, tail = None, b""
    for chunk in TextStream(path):
        tail = tail[-_TAIL_BYTES:] + chunk
        if pid is None and (start := _START.search(tail)):
            pid = int(start[1])
    end = _END.search(tail)
    return int(end[1]) if pid is None and end else pid, bool(end)


RECORDER = Recorder(
    NAME, is_here=lambda _: find_library() is not None, prepare=lambda run, _: make_tracer(run)
)
