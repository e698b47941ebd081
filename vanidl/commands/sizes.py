"""Amounts of data as options of the command line name them."""

from __future__ import annotations

import re

from vanidl.errors import UsageError

_SIZE = re.compile(r"(\d{1,15})\s*([KMGT](?:i?B)?|B)?", re.IGNORECASE)
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(text: str, option: str) -> int:
    """Bytes of `512MiB` or `2G`.

    Raises:
        UsageError: it is written otherwise.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} {text}: expected a size such as 512MiB or 2GiB.")
    return int(found[1]) * _UNITS[(found[2] or "")[:1].upper()]
