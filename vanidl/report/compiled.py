"""Templates are compiled once and kept beside the bytecode of the modules."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, FileSystemBytecodeCache


class CompiledTemplates(FileSystemBytecodeCache):
    """Where Python itself would keep the bytecode of this package, and if it would keep any."""

    def __init__(self) -> None:
        folder = Path(cache_from_source(__file__)).parent
        super().__init__(str(folder), f"%s.jinja2-{jinja2.__version__}.cache")

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps a compiled template; a folder that cannot be written costs a compilation a run."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)
