"""Profiles of TensorFlow and JAX: `.xplane.pb`, `.trace.json.gz` and `.input_pipeline.pb`."""

from __future__ import annotations

from vanidl.readers.format import FileKind, Format, check_by_reading
from vanidl.readers.xprof import trace_viewer, xplane
from vanidl.readers.xprof.sessions import STEP_TABLE, TRACE_VIEWER, XPLANE, read

FORMAT = Format(
    name="xprof",
    title="TensorFlow or JAX profiles",
    patterns=(".xplane.pb", ".trace.json.gz", ".input_pipeline.pb"),
    kinds=(
        FileKind(XPLANE, "TensorFlow or JAX profile", (".xplane.pb",)),
        FileKind(TRACE_VIEWER, "TensorFlow trace", (".trace.json.gz",)),
        FileKind(STEP_TABLE, "TensorFlow input pipeline profile", (".input_pipeline.pb",)),
    ),
    read=read,
    check=check_by_reading(
        {
            XPLANE: lambda path: xplane.read_profile(path).losses,
            TRACE_VIEWER: lambda path: trace_viewer.read_profile(path).losses,
        }
    ),
    outputs=r"\.trace\.json|/plugins/profile/|\.xplane\.pb",
)
