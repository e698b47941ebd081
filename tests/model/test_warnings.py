"""The sets of warning codes name codes that exist, and hold each other as they say."""

from __future__ import annotations

from pathlib import Path

import vanidl
from vanidl.model import warnings
from vanidl.model.warnings import Notice, serious_codes

SETS = {name: value for name, value in vars(warnings).items() if isinstance(value, frozenset)}


def test_every_code_is_one_that_is_given():
    root = Path(vanidl.__file__).parent
    texts = [p.read_text() for p in root.rglob("*.py") if p != root / "model/warnings.py"]
    named = frozenset[str]().union(*SETS.values())
    assert len(SETS) > 8
    assert [code for code in sorted(named) if not any(f'"{code}"' in text for text in texts)] == []


def test_what_is_not_whole_is_a_lower_bound_and_not_compared():
    assert warnings.INCOMPLETE < warnings.LOWER_BOUNDS
    assert warnings.INCOMPLETE < warnings.NOT_COMPARABLE


def test_remarks_are_not_serious():
    notices = (Notice("damaged", "a"), Notice("not_traced", "b", "info"), Notice("damaged", "c"))
    assert serious_codes(notices) == {"damaged"}
