"""What an installation takes, and whether it answers: python benchmarks/vanidl/fresh_install.py.

A wheel of this folder is installed from wheels alone (no compiler is needed) into an empty
environment of each interpreter that is named; `vanidl --version` and `vanidl summary` run in it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tests/data/torch_fetches"
TURNS = 5
MOST_MB, MOST_DISTRIBUTIONS = 200, 16


def wall_s(command: list[str]) -> float:
    """Median of the wall times of a command, after one that warms caches."""
    took = []
    for _ in range(TURNS + 1):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        took.append(time.perf_counter() - begin)
    return statistics.median(took[1:])


def installed(python: str, wheel: Path, folder: Path) -> str:
    """A line: size, distributions, and how long the commands take."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    own = str(folder / "bin/python")
    pip = [own, "-m", "pip", "--disable-pip-version-check"]
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    subprocess.run(
        [*pip, "install", "-q", "--only-binary", ":all:", str(wheel)],
        check=True, env=kept | {"CC": "/nonexistent"}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    listed = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True)
    names = {each["name"] for each in json.loads(listed.stdout)} - {"pip", "setuptools"}
    (site,) = folder.glob("lib/python*/site-packages")
    of_pip = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    nbytes = sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file() and not path.relative_to(site).parts[0].startswith(of_pip)
    )
    command = str(folder / "bin/vanidl")
    version = subprocess.run([own, "--version"], check=True, capture_output=True, text=True)
    held = nbytes / 1e6 <= MOST_MB and len(names) <= MOST_DISTRIBUTIONS
    return (
        f"{version.stdout.strip():16} {nbytes / 1e6:6.1f} MB  {len(names):3} distributions  "
        f"--version {wall_s([command, '--version']):5.2f} s  "
        f"summary {wall_s([command, 'summary', str(RUN)]):5.2f} s  "
        f"{'within' if held else 'OUTSIDE'}"
    )


def main() -> int:
    """A line an interpreter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="*", default=[sys.executable])
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", scratch, str(ROOT)]
        subprocess.run(pip, check=True)
        (wheel,) = folder.glob("*.whl")
        for number, python in enumerate(parser.parse_args().python):
            line = installed(python, wheel, folder / f"env{number}")
            wrong += "OUTSIDE" in line
            print(line, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
