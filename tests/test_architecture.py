"""The page on architecture: drawn from the contracts, a paragraph a room, files that are there."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from tests import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
CONTRACTS = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def _load_drawing() -> ModuleType:
    path = ROOT / "docs/draw_architecture.py"
    spec = importlib.util.spec_from_file_location("draw_architecture", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drawing = _load_drawing()
LAYERS = drawing.read_layers(CONTRACTS)


def test_the_picture_is_that_of_the_contracts() -> None:
    assert drawing.PICTURE.read_text(encoding="utf-8") == drawing.draw(LAYERS), (
        "the rooms have changed: python docs/draw_architecture.py"
    )


def test_a_new_room_would_be_drawn() -> None:
    contracts = CONTRACTS.replace('"report : paper"', '"report : paper : postcards"', 1)
    assert ">postcards<" in drawing.draw(drawing.read_layers(contracts))


@pytest.mark.parametrize("package", LAYERS)
def test_each_room_has_a_paragraph(package: str) -> None:
    part = PAGE.split(f"## Rooms of {package}\n")[1].split("\n## ")[0]
    described = re.findall(r"^\*\*(\w+)\*\*: ", part, re.MULTILINE)
    assert sorted(described) == sorted(room for rooms in LAYERS[package] for room in rooms)


def test_the_files_and_lists_that_it_names_are_there() -> None:
    paths = set(re.findall(r"`((?:vanidl|loaders)/[\w./]+)`", PAGE))
    assert len(paths) > 30
    missing = [path for path in paths if "X" not in path and not (ROOT / path).exists()]
    assert missing == []
    lists = re.findall(r"`([A-Z_]{4,})` in `([\w./]+)`", PAGE)
    assert len(lists) >= 10
    for name, path in lists:
        assert re.search(rf"^{name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE), name
