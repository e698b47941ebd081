"""22 damaged Darshan logs: counters decoded here against PyDarshan, which reads in a child.

    python -m benchmarks.vanidl.damaged_logs

Storage, layers and I/O of `vanidl summary --json`, with our counters and with those that PyDarshan
reads of what is whole of the log.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.makers.damaged_logs import compared


def main() -> None:
    """Prints a line a log, and how many are equal."""
    with tempfile.TemporaryDirectory() as folder:
        cases = list(compared(Path(folder)))
    for case in cases:
        layers = (case.mine or {"storage": {"by_layer": {}}})["storage"]["by_layer"]
        moved = ", ".join(
            f"{name} {(found['bytes_read'] or 0) + (found['bytes_written'] or 0):,} B"
            for name, found in layers.items()
        )
        print(f"{'equal' if case.mine == case.theirs else 'OTHER':6}{case.name[:58]:60}{moved}")
    print(f"{sum(case.mine == case.theirs for case in cases)} of {len(cases)} are equal")


if __name__ == "__main__":
    main()
