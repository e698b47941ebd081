"""How much timed_fetches.py loads: known to it and to its tests, which may have no PyTorch."""

from __future__ import annotations

EPOCHS = 2
ROWS, HELD_OUT, BATCH = 24, 8, 4
SAMPLE_BYTES, SAMPLES_STORED = 1 << 22, 4
