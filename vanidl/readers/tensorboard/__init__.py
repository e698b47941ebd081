"""TensorBoard event files (`events.out.tfevents.*`)."""

from __future__ import annotations

from pathlib import Path

from vanidl.readers.format import FileKind, Files, Format, Reading, Records, check_by_reading
from vanidl.readers.records import StepLog
from vanidl.readers.tensorboard.event_file import read_events, records_of, steps_of

_EVENT_FILE = "event_files"
_PREFIX = "events.out.tfevents."


def _read(files: Files, reading: Reading) -> Records:
    """The steps of every file; of those that were asked for, of the tag that was asked for."""
    paths = files.get(_EVENT_FILE, ())
    mine = set(paths)
    asked = [(path, tag) for path, tag in reading.asked if path in mine]
    named = {path.absolute() for path, _ in asked}
    wanted = [*asked, *((path, None) for path in paths if path.absolute() not in named)]
    tags = iter([tag for _, tag in wanted])
    step_logs = reading.each(
        "event files", lambda path: _step_log(path, next(tags)), [path for path, _ in wanted]
    )
    lost = (StepLog(path, tag, ()) for path, tag in wanted if path in reading.unreadable)
    return Records(step_logs=(*step_logs, *lost))


def _step_log(path: Path, tag: str | None) -> StepLog:
    content = read_events(path)
    return StepLog(
        path, tag, steps_of(path, content, tag), tuple(content.tags), records_of(path, content)
    )


FORMAT = Format(
    name="tensorboard",
    title="TensorBoard event files",
    patterns=(f"{_PREFIX}*",),
    kinds=(FileKind(_EVENT_FILE, "TensorBoard event file", prefix=_PREFIX),),
    read=_read,
    check=check_by_reading({_EVENT_FILE: lambda path: read_events(path).losses}),
    outputs="tfevents",
)
