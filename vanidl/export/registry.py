"""Results and operations as files for other programs: one module a format."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vanidl.errors import UsageError
from vanidl.files import atomic
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.run import Run

Written = list[tuple[str, str]]
"""What was written: (name, what is in it)."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a format is written: into a folder, or as one file, by a function of a module."""

    is_folder: bool
    writer: str  # MODULE:FUNCTION, imported when it is asked for
    holds: str

    def write(self, run: Run, target: Path) -> Written:
        """Writes the run; what was written."""
        module, _, name = self.writer.partition(":")
        return cast(Written, getattr(import_module(module), name)(run, target))


FORMATS: dict[str, Format] = {
    "parquet": Format(
        True, "vanidl.export.tables:write_parquet", "a folder with one Parquet file a table"
    ),
    "csv": Format(True, "vanidl.export.tables:write_csv", "a folder with one CSV file a table"),
    "json": Format(False, "vanidl.export.tables:write", "one file: summary --json and every table"),
    "chrome": Format(
        False,
        "vanidl.export.chrome:write",
        "one timeline for Perfetto and chrome://tracing (.json, .json.gz)",
    ),
    "darshan": Format(
        False,
        "vanidl.export.darshan:write",
        "a Darshan log, for its tools (.darshan): counters and DXT",
    ),
    "tensorboard": Format(
        True,
        "vanidl.export.scalars:write",
        "a folder of TensorBoard scalars: wait share and bandwidth per step",
    ),
    "dlio": Format(False, "vanidl.export.dlio:write", "a workload for the benchmark DLIO (.yaml)"),
    "figures": Format(
        True,
        "vanidl.paper.registry:write_figures",
        "a folder of figures for papers: PDF, SVG and PNG",
    ),
}


def export(run: Run, to: str, path: str | Path) -> Written:
    """Writes the run in a format, whole or not at all; what was written.

    Args:
        run: the run, through its filters.
        to: one of FORMATS.
        path: the file or folder to make. A file is replaced, a folder must be new or empty.

    Raises:
        UsageError: no such format, its package is missing, or the folder is not empty.
        VanidlError: the file or folder cannot be written.
    """
    if to not in FORMATS:
        raise UsageError(f"no format {to!r}: expected one of {', '.join(FORMATS)}.")
    chosen = FORMATS[to]
    target = Path(path)
    if not chosen.is_folder:
        return chosen.write(run, target)
    with atomic.new_folder(target) as part:
        return chosen.write(run, part)
