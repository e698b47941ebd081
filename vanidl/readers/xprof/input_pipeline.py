"""TensorBoard's old `.input_pipeline.pb`: how long each step took, and nothing on when.

Durations alone cannot be laid over the I/O, so no overlap is claimed from them. Its waits
for input count tf.data only and are not taken over: in a job that reads elsewhere they are 0
without meaning it. Message InputPipelineAnalysisResult of tensorflow.profiler.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from vanidl.encoding.budget import read_whole
from vanidl.encoding.protobuf import NotProtobuf, fields
from vanidl.errors import InputError
from vanidl.readers.file_names import session_name
from vanidl.readers.records import StepDurations

SOURCE = "tensorboard-input-pipeline"

_STEP_DETAILS, _DETAILS_BODY = 4, 2
_STEP_NUMBER, _STEP_TIME_MS = 1, 2
_LONGEST_MS = 1e12
_EXPECTED = "expected a TensorBoard input pipeline analysis"
_REMEDY = "give a *.input_pipeline.pb file that TensorBoard's profiler wrote"


def read_durations(path: str | Path) -> StepDurations:
    """The duration of every step, in the order of the file.

    Raises:
        InputError: The file cannot be read, is no such analysis, or holds no step.
    """
    try:
        data = read_whole(path)
        rows = [_step(detail) for detail in fields(memoryview(data)).messages(_STEP_DETAILS)]
    except OSError as error:
        found = str(error.strerror)
        raise InputError(f"{path}: {_EXPECTED}, found {found}; check the path") from error
    except NotProtobuf as error:
        raise InputError(f"{path}: {_EXPECTED}, found {error}; {_REMEDY}") from error
    usable = [(step, ms) for step, ms in rows if math.isfinite(ms) and 0 <= ms < _LONGEST_MS]
    if not usable:
        raise InputError(f"{path}: {_EXPECTED}, found one without steps; {_REMEDY}")
    name = session_name(path)
    columns = (
        np.array([step for step, _ in usable], np.int64).astype(np.int32),
        np.array([round(ms * 1e6) for _, ms in usable], np.int64),
    )
    for column in columns:
        column.setflags(write=False)
    return StepDurations(str(path), SOURCE, name.host if name else "", *columns)


def _step(detail: memoryview) -> tuple[int, float]:
    """(step number, duration in ms) of one entry, which wraps its message in an Any."""
    bodies = fields(detail).messages(_DETAILS_BODY)
    if not bodies:
        return 0, math.nan
    body = fields(bodies[-1])
    return body.varint(_STEP_NUMBER) & 0x7FFFFFFF, struct.unpack("<d", body.fixed64(_STEP_TIME_MS))[
        0
    ]
