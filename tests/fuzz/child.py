"""`python -m tests.fuzz.child PATH FREE_BYTES`: the summary of a log within limits, on stdout."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.fuzz import verdicts
from vanidl.readers.darshan import inflate
from vanidl.readers.encoding import text_stream

MEMORY_BYTES = 3 << 30

if __name__ == "__main__":
    for module in (inflate, text_stream):
        module.FREE_BYTES = int(sys.argv[2])
    verdicts.MEMORY_BYTES = MEMORY_BYTES
    verdicts.answer(Path(sys.argv[1]), os.dup(1))
