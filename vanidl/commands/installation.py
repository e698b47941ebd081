"""Another project's package in the folder of this one.

PyPI's `vanidl` (0.0.8, 2021) installs modules of its own into the same folder `vanidl`. Installed
after this package it replaces `__init__.py` by an empty file, and uninstalled later it takes
`__init__.py` away.
"""

from __future__ import annotations

from pathlib import Path

import vanidl

_ITS_MODULE = "configuraton.py"  # sic: a name that only that package has
_MEND = "pip uninstall vanidl, then pip install --force-reinstall --no-deps vanidl-io"


def mixed_up(folder: Path = Path(__file__).parents[1]) -> str:
    """One line on what is wrong and how to mend it; "" where the folder is this package's own."""
    if (folder / _ITS_MODULE).exists():
        return (
            "expected vanidl-io alone, found the package vanidl 0.0.8 of PyPI, another project, in "
            f"the same folder: {_MEND}."
        )
    if not hasattr(vanidl, "__version__"):
        return (
            "expected vanidl-io whole, found its __init__.py removed or replaced, as by "
            f"uninstalling the package vanidl of PyPI: {_MEND}."
        )
    return ""
