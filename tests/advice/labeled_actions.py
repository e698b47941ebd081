"""Runs with the diagnoses that they must show first, and those that they must not show."""

from __future__ import annotations

import json
from pathlib import Path

from tests.advice.labeled import RECIPES

_FILE = json.loads((Path(__file__).parent / "action_labels.json").read_text(encoding="utf-8"))
LABELS: dict[str, dict[str, object]] = _FILE["runs"]
CODES: dict[str, str] = _FILE["diagnoses"]
RECORDED = tuple(name for name in LABELS if name not in RECIPES)
