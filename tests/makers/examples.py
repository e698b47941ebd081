"""How many examples hypothesis draws of a law."""

from __future__ import annotations

from hypothesis import settings

OFTEN = settings(max_examples=max(200, settings.default.max_examples))
"""For laws whose example costs under 1 ms, such as those of intervals and clocks."""
