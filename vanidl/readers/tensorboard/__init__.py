"""TensorBoard event files (`events.out.tfevents.*`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vanidl.model.warnings import Notice
from vanidl.readers.format import (
    FileKind,
    Files,
    Format,
    Reading,
    Records,
    check_by_reading,
    warn_of_unused,
)
from vanidl.readers.records import StepLog

_EVENT_FILE = "event_files"
_PREFIX = "events.out.tfevents."


def _read(files: Files, reading: Reading) -> Records:
    """The steps of every file; of those that were asked for, of the tag that was asked for."""
    paths = files.get(_EVENT_FILE, ())
    own_paths = set(paths)
    asked = [(path, tag) for path, tag in reading.asked if path in own_paths]
    named = {path.absolute() for path, _ in asked}
    wanted = [*asked, *((path, None) for path in paths if path.absolute() not in named)]
    tags = iter([tag for _, tag in wanted])
    read = reading.each(
        "event files", lambda path: _read_step_log(path, next(tags)), [path for path, _ in wanted]
    )
    lost = (StepLog(path, tag, ()) for path, tag in wanted if path in reading.unreadable)
    notices = (notice for log, losses in read for notice in _warn_of_no_steps(log, losses))
    return Records(step_logs=(*(log for log, _ in read), *lost), notices=tuple(notices))


def _read_step_log(path: Path, tag: str | None) -> tuple[StepLog, Sequence[str]]:
    # Where there is one: importing what reads it takes time.
    from vanidl.readers.tensorboard.event_file import find_steps, list_records, read_events

    content = read_events(path)
    steps = find_steps(path, content, tag)
    log = StepLog(path, tag, steps, tuple(content.tags), list_records(path, content))
    return log, content.losses


def _read_losses(path: Path) -> Sequence[str]:
    from vanidl.readers.tensorboard.event_file import read_events

    return read_events(path).losses


def _warn_of_no_steps(log: StepLog, losses: Sequence[str]) -> Iterable[Notice]:
    """What a file lost; where it still has steps, they say so themselves."""
    return () if log.segments else warn_of_unused(log.path, losses)


FORMAT = Format(
    name="tensorboard",
    title="TensorBoard event files",
    patterns=(f"{_PREFIX}*",),
    kinds=(FileKind(_EVENT_FILE, "TensorBoard event file", prefix=_PREFIX),),
    read=_read,
    check=check_by_reading({_EVENT_FILE: _read_losses}),
    outputs="tfevents",
)
