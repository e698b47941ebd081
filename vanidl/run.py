"""`open_run`: a path in, everything known about the run out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from vanidl import grouping
from vanidl.analyses import Results, analyse
from vanidl.assemble import Options, assemble
from vanidl.errors import InputError
from vanidl.filekinds import parse_rules
from vanidl.selection import Selection
from vanidl.sources import counters, darshan, discover, kineto
from vanidl.sources.pieces import DarshanLog, ProfileTrace
from vanidl.trace import Notice, Trace

if TYPE_CHECKING:
    from os import PathLike
