"""`python -m tests.fuzz.child`: logs summed up and files read within limits, each in a fork.

A line of JSON in, the path of a log and how much it may inflate freely, or the path of a file and
the name of its reader; a line of JSON out, the outcome or (peak, held) bytes. This process has no
threads, so that it may fork, and has imported everything.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz import costs, verdicts
from tests.fuzz.readers import READERS
from vanidl.encoding import budget

MEMORY_BYTES = 3 << 30


def answer(path: Path, asked: int | str) -> Any:
    """What is answered to one line."""
    if isinstance(asked, str):
        try:
            return costs.memory(READERS[asked].read, path)
        except RuntimeError as error:
            return str(error)
    budget.FREE_TEXT_BYTES = asked
    return asdict(verdicts.outcome(path))


if __name__ == "__main__":
    verdicts.MEMORY_BYTES = MEMORY_BYTES
    verdicts.warm()
    for line in sys.stdin:
        path, asked = json.loads(line)
        sys.stdout.write(json.dumps(answer(Path(path), asked)) + "\n")
        sys.stdout.flush()
