"""PyTorch's own tests of its DataLoader, under the recorder and without it: outcomes are the same.

    python -m benchmarks.vanidl.torch_tests FILE [WORD...]

FILE is `test/test_dataloader.py` of PyTorch's repository, of the release that is installed; it
needs pytest, expecttest and psutil. WORDs are handed to pytest (`-k`, `-x`). It runs twice, once
as it is and once under `vanidl record --tracer none`. Tests that end differently are run alone
REPEATS times on each side: one that has both ends on one side is flaky there and says nothing.
The exit status is 1 where one differs each time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

REPEATS = 3
OUTCOMES = ("failure", "error", "skipped")
SIDES = ((), (sys.executable, "-m", "vanidl", "record", "--tracer", "none", "-o", "RUN", "--"))
NAMES = ("alone", "recorded")


def outcomes(file: Path, recorder: Sequence[str], words: Sequence[str]) -> dict[str, str]:
    """How each test ended: passed, failure, error or skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        prefix = [str(Path(folder) / "RUN") if word == "RUN" else word for word in recorder]
        command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                   f"--junitxml={report}", *words]  # fmt: skip
        done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
        if not report.exists():
            raise SystemExit(f"{' '.join(command)}: no report, exit status {done.returncode}\n"
                             f"{done.stdout[-2000:]}{done.stderr[-2000:]}")  # fmt: skip
        if prefix and not any(Path(folder, "RUN", "steps").glob("*.steps")):
            raise SystemExit("nothing was recorded: the comparison would say nothing")
        cases = ET.parse(report).getroot().iter("testcase")
        return {_name(case): _outcome(case) for case in cases}


def _name(case: ET.Element) -> str:
    return f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"


def _outcome(case: ET.Element) -> str:
    return next((kind for kind in OUTCOMES if case.find(kind) is not None), "passed")


def repeated(file: Path, name: str) -> list[Counter[str]]:
    """How a test that runs alone ends, on each side."""
    found = []
    for recorder in SIDES:
        ends = [outcomes(file, recorder, [f"{file}::{name}"]) for _ in range(REPEATS)]
        found.append(Counter(end.get(name, "not run") for end in ends))
    return found


def main(words: list[str]) -> int:
    """Prints how many tests ended how on each side, and those that differ."""
    if not words:
        print(__doc__)
        return 2
    file = Path(words[0]).absolute()
    sides = [outcomes(file, recorder, [str(file), *words[1:]]) for recorder in SIDES]
    for title, ends in zip(NAMES, sides, strict=True):
        counted = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(ends.values()).items()))
        print(f"{title:9} {len(ends)} tests: {counted}", flush=True)
    names = sorted({*sides[0], *sides[1]})
    different = [name for name in names if sides[0].get(name) != sides[1].get(name)]
    failed = 0
    for name in different:
        ends = repeated(file, name)
        both = [", ".join(f"{n} {kind}" for kind, n in end.items()) for end in ends]
        verdict = "DIFFERS" if not set(ends[0]) & set(ends[1]) else "flaky or alike when repeated"
        failed |= verdict == "DIFFERS"
        print(f"  {name}: alone {both[0]}; recorded {both[1]}: {verdict}", flush=True)
    print(f"{len(different)} of {len(names)} ended differently the first time; "
          f"{'some' if failed else 'none'} each time")  # fmt: skip
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
