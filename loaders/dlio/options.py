"""Options of a loader under DLIO, whose configuration passes no keys on that it does not know."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import NoReturn

from ..errors import UsageError
from ..loader.limits import add_limits
from ..loader.loader import LoaderModule

VARIABLE = "VANIDL_LOADER_OPTIONS"
"""Environment variable with options as `python -m vanidl_loaders train` has them."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"expected options of {self.prog} in ${VARIABLE}, found: {message}")


def loader_options(module: LoaderModule) -> argparse.Namespace:
    """The loader's options and limits: those in the environment, the others at their defaults.

    Raises:
        UsageError: An option that the loader does not have.
    """
    parser = _Parser(prog=module.NAME, add_help=False)
    module.add_arguments(parser)
    add_limits(parser)
    return parser.parse_args(shlex.split(os.environ.get(VARIABLE, "")))
