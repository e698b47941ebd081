"""Has the command's Python processes record their steps, with no change of the program.

A folder with a `sitecustomize` goes to the front of PYTHONPATH: Python imports it at its start.
What is in it runs in the program's own Python, which need not have vanidl.
"""

from __future__ import annotations

import os
from pathlib import Path

from vanidl.record.watch import RANK_VARIABLES

FOLDER = "steps"
_INJECTED = Path(__file__).parent / "injected"
_PYTHONPATH = "PYTHONPATH"


def environment(run: Path) -> dict[str, str]:
    """The variables that have steps recorded into a folder of the run, which is made."""
    folder = run / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    before = os.environ.get(_PYTHONPATH)
    return {
        _PYTHONPATH: f"{_INJECTED}{os.pathsep}{before}" if before else str(_INJECTED),
        "VANIDL_STEPS": str(folder),
        "VANIDL_RANK_VARIABLES": ",".join(RANK_VARIABLES),
    }
