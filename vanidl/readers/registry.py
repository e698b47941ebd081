"""The formats that vanidl reads: a folder for each, a line for each here."""

from __future__ import annotations

from vanidl.readers import (
    darshan,
    dftracer,
    dlio,
    objects,
    pytorch,
    rocprof,
    states,
    steps,
    tensorboard,
    tracer,
    xprof,
)
from vanidl.readers.format import Format

FORMATS: tuple[Format, ...] = (
    tracer.FORMAT,
    darshan.FORMAT,
    rocprof.FORMAT,
    pytorch.FORMAT,
    tensorboard.FORMAT,
    xprof.FORMAT,
    dftracer.FORMAT,
    steps.FORMAT,
    states.FORMAT,
    objects.FORMAT,
    dlio.FORMAT,
)
"""Every format that vanidl reads, in the order in which `check` lists their files."""
