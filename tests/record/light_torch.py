"""Imported before torch by programs that tests start: 1.4 s of processor time each instead of 4.

PyTorch's optimizers import its compiler at their first use, only to tell it to leave them alone,
and at exit the collector looks through all that these imports have made. What is recorded has to
do with neither; `test_frameworks.py` records programs without this, and so do the tests of
`--profile`, which needs the compiler.
"""

from __future__ import annotations

import atexit
import gc
import sys
from types import ModuleType
from typing import Any


def _leave_alone(function: Any, *_: Any, **__: Any) -> Any:
    """Nothing compiles, so nothing is to be kept from it."""
    return function


compiler: Any = ModuleType("torch._dynamo")
compiler.disable = _leave_alone
compiler.graph_break = lambda: None
sys.modules[compiler.__name__] = compiler
atexit.register(gc.freeze)
