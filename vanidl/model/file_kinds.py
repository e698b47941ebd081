"""What a file is for, read off its path and how the run used it.

First match wins: the user's GLOB=KIND rules, system, code, log, checkpoint, dataset, other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import escape

from vanidl.errors import UsageError

DATASET = "dataset"
KINDS = (DATASET, "checkpoint", "code", "log", "system", "other")

_LEAST_NBYTES = 1 << 20
_FAR_MORE = 1000

_SYSTEM = re.compile(r"^/(proc|sys|dev|etc)(/|$)")
_CODE = re.compile(
    r"\.(py|pyc|pyo|so|pth\.py)$|\.so\.[\d.]+$|/site-packages/|/lib(64)?/python\d|/pyvenv\.cfg$"
    r"|(^|/)s?bin/[^/.]+(\.\d+)*(\.sh)?$"  # torchrun, python3.11: programs have no other ending
)
_LOG = r"\.log$"
_CHECKPOINT = re.compile(r"ckpt|checkpoint|\.(pt|pth|safetensors|keras)$|(^|/)model[^/]*$", re.I)
_RESTORED = re.compile(
    r"(^|[/_.-])(ckpt|checkpoint)s?([/_.\d-]|$)|\.(safetensors|keras)$"
    r"|(^|[/_.-])(model|weights|optimi[sz]er|state_dict)[^/]*\.(pt|pth|bin|h5)$",
    re.I,
)
"""Read and never written: a restart or pretrained weights. Stricter, as samples end in .pt, too."""

_STREAMS = re.compile(r"^<STD(IN|OUT|ERR)>$")

KindRule = tuple[str, str]


def parse_rules(texts: Sequence[str]) -> tuple[KindRule, ...]:
    """(glob, kind) for each "GLOB=KIND".

    Raises:
        UsageError: a text has no "=", or names no known kind.
    """
    rules = []
    for text in texts:
        glob, _, kind = text.rpartition("=")
        if not glob or kind not in KINDS:
            raise UsageError(
                f"--kind {text}: expected GLOB=KIND with one of the kinds {', '.join(KINDS)}."
            )
        rules.append((glob, kind))
    return tuple(rules)


def profiler_rules(written: Sequence[str]) -> tuple[KindRule, ...]:
    """Rules for the temporary files that a profiler wrote its traces to: they are logs."""
    return tuple((escape(path) + end, "log") for path in written if path for end in ("", ".tmp"))


def log_paths(outputs: Iterable[str]) -> re.Pattern[str]:
    """Paths of logs, from regular expressions for what tracers and profilers write."""
    return re.compile("|".join([*(output for output in outputs if output), _LOG]))


_LOGS = log_paths(())


def kind_of(
    path: str,
    bytes_read: int,
    bytes_written: int,
    rules: Sequence[KindRule] = (),
    logs: re.Pattern[str] = _LOGS,
    saved: bool | None = None,
) -> str:
    """The kind of one file that the run read and wrote that much of.

    `saved`: whether a library saved a checkpoint there, None where saves were not recorded.
    """
    for glob, kind in rules:
        if fnmatchcase(path, glob):
            return kind
    for pattern, kind in ((_STREAMS, "log"), (_SYSTEM, "system"), (_CODE, "code"), (logs, "log")):
        if pattern.search(path):
            return kind
    if saved:
        return "checkpoint"
    named = _CHECKPOINT.search(path) is not None
    if saved is False and not named and not bytes_read and 0 < bytes_written < _LEAST_NBYTES:
        return "log"  # what a program writes of itself: metrics, settings
    if bytes_written > 0 and (bytes_read == 0 or named):
        return "checkpoint"
    if bytes_read > 0 and bytes_written == 0:
        return "checkpoint" if _RESTORED.search(path) else "dataset"
    return "other"


def data_kind(bytes_read: Mapping[str, int]) -> str:
    """The kind whose files are taken for the dataset: of bytes read by kind the dataset's own.

    Where none of those were read, what the run read most of stands for it: files of kind other,
    or checkpoints, but no code, no logs and no files of the system, and not less than 1 MiB.
    Files of kind other also do beside a thousandth of their bytes, as of a configuration.
    """
    data, other, saved = (bytes_read.get(kind, 0) for kind in (DATASET, "other", "checkpoint"))
    if max(other, saved) < _LEAST_NBYTES:
        return DATASET
    if data == 0:
        return "other" if other >= saved else "checkpoint"
    return "other" if other > _FAR_MORE * data else DATASET


def is_named_checkpoint(path: str) -> bool:
    """Whether the name alone says that a file is a checkpoint."""
    return _CHECKPOINT.search(path) is not None
