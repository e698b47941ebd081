"""Kind of a single file by its first bytes, for files that were renamed."""

from __future__ import annotations

from pathlib import Path

import orjson

from vanidl.readers.encoding.text_stream import TextStream

_DARSHAN_MAGIC = 6567223
_MAGIC_PLACE = slice(8, 16)
_EVENT_KEYS = {"ph", "ts", "pid"}


def kind_by_content(path: Path) -> str:
    """Field of `discover.Found` that the file belongs to, "" for none.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(_MAGIC_PLACE.stop)
    if len(start) == _MAGIC_PLACE.stop and _is_darshan(start[_MAGIC_PLACE]):
        return "darshan"
    text = next((chunk for chunk in TextStream(path) if chunk.strip()), b"")
    return _kind_of_json(text.removeprefix(b"\xef\xbb\xbf").lstrip())


def _is_darshan(magic: bytes) -> bool:
    return _DARSHAN_MAGIC in (int.from_bytes(magic, "little"), int.from_bytes(magic, "big"))


def _kind_of_json(text: bytes) -> str:
    """DFTracer writes an event a line, with or without a bracket before the first."""
    if not text.startswith((b"{", b"[")):
        return ""
    line = text.removeprefix(b"[").lstrip().split(b"\n", 1)[0]
    try:
        event = orjson.loads(line.rstrip().rstrip(b","))
    except orjson.JSONDecodeError:
        return "profiler"
    is_event = isinstance(event, dict) and event.keys() >= _EVENT_KEYS
    return "dftracer" if is_event else "profiler"
