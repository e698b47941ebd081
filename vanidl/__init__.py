"""Where does training time go to I/O, is it hidden behind compute, and did the change help?

import vanidl
run = vanidl.open_run("my_run/")
print(run.headline)
"""

from importlib import metadata

from vanidl.compared import Compared, compare_runs
from vanidl.errors import InputError, SeveralJobsError, UsageError, VanidlError
from vanidl.reading import Inputs
from vanidl.run import Run, open_run
from vanidl.selection import Selection

__version__ = metadata.version("vanidl")

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
    "open_run",
]
