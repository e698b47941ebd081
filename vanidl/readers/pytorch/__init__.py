"""Traces of the PyTorch profiler (`*.pt.trace.json`, or JSON of any name)."""

from __future__ import annotations

import re
from pathlib import Path

from vanidl.readers.format import (
    FileKind,
    Files,
    Format,
    Opening,
    Reading,
    Records,
    check_by_reading,
)

_TRACE = "profiler"
_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")
_HEAD_BYTES = 1 << 16
_MEMBERS = (b'"deviceProperties"', b'"traceEvents"')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"(cpu_op|user_annotation|python_function|cuda_runtime)"')
"""Categories that no other tool gives the events of a trace."""


def _read(files: Files, reading: Reading) -> Records:
    from vanidl.readers.pytorch.trace import read_traces  # where there is one: it takes time

    profiles = reading.each(
        "profiler traces",
        lambda path: read_traces(path, wait_names=reading.wait_names),
        files.get(_TRACE, ()),
    )
    return Records(profiles=tuple(profile for some in profiles for profile in some))


def _read_losses(path: Path) -> tuple[str, ...]:
    from vanidl.readers.pytorch.trace import read_traces

    trace = read_traces(path)[0]
    return (*trace.losses, *trace.slight)


def _sniff(opening: Opening) -> str:
    return _TRACE if opening.is_json and not opening.is_event_a_line else ""


def _sniff_among(opening: Opening) -> str:
    """As the profiler begins every trace; `export_chrome_trace` takes any name.

    A tool that wrote it anew may have put other members first, but not other events.
    """
    head = opening.text[:_HEAD_BYTES] if opening.is_json else b""
    if not head.startswith(b"{") or not any(name in head for name in _MEMBERS):
        return ""
    return _TRACE if b'"schemaVersion"' in head or _CATEGORY.search(head) else ""


FORMAT = Format(
    name="pytorch",
    title="PyTorch profiler traces",
    patterns=_SUFFIXES,
    kinds=(FileKind(_TRACE, "PyTorch profiler trace", _SUFFIXES, perhaps=(".json", ".json.gz")),),
    read=_read,
    check=check_by_reading({_TRACE: _read_losses}),
    sniff=_sniff,
    sniff_among=_sniff_among,
    outputs=r"\.trace\.json",
)
