"""Results as tables with one key: `tables.TABLES` says what each holds, `frame` makes one."""

from vanidl.frames.frame import arrow_table, frame, operation_frames, plain_frame
from vanidl.frames.tables import FRAMES, KEYS, TABLES, FrameName, dtype_of, storable

__all__ = [
    "FRAMES",
    "KEYS",
    "TABLES",
    "FrameName",
    "arrow_table",
    "dtype_of",
    "frame",
    "operation_frames",
    "plain_frame",
    "storable",
]
