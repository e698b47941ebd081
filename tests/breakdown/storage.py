"""Time in storage by counters, of logs at hand, against plain loops over PyDarshan's records.

    python -m tests.breakdown.storage [LOG or FOLDER ...]

Without arguments the logs in tests/data and those beside the repository. A line each log that is
off, or whose interval is wider than a twentieth of it though the log is whole and its calls come
one at a time; and how many were read. Logs with the same bytes count once.
"""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import darshan

from tests import DATA, SHARED
from vanidl.breakdown.assumptions import BLOCKING
from vanidl.breakdown.causes import STORAGE
from vanidl.breakdown.whole_runs import find_serial_processes
from vanidl.errors import VanidlError
from vanidl.model.warnings import LOWER_BOUNDS, UNSEEN, serious_codes
from vanidl.run import Run, open_run

PREFIXES = {
    "POSIX": "POSIX", "STDIO": "STDIO", "DFS": "DFS", "DAOS": "DAOS", "MPI-IO": "MPIIO",
    "H5D": "H5D", "H5F": "H5F", "PNETCDF_VAR": "PNETCDF_VAR", "PNETCDF_FILE": "PNETCDF_FILE",
}  # fmt: skip
LEVELS = {
    "POSIX": 1, "STDIO": 1, "DFS": 1, "DAOS": 1, "MPI-IO": 2, "H5D": 3, "H5F": 3,
    "PNETCDF_VAR": 3, "PNETCDF_FILE": 3,
}  # fmt: skip
OF_VARIABLES = ("H5D", "PNETCDF_VAR")
ROUNDED = 1e-6
WIDE = 0.05


@dataclass(frozen=True)
class Counted:
    """Seconds by a log, over all ranks."""

    outermost_s: float
    longest_s: float  # of each file and process: of the outermost layer and those beneath
    beneath_s: float
    ranks: int


def count_by_loops(path: Path) -> Counted | None:
    """The time in the outermost layer of each file that timed data operations on it."""
    spent: dict[tuple[str, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    timed: dict[str, set[tuple[int, int]]] = defaultdict(set)
    with darshan.DarshanReport(str(path), read_all=False) as report:
        modules = [name for name in PREFIXES if name in report.modules]
        for module in modules:
            report.mod_read_all_records(module, dtype="dict")
        names, ranks = report.name_records, report.metadata["job"]["nprocs"]
        # An object of DAOS that is a file of DFS lies beneath it.
        of_dfs = {record["id"] for record in report.records["DFS"]} if "DFS" in modules else set()
        for module in modules:
            for record in report.records[module]:
                seconds, prefix, rank = record["fcounters"], PREFIXES[module], record["rank"]
                read, write, meta = (
                    max(seconds.get(f"{prefix}_F_{what}_TIME", 0.0), 0.0)
                    for what in ("READ", "WRITE", "META")
                )
                level = 0 if module == "DAOS" and record["id"] in of_dfs else LEVELS[module]
                name = names.get(record["id"], str(record["id"]))
                above, _, variable = name.rpartition(":")
                file = above if module in OF_VARIABLES and variable else name
                spent[file, rank][level] += read + write + meta
                if read or write:
                    timed[file].add((level, rank))
    if not modules:
        return None
    outer = longest = beneath = 0.0
    for (file, rank), levels in spent.items():
        # A record that all ranks share is above those of each, and the other way round.
        above = max(
            (level for level, of in timed[file] if -1 in (of, rank) or of == rank), default=1
        )
        own = levels.get(above, 0.0)
        under = [s for level, s in levels.items() if level < above]
        outer += own
        longest += max([own, *under]) if own else 0.0
        beneath += sum(under)
    return Counted(outer, longest, beneath, ranks)


def is_within(counted: Counted, run: Run) -> bool:
    """Whether the account holds what the loops add up, of the mean rank.

    Where a layer beneath took longer than the outermost one of the same process, it was called
    apart for the difference at least: that time may count, too.
    """
    low_s, high_s = run.breakdown.cell(f"mean/run/{STORAGE}").range_s
    least_s, most_s = counted.outermost_s / counted.ranks, counted.longest_s / counted.ranks
    window_s = run.breakdown.window_ns / 1e9
    slack_s = ROUNDED * most_s + 2e-9
    return low_s <= most_s + slack_s and min(least_s, window_s) <= high_s + slack_s


def is_narrowable(run: Run) -> bool:
    """Whether the log is whole and its calls come one at a time."""
    cell = run.breakdown.cell(f"mean/run/{STORAGE}")
    lost = (LOWER_BOUNDS | UNSEEN) & serious_codes(run.results.coverage.warnings)
    whole = not lost and all(log.whole and not log.partial_layers for log in run.trace.logs)
    serial = find_serial_processes(run.trace, run.results)
    return whole and (BLOCKING in cell.assumed or bool(serial[list(run.trace.ranks)].all()))


def is_wide(run: Run) -> bool:
    """Whether its interval is wider than a twentieth of it."""
    cell = run.breakdown.cell(f"mean/run/{STORAGE}")
    return cell.high_ns - cell.low_ns > WIDE * cell.low_ns + 2


def logs_at_hand(arguments: Iterable[str]) -> Iterator[Path]:
    """The logs of a command line; those with the same bytes once."""
    given = [Path(argument) for argument in arguments] or [DATA, SHARED / "data" / "public"]
    paths = [p for g in given for p in (sorted(g.rglob("*.darshan")) if g.is_dir() else [g])]
    seen = set()
    for path in paths:
        digest = hashlib.sha256(path.read_bytes()).digest()
        if digest not in seen:
            seen.add(digest)
            yield path


def main() -> int:
    """Compares every log."""
    found: dict[str, int] = defaultdict(int)
    for path in logs_at_hand(sys.argv[1:]):
        try:
            counted, run = count_by_loops(path), open_run(path)
        except (RuntimeError, VanidlError) as error:  # PyDarshan's, ours
            found["not read"] += 1
            print(f"not read: {path.name}: {error}")  # noqa: T201
            continue
        if counted is None:
            found["without counters of time"] += 1
            continue
        found["compared"] += 1
        low_s, high_s = run.breakdown.cell(f"mean/run/{STORAGE}").range_s
        narrow = is_narrowable(run)
        found["of these whole, one call at a time"] += narrow
        off, wide = not is_within(counted, run), narrow and is_wide(run)
        for what, holds in (("off", off), ("wide", wide)):
            found[what] += holds
            if holds:
                print(f"{what}: {path.name}: [{low_s:.6f}, {high_s:.6f}] s a rank, loops "  # noqa: T201
                      f"{counted.outermost_s / counted.ranks:.6f}")  # fmt: skip
    print(", ".join(f"{count} {what}" for what, count in found.items()))  # noqa: T201
    return int(bool(found["off"] or found["wide"]))


if __name__ == "__main__":
    sys.exit(main())
