"""The encoded container (.vdl): named arrays of one sample, each in sections, under CRC-32.

Little-endian. Sections begin at multiples of 64 bytes, so that a GPU reads them aligned.

    offset  bytes  content
    0       4      magic "VDL" and 0x1A
    4       2      version, 1
    6       2      zero
    8       4      bytes of the description
    12      4      CRC-32 of the description
    16      8      bytes of the body
    24      4      CRC-32 of the body
    28      4      CRC-32 of the 28 bytes before
    32             description: JSON, then zeros up to a multiple of 64
    ...            body: the sections, each followed by zeros up to a multiple of 64

The description lists the arrays: name, codec, shape and type before encoding and after decoding,
the codec's parameters, and of each section its name, type, shape and offset in the body. A file
holds nothing else: its length follows from the first 32 bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from ..errors import InputError

MAGIC = b"VDL\x1a"
VERSION = 1  # of the prefix and the description; codecs have formats of their own
ALIGNMENT = 64  # a cache line: sections can be viewed as any type where they lie
_PREFIX = struct.Struct("<4sHHIIQII")
_DIMENSIONS_MOST = 16  # of an array; what a description claims is bounded
_VALUES_MOST = 500_000
"""Values a byte of the container may decode to: a DeepCAM line of one value, as long as may be."""

Sections = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Spec:
    """Shape and NumPy type (`<f2`) of an array."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of such an array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Encoded:
    """One encoded array.

    Attributes:
        codec: Name in `vanidl_loaders.decoders.coding.CODECS`.
        source: What was encoded.
        decoded: What comes back.
        parameters: The codec's own, JSON values.
        sections: The codec's arrays, read-only where they come from a container.
    """

    codec: str
    source: Spec
    decoded: Spec
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sections: Sections = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the sections: what goes to the device."""
        return sum(section.nbytes for section in self.sections.values())

    def section(self, name: str, dtype: str, *, ndim: int = 1) -> NDArray[Any]:
        """A section of a known type and number of dimensions.

        Raises:
            InputError: It is not there, or another.
        """
        found = self.sections.get(name)
        if found is None or found.dtype != np.dtype(dtype) or found.ndim != ndim:
            held = "none" if found is None else f"{found.ndim} of {found.dtype}"
            raise describe_damage(f"section {name} of {ndim} dimensions of {dtype}", held)
        return found


def describe_damage(expected: object, found: object) -> InputError:
    """The error for a container that is not what its encoder wrote."""
    return InputError(f"expected {expected} in the container, found {found}: encode the data again")


def pack(arrays: Mapping[str, Encoded]) -> bytes:
    """The container of the named arrays: the same bytes for the same arrays."""
    body, entries = bytearray(), []
    # Sections one behind the other, aligned, so that they can be viewed where they were read.
    for name, encoded in arrays.items():
        sections = []
        for key, section in encoded.sections.items():
            sections.append([key, section.dtype.str, list(section.shape), len(body)])
            body += np.ascontiguousarray(section).tobytes()
            body += bytes(-len(body) % ALIGNMENT)
        entry = {
            "name": name,
            "codec": encoded.codec,
            "source": [list(encoded.source.shape), encoded.source.dtype],
            "decoded": [list(encoded.decoded.shape), encoded.decoded.dtype],
            "parameters": dict(encoded.parameters),
            "sections": sections,
        }
        entries.append(entry)
    # The description says where each lies; it is padded, so that the body begins aligned, too.
    text = json.dumps({"arrays": entries}, separators=(",", ":")).encode()
    text += bytes(-(len(text) + _PREFIX.size) % ALIGNMENT)
    # The prefix comes last: it has the lengths and CRCs of both, and its own.
    prefix = _PREFIX.pack(MAGIC, VERSION, 0, len(text), crc32(text), len(body), crc32(body), 0)
    prefix = prefix[:-4] + struct.pack("<I", crc32(prefix[:-4]))
    return b"".join((prefix, text, body))


@dataclass(frozen=True)
class Opened:
    """A container whose description is whole; whether its body is, is another question.

    Attributes:
        arrays: Their sections are views of the body.
        body: (nbytes,) uint8, nbytes a multiple of 64.
        body_crc: CRC-32 that the body must have.
    """

    arrays: dict[str, Encoded]
    body: NDArray[np.uint8]
    body_crc: int

    def require_whole(self) -> None:
        """Raises InputError where the body is damaged."""
        if crc32(self.body) != self.body_crc:
            raise describe_damage("the body's CRC-32", "another")


def unpack(buffer: bytes | bytearray | memoryview) -> dict[str, Encoded]:
    """The arrays of a container; their sections are views of the buffer.

    Raises:
        InputError: Foreign, of another version, cut, longer than it says, or damaged.
    """
    opened = unpack_unchecked(buffer)
    opened.require_whole()
    return opened.arrays


def unpack_unchecked(buffer: bytes | bytearray | memoryview) -> Opened:
    """A container, the CRC-32 of its body not compared: where a GPU does that.

    Raises:
        InputError: As `unpack`, but for a damaged body.
    """
    data = memoryview(buffer).cast("B")
    start, end = _find_header_bounds(data)
    text = data[_PREFIX.size : start]
    # The description is checked here in any case: it says where everything lies.
    if crc32(text) != _read_prefix(data)[4]:
        raise describe_damage("the description's CRC-32", "another")
    body = data[start:end].toreadonly()
    description = _parse_description(text)
    try:
        arrays = {str(e["name"]): _read_encoded(e, body) for e in description["arrays"]}
    except (KeyError, TypeError, ValueError) as error:
        raise describe_damage("a whole description", repr(error)) from error
    return Opened(arrays, np.frombuffer(body, np.uint8), _read_prefix(data)[6])


def describe(buffer: bytes | bytearray | memoryview) -> dict[str, Any]:
    """The description of a container, its arrays not looked at.

    Raises:
        InputError: See `unpack`; damage of the body is not noticed.
    """
    data = memoryview(buffer).cast("B")
    start, _ = _find_header_bounds(data)
    if crc32(data[_PREFIX.size : start]) != _read_prefix(data)[4]:
        raise describe_damage("the description's CRC-32", "another")
    return _parse_description(data[_PREFIX.size : start])


def _read_prefix(data: memoryview) -> tuple[Any, ...]:
    return _PREFIX.unpack_from(data)


def _find_header_bounds(data: memoryview) -> tuple[int, int]:
    """Where the body begins and ends: [start, end) of the buffer."""
    if len(data) < _PREFIX.size:
        raise describe_damage(f"at least {_PREFIX.size} bytes", len(data))
    magic, version, _, text_nbytes, _, body_nbytes, _, own = _read_prefix(data)
    if magic != MAGIC:
        raise describe_damage(f"the first bytes {MAGIC!r}", repr(magic))
    # Nothing of the prefix is used before its own CRC was checked.
    if crc32(data[: _PREFIX.size - 4]) != own:
        raise describe_damage("the prefix's CRC-32", "another")
    if version != VERSION:
        raise describe_damage(f"version {VERSION}", version)
    # The lengths add up to the file: no section can lie beyond it.
    start = _PREFIX.size + text_nbytes
    if start % ALIGNMENT or body_nbytes % ALIGNMENT:
        raise describe_damage(
            f"parts of multiples of {ALIGNMENT} bytes", f"{start} and {body_nbytes}"
        )
    if start + body_nbytes != len(data):
        raise describe_damage(f"{start + body_nbytes} bytes", len(data))
    return start, len(data)


def _parse_description(text: memoryview) -> dict[str, Any]:
    try:
        description = json.loads(bytes(text).rstrip(b"\0"))
    except (ValueError, RecursionError) as error:
        raise describe_damage("JSON", error) from error
    if not isinstance(description, dict) or not isinstance(description.get("arrays"), list):
        raise describe_damage("a list of arrays", "none")
    return description


def _read_encoded(entry: dict[str, Any], body: memoryview) -> Encoded:
    for shape, _ in (entry["source"], entry["decoded"]):
        values = math.prod(max(1, int(length)) for length in shape)  # a 0 hides no large length
        if values > _VALUES_MOST * (len(body) + ALIGNMENT):
            raise describe_damage(f"arrays that {len(body)} bytes can hold", f"a shape of {shape}")
    return Encoded(
        codec=str(entry["codec"]),
        source=_make_spec(*entry["source"]),
        decoded=_make_spec(*entry["decoded"]),
        parameters=dict(entry["parameters"]),
        sections={str(name): _read_section(body, *place) for name, *place in entry["sections"]},
    )


def _make_spec(shape: list[int], dtype: str) -> Spec:
    lengths = tuple(int(length) for length in shape)
    kind = np.dtype(dtype)
    if min(lengths, default=0) < 0 or len(lengths) > _DIMENSIONS_MOST or kind.hasobject:
        raise describe_damage("a shape and a plain type", f"{lengths} of {dtype}")
    return Spec(lengths, kind.str)


def _read_section(body: memoryview, dtype: str, shape: list[int], offset: int) -> NDArray[Any]:
    spec = _make_spec(shape, dtype)

    # Aligned and within the body, whatever the description says.
    if offset % ALIGNMENT or not 0 <= offset <= offset + spec.nbytes <= len(body):
        raise describe_damage(f"{spec.nbytes} bytes at {offset} in a body of {len(body)}", "fewer")
    if not spec.nbytes:
        empty = np.zeros(spec.shape, spec.dtype)
        empty.flags.writeable = False
        return empty
    flat = np.frombuffer(body[offset : offset + spec.nbytes], np.uint8)
    return flat.view(spec.dtype).reshape(spec.shape)
