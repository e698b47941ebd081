"""A writer of TensorBoard event files, from the formats' descriptions; shares no code."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple


class Event(NamedTuple):
    wall_s: float
    step: int
    tags: tuple[str, ...] = ("loss",)
    padding: int = 0  # bytes of an unknown field, as pictures have


def crc32c(data: bytes) -> int:
    """Bit by bit, from the polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def record(body: bytes) -> bytes:
    length = struct.pack("<Q", len(body))
    return length + masked(length) + body + masked(body)


def event(e: Event) -> bytes:
    return record(event_body(e))


def event_body(e: Event) -> bytes:
    values = b"".join(
        message(1, message(1, tag.encode()) + b"\x15" + struct.pack("<f", 0.5)) for tag in e.tags
    )
    body = b"\x09" + struct.pack("<d", e.wall_s) + b"\x10" + varint(e.step)
    return body + (message(5, values) if e.tags else b"") + message(99, bytes(e.padding))


def event_file(events: Sequence[Event]) -> bytes:
    version = record(b"\x09" + struct.pack("<d", events[0].wall_s) + message(3, b"brain.Event:2"))
    return version + b"".join(event(e) for e in events)


def step_table(rows: Sequence[tuple[int, float]]) -> bytes:
    """An InputPipelineAnalysisResult of (step number, duration in ms)."""
    details = [
        b"\x08" + varint(step) + b"\x11" + struct.pack("<d", ms) + b"\x41" + struct.pack("<d", 1.0)
        for step, ms in rows
    ]
    wrapped = [message(4, message(1, b"type.googleapis.com/x") + message(2, d)) for d in details]
    return message(9, b"CPU_ONLY") + b"".join(wrapped)
