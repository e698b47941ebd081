"""The beginning of a file whose name says nothing, for formats that know themselves by it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import orjson

from vanidl.encoding.text_stream import TextStream

_HEAD_BYTES = 16
_EVENT_KEYS = {"ph", "ts", "pid"}


class Opening:
    """How a file begins.

    Raises:
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name
        with path.open("rb") as file:
            self.head = file.read(_HEAD_BYTES)

    @cached_property
    def text(self) -> bytes:
        """The first text in it, inflated where the file is compressed; without white space."""
        text = next((chunk for chunk in TextStream(self._path) if chunk.strip()), b"")
        return text.removeprefix(b"\xef\xbb\xbf").lstrip()

    @property
    def is_json(self) -> bool:
        """Whether it is an object or an array of JSON."""
        return self.text.startswith((b"{", b"["))

    @cached_property
    def is_event_a_line(self) -> bool:
        """Whether it is JSON whose first line, but for a bracket, is a whole trace event."""
        if not self.is_json:
            return False
        line = self.text.removeprefix(b"[").lstrip().split(b"\n", 1)[0]
        try:
            event = orjson.loads(line.rstrip().rstrip(b","))
        except orjson.JSONDecodeError:
            return False
        return isinstance(event, dict) and event.keys() >= _EVENT_KEYS
