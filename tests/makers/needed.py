"""Packages that a file of tests needs, looked for and not imported: workers collect every file."""

from __future__ import annotations

import importlib.util

import pytest


def needed(package: str, *, reason: str) -> None:
    """Skips the file of tests that calls this where a package is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(reason, allow_module_level=True)
