"""Draws docs/architecture.svg from the import contracts in pyproject.toml.

    python docs/draw_architecture.py

A test draws it again, so the picture cannot differ from what import-linter holds.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
CONTRACTS = DOCS.parent / "pyproject.toml"
PICTURE = DOCS / "architecture.svg"

PANELS = {"vanidl": "vanidl: analyses runs", "vanidl_loaders": "vanidl_loaders: loads data"}
_ROW, _GAP, _BOX = 34, 10, 26  # pixels: from layer to layer, between boxes, height of one
_CHARACTER, _MARGIN, _TOP = 7.4, 16, 56
_STYLE = (
    "text{font:13px ui-monospace,monospace;fill:#1c2733}"
    ".title{font:bold 14px system-ui,sans-serif}.note{font:12px system-ui,sans-serif;fill:#5b6b7a}"
    "rect.page{fill:#ffffff}rect.panel{fill:#f3f6f9;stroke:#c9d3dc}"
    "rect.room{fill:#ffffff;stroke:#7d93a8}"
)


def read_layers(contracts: str) -> dict[str, list[list[str]]]:
    """The layers of each package by its name, top first: the rooms of each layer."""
    layers = {}
    for package, listed in re.findall(
        r'type = "layers"\ncontainers = \["(\w+)"\].*?\nlayers = \[\n(.*?)\n\]', contracts, re.S
    ):
        lines = re.findall(r'"([^"]+)"', listed)
        layers[package] = [re.split(r"\s*[:|]\s*", line) for line in lines]
    return layers


def draw(layers: dict[str, list[list[str]]]) -> str:
    """The picture: a panel for each package, a row for each layer, a box for each room."""
    widths = {package: max(map(_measure_row, rows)) for package, rows in layers.items()}
    height = _TOP + _ROW * max(map(len, layers.values())) + 3 * _MARGIN
    parts, left = list[str](), float(_MARGIN)
    for package, rows in layers.items():
        width = widths[package] + 2 * _MARGIN
        parts.append(
            f'<rect class="panel" x="{left:g}" y="{_MARGIN}" width="{width:g}" '
            f'height="{height - 2 * _MARGIN:g}" rx="8"/>'
            f'<text class="title" x="{left + _MARGIN:g}" y="{_MARGIN + 24}">'
            f"{escape(PANELS[package])}</text>"
        )
        for number, rooms in enumerate(rows):
            x, y = left + (width - _measure_row(rooms)) / 2, _TOP + number * _ROW
            for room in rooms:
                box = _measure(room)
                parts.append(
                    f'<rect class="room" x="{x:g}" y="{y:g}" width="{box:g}" height="{_BOX}" '
                    f'rx="5"/><text x="{x + box / 2:g}" y="{y + 17:g}" text-anchor="middle">'
                    f"{escape(room)}</text>"
                )
                x += box + _GAP
        left += width + _MARGIN
    note = "Rooms import downwards only. Neither package imports the other."
    parts.append(f'<text class="note" x="{_MARGIN}" y="{height + 6:g}">{note}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left:g} {height + _MARGIN:g}" '
        f'role="img" aria-label="Rooms of both packages, by layer">\n<style>{_STYLE}</style>\n'
        f'<rect class="page" width="{left:g}" height="{height + _MARGIN:g}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _measure(room: str) -> float:
    return round(_CHARACTER * len(room) + 16, 1)


def _measure_row(rooms: list[str]) -> float:
    return round(sum(map(_measure, rooms)) + _GAP * (len(rooms) - 1), 1)


if __name__ == "__main__":
    PICTURE.write_text(draw(read_layers(CONTRACTS.read_text(encoding="utf-8"))), encoding="utf-8")
