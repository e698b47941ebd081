"""The bytes of a log, those of a large one read where they are used."""

from __future__ import annotations

from pathlib import Path

from vanidl.encoding.file_bytes import AnyBytes, FileBytes, whole_bytes
from vanidl.encoding.text_stream import GZIP_MAGIC, TextStream
from vanidl.errors import InputError
from vanidl.readers.darshan.header import version_of

_START = 16  # version and magic
_LARGE = 64 << 20  # bytes


def _unpacked(name: str) -> memoryview:
    """The bytes of a log that was packed by gzip as a whole.

    Raises:
        InputError: They are damaged, or more than a file of its size may hold.
    """
    text = TextStream(Path(name))
    data = b"".join(text)
    if text.damage:
        raise InputError(f"{name}: expected a Darshan log, found that {text.damage}; copy it again")
    return memoryview(data)


def log_bytes(name: str) -> AnyBytes:
    """The bytes of what may be a log; of a large one they are read where they are used.

    Raises:
        InputError: They cannot be read.
    """
    try:
        data = whole_bytes(name, _LARGE)
        if data is not None:
            return _unpacked(name) if data[:2] == GZIP_MAGIC else data
        large = FileBytes(name)
        return large if version_of(bytes(large[:_START])) else large[:]
    except FileNotFoundError:
        found, remedy = "no such file", "check the name"
    except IsADirectoryError:
        found, remedy = "a folder", "name one of the logs in it"
    except OSError as error:
        found, remedy = str(error.strerror), "make it readable"
    raise InputError(f"{name}: expected a Darshan log, found {found}; {remedy}")
