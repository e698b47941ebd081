"""What the tracer of a run is called, and how to make it trace single operations."""

from __future__ import annotations

from vanidl.model.trace import Trace

_TITLES = {"darshan": "Darshan", "dftracer": "DFTracer", "vanidl": "vanidl's tracer"}
_DXT = "Record with DXT_ENABLE_IO_TRACE=1"
_WITH_IO = "Record the run with vanidl record"
_RECORD = {"dftracer": "Record without DFTRACER_ENABLE_AGGREGATION"}


def title(trace: Trace) -> str:
    """The name of the tracer, as people write it."""
    return _TITLES.get(trace.job.tracer, trace.job.tracer or "the tracer")


def named(trace: Trace) -> str:
    """The tracer with the versions that its logs state, as a fact about the run."""
    stated = ", ".join(sorted({log.version for log in trace.logs if log.version}))
    of_format = "log version " if trace.job.tracer == "darshan" else ""
    return f"{title(trace)} {of_format}{stated}".strip() if trace.job.tracer else "none"


def record_operations(trace: Trace) -> str:
    """What to do where no single operation was traced; a sentence without its end."""
    return _RECORD.get(trace.job.tracer, _DXT if trace.logs else _WITH_IO)
