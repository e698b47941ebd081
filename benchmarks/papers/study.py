"""What the studies share: a figure beside the document's, and a training recorded by vanidl.

A study is a module with `PARTS`, each of which measures a `Row` for each figure. A row that
`agrees` can judge is of counts, sizes and orders, which a busy machine does not change; the others
are printed without a judgement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
"""What `vanidl summary --json` says of a run."""


@dataclass(frozen=True)
class Row:
    """One figure of a document and of this project.

    Attributes:
        of: What was run: an application, a loader.
        figure: What is measured.
        reported: What the document says.
        measured: The same here.
        agrees: Whether it points the same way; None: not judged, as it follows from the machine.
        form: How `measured` is printed.
    """

    of: str
    figure: str
    reported: str
    measured: float
    agrees: bool | None = None
    form: str = "{:.0%}"

    def __str__(self) -> str:
        """The row of a table."""
        same = {True: "yes", False: "no", None: "not judged"}[self.agrees]
        cells = (self.of, self.figure, self.reported, self.form.format(self.measured), same)
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Part:
    """What of a study can be run alone.

    Attributes:
        says: What it measures, in one line.
        measure: Yields rows; (fewer and smaller or not, a folder for data and runs).
        long: Whether it takes many minutes even with few and small samples.
    """

    says: str
    measure: Callable[[bool, Path], Iterator[Row]]
    long: bool = False


def record_program(
    program: Sequence[str], run: Path, *, ranks: int = 1, options: Sequence[str] = ()
) -> Answer:
    """What vanidl says, given `options`, of `python PROGRAM`, which it records into `run`.

    Programs start where the run lies and by the name `python`, so that a page of the run shows
    nothing of this checkout.

    Raises:
        CalledProcessError: The program failed.
    """
    line = ["python", "-W", "ignore", *program]
    if ranks > 1:
        launch = ["python", "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node"]
        line = [*launch, str(ranks), "--no-python", *line]
    recorder = [sys.executable, "-m", "vanidl", "record", "--tracer", "vanidl", "-o", str(run)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*recorder, "--", *line],
        env=environment, cwd=run.parent, check=True, timeout=900, capture_output=True,
    )  # fmt: skip
    return summarize(run, options)


def summarize(run: Path, options: Sequence[str] = ()) -> Answer:
    """The JSON of a recorded run."""
    said = subprocess.run(
        [sys.executable, "-m", "vanidl", "summary", "--json", *options, str(run)],
        check=True, timeout=600, capture_output=True,
    )  # fmt: skip
    answer: Answer = json.loads(said.stdout)
    return answer
