"""Where does training time go to I/O, is it hidden behind compute, and did the change help?

import vanidl
run = vanidl.open_run("my_run/")
print(run.headline)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vanidl.commands.schema import output_schema
    from vanidl.compare.runs import Compared, compare_runs
    from vanidl.errors import InputError, SeveralJobsError, UsageError, VanidlError
    from vanidl.interactive.run import Run, from_darshan, open_run, table
    from vanidl.marks import phase, step, wait
    from vanidl.merge.pipeline import Inputs
    from vanidl.model.selection import Selection
    from vanidl.readers.darshan.pydarshan import darshan_frames

__version__ = "0.2.0"

__all__ = [
    "Compared",
    "InputError",
    "Inputs",
    "Run",
    "Selection",
    "SeveralJobsError",
    "UsageError",
    "VanidlError",
    "__version__",
    "compare_runs",
    "darshan_frames",
    "from_darshan",
    "open_run",
    "output_schema",
    "phase",
    "step",
    "table",
    "wait",
]

_MODULES = {
    "Compared": "compare.runs",
    "compare_runs": "compare.runs",
    "InputError": "errors",
    "SeveralJobsError": "errors",
    "UsageError": "errors",
    "VanidlError": "errors",
    "Inputs": "merge.pipeline",
    "darshan_frames": "readers.darshan.pydarshan",
    "from_darshan": "interactive.run",
    "Run": "interactive.run",
    "open_run": "interactive.run",
    "output_schema": "commands.schema",
    "table": "interactive.run",
    "Selection": "model.selection",
    "phase": "marks",
    "step": "marks",
    "wait": "marks",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a function
    """What the package offers, imported when it is asked for: workers need little of it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found  # the next time it is here
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
