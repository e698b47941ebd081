"""What watching costs: processor time of a look at a run of many ranks, each second.

Journals grow as the recorder writes them, by what each rank and each of its workers records in a
second; each second is one look, with the screen and the metrics that come of it. Beside it stands
what the journals of a whole day cost to catch up with. The limit is 2 % of a core.

    python benchmarks/vanidl/watch_cost.py [RANKS] [STEPS_A_SECOND] [SECONDS]
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from tests.makers.step_journals import START, journal_bytes
from vanidl.record.injected.vanidl_steps.journal import FETCH, OPTIMIZER, WAIT
from vanidl.watch import view
from vanidl.watch.openmetrics import openmetrics
from vanidl.watch.watched import WatchedRun

LIMIT = 0.02
WORKERS = 2
SECOND_NS = 1_000_000_000


def rows(second: int, rate: int, worker: bool) -> bytes:
    """What one process records in one second."""
    step = SECOND_NS // rate
    out = []
    for k in range(rate):
        begin = START + second * SECOND_NS + k * step
        if worker:
            out.append((FETCH, k, begin, begin + step // 3))
        else:
            out += [(WAIT, 0, begin, begin + step // 4), (OPTIMIZER, 0, begin + step - 1000, 0)]
    return b"".join(struct.pack("<4q", c, n, b, e or b) for c, n, b, e in out)


def journals(folder: Path, ranks: int) -> dict[Path, bool]:
    """New journals, and whether each is a worker's."""
    found = {}
    for number in range(ranks * (1 + WORKERS)):
        path = folder / "steps" / f"node-{number}.steps"
        path.parent.mkdir(parents=True, exist_ok=True)
        described = {"pid": 1000 + number, "host": "node", "rank": number % ranks}
        path.write_bytes(journal_bytes(described, ""))
        found[path] = number >= ranks
    return found


def grow(paths: dict[Path, bool], second: int, rate: int) -> None:
    """Adds what all processes record in one second."""
    for path, worker in paths.items():
        with path.open("ab") as file:
            file.write(rows(second, rate // WORKERS if worker else rate, worker))


def shares(watched: WatchedRun, paths: dict[Path, bool], rate: int, seconds: int) -> list[float]:
    """Processor seconds of each look."""
    found = []
    for second in range(seconds):
        grow(paths, second, rate)
        begin = time.process_time()
        state = watched.look(START + (second + 1) * SECOND_NS)
        view.screen(state)
        openmetrics(state)
        found.append(time.process_time() - begin)
    return found


def main() -> int:
    """Prints the cost; exit status 1 where it is over the limit."""
    ranks, rate, seconds = (
        int(word) for word in (*sys.argv[1:], *("8", "100", "60")[len(sys.argv) - 1 :])
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = journals(Path(folder), ranks)
        watched = WatchedRun(Path(folder))
        found = sorted(shares(watched, paths, rate, seconds))
        mean = sum(found) / len(found)
        print(
            f"{ranks} ranks with {WORKERS} workers each, {rate} steps/s: {mean * 1e3:.1f} ms of a "
            f"core per second ({mean:.2%}), at most {found[-1] * 1e3:.1f} ms; limit {LIMIT:.0%}"
        )
        for path, worker in paths.items():
            minute = b"".join(rows(second, rate, worker) for second in range(60))
            part = np.frombuffer(minute, "<i8").reshape(-1, 4).copy()
            with path.open("ab") as file:
                for k in range(60):
                    part[:, 2:] = np.frombuffer(minute, "<i8").reshape(-1, 4)[:, 2:]
                    part[:, 2:] += (seconds + 60 * k) * SECOND_NS
                    file.write(part.tobytes())
        nbytes = sum(path.stat().st_size for path in paths)
        late = WatchedRun(Path(folder))
        tracemalloc.start()
        begin, looks = time.process_time(), 1
        while late.look(START).is_behind:
            looks += 1
        taken, peak = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
        print(
            f"{nbytes / 2**20:.0f} MiB of journals are caught up with in {taken:.1f} s of "
            f"processor time, {looks} looks, {peak / 2**20:.0f} MiB of memory at most"
        )
    return int(mean > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
