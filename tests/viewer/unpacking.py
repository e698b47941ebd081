"""A reader of what the viewer's data is packed into, written from its description."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np

CONTINUED = 8


def columns(packed: dict) -> dict[str, list[int]]:
    raw = zlib.decompress(base64.b64decode(packed["data"]))
    found, at = {}, 0
    for name, count, width, signed, deltas in packed["columns"]:
        values = []
        for i in range(count):
            code = sum(raw[at + plane * count + i] << (8 * plane) for plane in range(width))
            if signed:
                code = -(code + 1) // 2 if code % 2 else code // 2
            values.append(code)
        found[name] = np.cumsum(np.array(values, object)).tolist() if deltas else values
        at += width * count
    assert at == len(raw)
    return found


def texts(packed: str) -> list[str]:
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def slices(packed: dict) -> list[dict]:
    """Every slice with its lane, row, pieces (start, end, fate) and attributes."""
    pieces, entries = columns(packed["pieces"]), columns(packed["entries"])
    names = texts(packed["names"])
    found, piece, entry = [], 0, 0
    for lane, row, piece_count, entry_count in packed["tracks"]:
        last = piece + piece_count
        for i in range(piece, last):
            start, code = pieces["start"][i], pieces["code"][i]
            cut = (start, start + pieces["length"][i], code % CONTINUED)
            if code >= CONTINUED:
                found[-1]["pieces"].append(cut)
                continue
            mine = {name: values[entry] for name, values in entries.items()}
            mine["name"] = names[mine["name"]] if mine["name"] >= 0 else None
            found.append({"lane": lane, "row": row, "pieces": [cut], **mine})
            entry += 1
        piece = last
        assert sum(f["lane"] == lane and f["row"] == row for f in found) == entry_count
    return found
