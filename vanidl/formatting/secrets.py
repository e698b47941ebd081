"""Passwords and tokens in commands, texts and paths, masked: what shows a run is handed on.

The patterns that find them, in `vanidl.formatting.secret_shapes`, take 10 ms to compile: they are
imported for the first text that may hold one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vanidl.formatting.secret_hints import (
    may_hold_secret,
    may_hold_secret_in_paths,
    takes_short_secret,
)


def is_secret_name(name: str) -> bool:
    """Whether what is called so (a variable, a setting) is a secret."""
    if not may_hold_secret(name):
        return False
    from vanidl.formatting import secret_shapes

    return secret_shapes.is_secret_name(name)


def masked(words: Iterable[str]) -> Iterator[str]:
    """The words of a command, with MASK for what looks like a secret.

    A word with blanks may be a command of its own, as after `sh -c`.
    """
    words = tuple(words)
    together = "\0".join(words)
    if not may_hold_secret(together) and not takes_short_secret(together):
        return iter(words)
    from vanidl.formatting import secret_shapes

    return secret_shapes.masked(words)


def masked_text(text: str) -> str:
    """The text with MASK for what looks like a secret: a label, a message, words joined by blanks.

    The value of an option ends at the next blank, as nothing says where the word ended.
    """
    if not may_hold_secret(text) and not takes_short_secret(text):
        return text
    from vanidl.formatting import secret_shapes

    return secret_shapes.masked_text(text)


def masked_path(path: str) -> str:
    """The path with MASK for what looks like a secret in one of its parts, or in its URL."""
    if not may_hold_secret_in_paths(path):
        return path
    from vanidl.formatting import secret_shapes

    return secret_shapes.masked_path(path)
