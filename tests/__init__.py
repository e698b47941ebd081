"""Tests, in the tree of the packages; `makers` writes what they read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
SHARED = ROOT.parent / "shared"  # recorded runs and public logs, where they are at hand
