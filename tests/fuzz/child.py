"""`python -m tests.fuzz.child`: summaries of logs within limits, each in a fork of this process.

A line of JSON in, the path of a log and how much it may inflate freely; a line of JSON out, the
outcome. This process has no threads, so that it may fork, and has imported everything.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.fuzz import verdicts
from vanidl.readers import budget

MEMORY_BYTES = 3 << 30

if __name__ == "__main__":
    verdicts.MEMORY_BYTES = MEMORY_BYTES
    verdicts.warm()
    for line in sys.stdin:
        path, free_bytes = json.loads(line)
        budget.FREE_TEXT_BYTES = free_bytes
        sys.stdout.write(json.dumps(asdict(verdicts.outcome(Path(path)))) + "\n")
        sys.stdout.flush()
