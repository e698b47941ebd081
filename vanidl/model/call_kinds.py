"""What calls that move no data are for, where a tracer tells them apart."""

from __future__ import annotations

OPEN = "open"
CLOSE = "close"
SEEK = "seek"
STAT = "stat"  # access and readlink, too
LIST = "list"  # of a folder
REMOVE = "remove"
RENAME = "rename"
MKDIR = "mkdir"
MAP = "map"  # of a file into memory, and its end
FLUSH = "flush"  # of a stream's buffer to the file
OTHER = "other"  # truncate, allocate, advise, links, modes and owners, copies of descriptors
SYNC = "sync"  # waits until data are on storage: no metadata call

CALL_KINDS = (OPEN, CLOSE, SEEK, STAT, LIST, REMOVE, RENAME, MKDIR, MAP, FLUSH, OTHER, SYNC)
METADATA_KINDS = tuple(kind for kind in CALL_KINDS if kind != SYNC)
