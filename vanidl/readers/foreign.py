"""Files that are often taken for logs or profiles: what they are, and what to give instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vanidl.readers.sniff import Opening


@dataclass(frozen=True, slots=True)
class _Way:
    """What such a file is, and the way out; `begins` is a regular expression for its text."""

    what: str
    remedy: str
    begins: str = ""


_PROFILE = "record the training with torch.profiler and give what that exports (*.pt.trace.json)"
_LOG = "give the .darshan file that it was made of"
_DATA = "it is data, or made of it: give the logs of the run"
_LOG_OR_PROFILE = (
    "record the run with vanidl record or Darshan, and its training with torch.profiler"
)
_UTF8 = "convert it: iconv -f UTF-16 -t UTF-8"
_PICKLE = _Way("a pickle, as of PyTorch's memory snapshot", _PROFILE)
_NSIGHT = _Way("a report of Nsight Systems", _PROFILE)

_BY_HEAD: dict[bytes, _Way] = {
    b"\xff\xfe": _Way("UTF-16 text, as a redirect of PowerShell writes it", _UTF8),
    b"\xfe\xff": _Way("UTF-16 text", _UTF8),
    b"PK\x03\x04": _Way("a zip archive", "unpack it and give what is in it"),
    b"\x28\xb5\x2f\xfd": _Way("a file packed by zstd", "unpack it with zstd -d"),
    b"\xfd7zXZ\0": _Way("a file packed by xz", "unpack it with xz -d"),
    b"BZh": _Way("a file packed by bzip2", "unpack it with bzip2 -d"),
    b"SQLite format 3\0": _Way("a database as Nsight Systems and rocprofv3 export", _PROFILE),
    b"\x80\x02": _PICKLE,
    b"\x80\x04": _PICKLE,
    b"\x80\x05": _PICKLE,
    b"%PDF": _Way("a PDF, as of darshan-job-summary", _LOG),
    b"PAR1": _Way("a Parquet file", _DATA),
    b"\x89HDF\r\n": _Way("an HDF5 file", _DATA),
    b"\x93NUMPY": _Way("a NumPy array", _DATA),
    b"\x89PNG": _Way("a picture", _DATA),
    b"\x7fELF": _Way("a program or a library", "give the log that it left"),
    b"\x03BOTF2": _Way("a trace of OTF2, as Score-P writes it", _LOG_OR_PROFILE),
    b"HPCTOOLKIT": _Way("a database of HPCToolkit", _LOG_OR_PROFILE),
}
"""By the first bytes."""

_BY_END: dict[str, _Way] = {
    ".nsys-rep": _NSIGHT,
    ".qdrep": _NSIGHT,
    ".ncu-rep": _Way("a report of Nsight Compute", _PROFILE),
    ".pftrace": _Way("a trace of Perfetto", _PROFILE),
    ".et": _Way("an execution trace of Chakra, a graph of a workload without times", _PROFILE),
    ".otf2": _Way("a trace of OTF2, as Score-P writes it", _LOG_OR_PROFILE),
}
"""By the end of the name."""

_EVENT = r"\[\s*\{(?:[^{}]|\{[^{}]*\})*"  # the first event of a bare array, up to some member
_BY_TEXT: tuple[_Way, ...] = (
    _Way("a web page", "give the logs that it was made of", r"<!doctype html|<html"),
    _Way("the output of darshan-parser", _LOG, r"# darshan log version"),
    _Way("the output of darshan-dxt-parser", _LOG, r"# \*{3,80}\s*# DXT|# DXT, file_id"),
    _Way(
        "a PyTorch execution trace (Chakra), which has no times of devices",
        _PROFILE,
        r'\{[^{}]*"schema"\s*:\s*"[\d.]+-chakra',
    ),
    _Way(
        "a workload graph of Chakra, which has no times",
        _PROFILE,
        r'\{\s*"workload_graph"\s*:',
    ),
    _Way("a memory timeline of PyTorch, or bare numbers", _PROFILE, r"\[\s*\[\s*-?\d"),
    _Way(
        "a trace of the profiler of PyTorch before 1.8, which has neither steps nor waits",
        _PROFILE,
        _EVENT + r'"pid"\s*:\s*"(CPU|CUDA) functions"',
    ),
    _Way(
        "a trace whose ts is text, as trace_view.json of torch_npu (Ascend)",
        "write every ts as a number and cat beside it (cpu_op, kernel)",
        _EVENT + r'"ts"\s*:\s*"\d',
    ),
    _Way("a profile of speedscope or py-spy", _PROFILE, r'\{[^{}]*"\$schema"[^{}]*speedscope'),
    _Way(
        "the output of strace",
        "record the run with vanidl record",
        r"(\d{1,9} +)?([\d:.]{5,20} )?\w{2,40}\([^\n]{0,500}\) += -?\d",
    ),
)
"""By how the text begins, packed by gzip or not."""

_BEGINNING = 4096
_REPLACED = b"\xef\xbf\xbd"  # U+FFFD in UTF-8: in place of every byte that is no text
_MANY_REPLACED = 8
_AS_TEXT = _Way(
    "binary content that was changed into text",
    "copy the file again, as binary (each byte that is no text was replaced by U+FFFD)",
)


def told_apart(opening: Opening) -> str:
    """What the file is and what to do, `found X; do Y`; "" where it is none of these.

    Raises:
        OSError: It cannot be read.
    """
    text = opening.text[:_BEGINNING].decode("utf-8", "replace")
    ways = [_AS_TEXT] if was_changed_into_text(opening) else []
    ways += [way for start, way in _BY_HEAD.items() if opening.head.startswith(start)]
    ways += [way for end, way in _BY_END.items() if opening.name.endswith(end)]
    ways += [way for way in _BY_TEXT if re.match(way.begins, text, re.IGNORECASE)]
    return f"found {ways[0].what}; {ways[0].remedy}" if ways else ""


def was_changed_into_text(opening: Opening) -> bool:
    """Whether bytes that are no text were lost on the way, as in a copy or a download as text.

    Raises:
        OSError: It cannot be read.
    """
    return not opening.is_json and opening.text[:_BEGINNING].count(_REPLACED) >= _MANY_REPLACED
