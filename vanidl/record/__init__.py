"""Run a command under a system tracer and leave a RUN folder."""

from vanidl.record.recording import Recorded, record

__all__ = ["Recorded", "record"]
