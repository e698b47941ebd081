"""Profiles of TensorFlow and JAX: `.xplane.pb`, `.trace.json.gz` and `.input_pipeline.pb`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vanidl.readers.format import FileKind, Files, Format, Reading, Records, check_by_reading

# The kinds of files of TensorFlow's and JAX's profiles.

XPLANE, TRACE_VIEWER, STEP_TABLE = "xplane", "trace_viewer", "input_pipeline"


def _read(files: Files, reading: Reading) -> Records:
    from vanidl.readers.xprof import (
        reading as sessions,  # where there are such files: it takes time
    )

    return sessions.read_sessions(files, reading)


def _read_losses_of_xplane(path: Path) -> Sequence[str]:
    from vanidl.readers.xprof import xplane

    return xplane.read_xplane(path).losses


def _read_losses_of_trace(path: Path) -> Sequence[str]:
    from vanidl.readers.xprof import trace_viewer

    return trace_viewer.read_trace(path).losses


FORMAT = Format(
    name="xprof",
    title="TensorFlow or JAX profiles",
    patterns=(".xplane.pb", ".trace.json.gz", ".input_pipeline.pb"),
    kinds=(
        FileKind(XPLANE, "TensorFlow or JAX profile", (".xplane.pb",)),
        FileKind(TRACE_VIEWER, "TensorFlow trace", (".trace.json.gz",), by_content=True),
        FileKind(STEP_TABLE, "TensorFlow input pipeline profile", (".input_pipeline.pb",)),
    ),
    read=_read,
    check=check_by_reading({XPLANE: _read_losses_of_xplane, TRACE_VIEWER: _read_losses_of_trace}),
    outputs=r"\.trace\.json|/plugins/profile/|\.xplane\.pb",
)
