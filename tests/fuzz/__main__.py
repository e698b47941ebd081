"""`python -m tests.fuzz` prints the table of verdicts; options say how many, which, and of what.

Damages logs in every way of `mutants`, reads each in a child of its own, and compares the
summary with that of the whole log. Exit status 1 where one was silently wrong, or broke anything.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests import DATA
from tests.fuzz.mutants import KINDS, changed, seeds, unprotected
from tests.fuzz.verdicts import APART, FAULTS, VERDICTS, Outcome, outcome, verdict, warm
from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log

WORK = Workload(1200, ranks=3, files=3, folder="/p/data")
WRITTEN = {
    "v3.00": Log("3.00"),
    "v3.10 big-endian": Log("3.10", ">"),
    "v3.21 bz2": Log("3.21", compression="bz2"),
    "v3.41": Log(),
    "v3.41 partial": Log(partial=("POSIX", "DXT_POSIX")),
    "v3.41 threads": Log(dxt_version={"DXT_POSIX": 2}),
}


def main() -> int:
    """Prints the table; 1 where there is a fault in it."""
    options = _options()
    warm()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        logs = _logs(Path(folder), [Path(p) for p in options.logs])
        table: dict[str, Counter[str]] = {kind: Counter() for kind in options.kinds}
        notes: list[str] = []
        each = -(-options.mutants // (len(table) * len(logs)))
        for name, content in logs.items():
            _fuzz(name, content, (Path(folder), options.seed, each), table, notes)
    _show(table, notes)
    return int(any(counts[fault] for counts in table.values() for fault in FAULTS))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutants", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--logs", nargs="*", default=[], help="more logs to damage")
    return parser.parse_args()


def _logs(folder: Path, more: list[Path]) -> dict[str, bytes]:
    logs = {}
    for name, log in WRITTEN.items():
        write_log(folder / "log.darshan", WORK, log)
        logs[name] = (folder / "log.darshan").read_bytes()
    recorded = sorted(DATA.glob("torch_pfs_workers*/darshan/*.darshan"))
    return logs | {path.name: path.read_bytes() for path in [*recorded[:3], *more]}


def _fuzz(
    name: str,
    content: bytes,
    settings: tuple[Path, int, int],
    table: dict[str, Counter[str]],
    notes: list[str],
) -> None:
    """Adds the verdicts of all mutants of one log to the table."""
    folder, seed, each = settings
    path = folder / "mutant.darshan"
    path.write_bytes(content)
    whole = outcome(path)
    if whole.answer is None or not _is_known(whole.answer):
        raise SystemExit(f"{name}: the whole log cannot be read: {whole}")
    for kind in table:
        numbers = range(seed * 1_000_000, seed * 1_000_000 + each)
        for number, mutant in zip(numbers, seeds(content, kind, numbers), strict=True):
            path.write_bytes(mutant)
            found = outcome(path)
            word = verdict(whole.answer, found, content, mutant)
            table[kind][word] += 1
            if word in (APART, *FAULTS):
                notes.append(_note(word, (name, kind, number), found, (content, mutant)))
        sys.stderr.write(f"{name}: {kind}\n")


def _is_known(answer: dict[str, Any]) -> bool:
    """Whether nothing is missing and the counters are there: else damage to them shows nowhere."""
    codes = {w["code"] for w in answer["coverage"]["warnings"]}
    counted = answer["coverage"]["layers"]["POSIX"]["counted_ops"]
    return counted is not None and not codes & {"damaged", "unreadable"}


def _note(
    word: str, which: tuple[str, str, int], found: Outcome, contents: tuple[bytes, bytes]
) -> str:
    places = changed(*contents)
    words = [what for what, bytes_ in unprotected(contents[0]).items() if places & bytes_]
    where = ", ".join(words) or f"from byte {min(places, default=0)}"
    name, kind, number = which
    return f"{word}: {name}, {kind}, seed {number}, {where}. {found.message}".rstrip()


def _show(table: dict[str, Counter[str]], notes: list[str]) -> None:
    print("| kind | " + " | ".join(VERDICTS) + " |\n|" + "---|" * (len(VERDICTS) + 1))
    total: Counter[str] = sum(table.values(), Counter())
    for kind, counts in [*table.items(), (f"total of {total.total()}", total)]:
        print(f"| {kind} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")
    print("\n".join(["", *sorted(notes)]))


if __name__ == "__main__":
    sys.exit(main())
