"""What one input file may cost, in proportion to its size: nothing in a file is believed.

A `Budget` belongs to one file and is used up where bytes become text and text becomes objects:
inflating, names, records, fields of protocol buffers, values of JSON. Every byte and every object
takes a bounded number of steps, so the same numbers bound the time.
"""

from __future__ import annotations

import os
import stat
from dataclasses import field
from functools import cache
from hashlib import blake2b
from os import PathLike

from vanidl.errors import InputError
from vanidl.formatting import units
from vanidl.schema.dataclass import dataclass

FREE_TEXT_BYTES = 32 << 20
TEXT_BYTES_A_BYTE = 64
"""A file may inflate to FREE_TEXT_BYTES + TEXT_BYTES_A_BYTE times its size: real ones reach 30."""

FREE_VALUES = 2_000_000
"""A file may hold FREE_VALUES + 1 a byte events and other elements of lists."""

FREE_BYTES = 48 << 20
BYTES_A_BYTE = 32
"""What is held of a file beside its result, in the same way."""

FREE_ITEM_BYTES = 8 << 20
MOST_ITEM_BYTES = 64 << 20
COPIES_OF_ITEM = 6
"""One element or member of a text may be as long as FREE_ITEM_BYTES, and where its file is large
as MOST_ITEM_BYTES: a lost quotation mark must not pull all of it into memory. While it is parsed
there are COPIES_OF_ITEM of it, with what it becomes."""

FREE_PIECES = 4_000
BYTES_A_PIECE = 512
"""A file may hold FREE_PIECES + 1 per BYTES_A_PIECE threads, planes or other parts that are
decoded one by one, with the overhead of some dozens of calls into NumPy."""

RAISED_BY = "--max-memory"
"""The option that raises every limit of a file; each refusal names it."""
VARIABLE = "VANIDL_MAX_MEMORY"
"""In the environment: its bytes, so that workers know them, too."""
_TEXT_BYTES_A_PIECE = 1 << 16

OBJECT_BYTES = 200
"""Memory of a small object with its place in a list: a view, a name, a field."""

MOST_NAME_CHARACTERS = 4096
MOST_NAME_BYTES = 4 * MOST_NAME_CHARACTERS  # more are more characters, too
"""The longest path that Linux accepts; a longer span name ends in a digest of the whole."""

_MOST_DIGITS = 18  # whatever they are, the number fits into 64 bits


@dataclass(slots=True)
class Budget:
    """What is left for one file.

    Attributes:
        text_bytes: of text that may still be inflated.
        held_bytes: of memory that may still be taken beside the result.
        values: elements of lists that may still be parsed.
        pieces: parts that may still be decoded by themselves.
        item_bytes: length of one element of a list or member of an object, whatever is left.
    """

    text_bytes: int
    held_bytes: int
    values: int
    pieces: int
    item_bytes: int = FREE_ITEM_BYTES
    _first: tuple[int, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Remembers what it began with, for messages."""
        self._first = (self.text_bytes, self.held_bytes, self.values, self.pieces)

    @classmethod
    def of_file(cls, nbytes: int) -> Budget:
        """The budget of a file of that size, or that of the user where it is larger."""
        text = os.environ.get(VARIABLE)
        allowed = (whole_number(text) or 0) if text else 0
        held = FREE_BYTES + BYTES_A_BYTE * nbytes
        return cls(
            max(FREE_TEXT_BYTES + TEXT_BYTES_A_BYTE * nbytes, allowed),
            max(held, allowed),
            max(FREE_VALUES + nbytes, allowed // OBJECT_BYTES),
            max(FREE_PIECES + nbytes // BYTES_A_PIECE, allowed // _TEXT_BYTES_A_PIECE),
            max(min(held // COPIES_OF_ITEM, MOST_ITEM_BYTES), FREE_ITEM_BYTES,
                allowed // COPIES_OF_ITEM),
        )  # fmt: skip

    @property
    def text_limit(self) -> str:
        """The limit in words, for a message that begins with what goes beyond it."""
        return f"{units.nbytes(self._first[0])} of text{_OF_FILE}"

    @property
    def memory_limit(self) -> str:
        """As `text_limit`, of memory beside the result."""
        return f"{units.nbytes(self._first[1])} of memory{_OF_FILE}"

    @property
    def values_limit(self) -> str:
        """As `text_limit`, of elements."""
        return f"{self._first[2]:,} elements{_OF_FILE}"

    @property
    def item_limit(self) -> str:
        """As `text_limit`, of one element or member."""
        return f"{units.nbytes(self.item_bytes)}{_OF_FILE}"

    @property
    def pieces_limit(self) -> str:
        """As `text_limit`, of parts that are decoded one by one."""
        return f"{self._first[3]:,} parts{_OF_FILE}"

    def inflate(self, nbytes: int) -> bool:
        """Take that much text; False where it is more than is left."""
        self.text_bytes -= nbytes
        return self.text_bytes >= 0

    def hold(self, nbytes: int) -> bool:
        """Take that much memory; False where it is more than is left."""
        self.held_bytes -= nbytes
        return self.held_bytes >= 0

    def parse(self, values: int) -> bool:
        """Take that many elements; False where it is more than is left."""
        self.values -= values
        return self.values >= 0

    def divide(self, pieces: int) -> bool:
        """Take that many parts; False where it is more than is left."""
        self.pieces -= pieces
        return self.pieces >= 0

    @property
    def objects(self) -> int:
        """How many small objects may still be made."""
        return max(0, self.held_bytes) // OBJECT_BYTES


_OF_FILE = f", the limit of a file of its size ({RAISED_BY} raises it)"


def names_limit(sentence: str) -> bool:
    """Whether a sentence about a file says that a limit was reached."""
    return RAISED_BY in sentence


def read_whole(path: str | PathLike[str]) -> bytes:
    """The bytes of a file.

    Raises:
        OSError: It cannot be read.
        InputError: It is no regular file, or larger than this machine can hold beside its result.
    """
    with open(path, "rb", opener=without_waiting) as file:
        checked_size(file.fileno(), path)
        return file.read()


def checked_size(descriptor: int, path: str | PathLike[str]) -> int:
    """Bytes of an open file.

    Raises:
        IsADirectoryError: It is a folder.
        InputError: It is no regular file, or larger than this machine can hold beside its result.
    """
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(None, "Is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path}: expected a regular file, found another kind; name a file")
    if found.st_size > _memory_bytes() // 2:
        raise InputError(
            f"{path}: expected a file that fits into memory, found {found.st_size:,} bytes; "
            "read it on a larger machine, or record it again"
        )
    return found.st_size


def without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to must not stop us."""
    return os.open(path, flags | os.O_NONBLOCK)


@cache
def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def bounded_name(name: str) -> str:
    """The name; of one that is longer than any path its beginning and a digest of the whole."""
    if len(name) <= MOST_NAME_CHARACTERS:
        return name
    return _shorten_name(name, name.encode("utf-8", "surrogatepass"))


def decode_long_name(raw: memoryview) -> str:
    """`bounded_name` of more than MOST_NAME_BYTES, which are neither copied nor decoded."""
    return _shorten_name(str(raw[:MOST_NAME_BYTES], "utf-8", "backslashreplace"), raw)


def _shorten_name(beginning: str, whole: bytes | memoryview) -> str:
    digest = blake2b(whole, digest_size=8).hexdigest()
    return f"{beginning[: MOST_NAME_CHARACTERS - 32]}... ({digest})"


def whole_number(text: str) -> int | None:
    """The number that some ASCII digits write; None for other text and for absurd lengths."""
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    return None
