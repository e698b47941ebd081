"""Makes the A/B report of the baseline loader against decoded samples.

    python reports/decoded.py [--workload cosmoflow] [--size 64] [--samples 64] [--repeat 3]

The samples are synthetic (`loaders make`), the model and the order are the same on both sides.
Everything but the page goes into a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from loaders.decoders.folders import ENCODED, encode_folder  # noqa: E402
from loaders.workloads.making import make  # noqa: E402
from vanidl.cli import main as vanidl  # noqa: E402

LOADERS = ("baseline", "decoded")


def main() -> int:
    """Writes the page; exit status of `vanidl ab`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("--workload", default="cosmoflow", choices=("cosmoflow", "deepcam"))
    add("--size", type=int, default=64)
    add("--samples", type=int, default=64)
    add("--repeat", type=int, default=3)
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    page = ROOT / "reports" / f"decoded_{options.workload}.html"
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        make(options.workload, data, samples=options.samples, size=options.size)
        encode_folder(data, data / ENCODED)
        sides = [training(data, loader) for loader in LOADERS]
        line = ["ab", "--a", sides[0], "--b", sides[1], "--repeat", str(options.repeat)]
        for loader in LOADERS:
            line += ["--label", loader]
        return vanidl([*line, "--runs", str(Path(name) / "runs"), "-o", str(page)])


def training(data: Path, loader: str) -> str:
    """The command of one side; the profiler's output goes where VANIDL_RUN says."""
    line = ["python", "-W", "ignore", "-m", "loaders", "train", "--data", str(data)]
    line += ["--loader", loader, "--workers", "1", "--batch", "8", "--epochs", "2"]
    return shlex.join([*line, "--threads", "1"])


if __name__ == "__main__":
    sys.exit(main())
