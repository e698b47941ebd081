"""What tells at a glance that a text holds no secret, as most do."""

from __future__ import annotations

import re

MASK = "***"

MASKED_WORD = re.compile(r"\$VANIDL_SECRET_\d+")
"""What stands for a masked word in a command that is to be run again: it hides already."""

_NAME_HINTS = ("token", "pass", "pwd", "auth", "sig", "secret", "credential", "key", "cookie",
               "bearer", "@", "://", "hooks.slack")  # fmt: skip
_SHAPE_HINTS = (
    "sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
    "gldt-", "glrt-", "glptt-", "xox", "xapp-", "AKIA", "ASIA", "AROA", "AIDA", "hf_", "AIza",
    "npm_", "pypi-", "dop_v1_", "dckr_pat_", "hvs.", "ya29.", "r8_", "SG.", "eyJ", "AGE-SECRET",
    "wandb_v1_", "nvapi-",
)  # fmt: skip
_ALSO_ASCII = "ſıİ\u212a"  # a pattern that ignores case takes them for s, i and k
_HINTS_IN_PATHS = ("=", "@", ":", "%3", "hooks.slack")


def may_hold_secret(text: str) -> bool:
    """Whether there is anything to look at in a text: megabytes of names mostly have nothing."""
    if any(hint in text for hint in _SHAPE_HINTS):
        return True
    if not text.isascii() and any(letter in text for letter in _ALSO_ASCII):
        return True
    small = text.lower()
    return any(hint in small for hint in _NAME_HINTS)


def may_hold_secret_in_paths(text: str) -> bool:
    """The same of a path, or of many: there a name alone, as of `tokenizer.json`, has no value."""
    return any(hint in text for hint in (*_HINTS_IN_PATHS, *_SHAPE_HINTS))
