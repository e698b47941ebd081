"""The rows of a survey for the public: no job, command or path under its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.survey.rows import Row


def anonymous_rows(rows: Sequence[Row], root: Path, names: Pseudonyms) -> list[Row]:
    """The rows, in the same order and with the same numbers, with pseudonyms for names."""
    return [_anonymous(row, root, names) for row in rows]


def _anonymous(row: Row, root: Path, names: Pseudonyms) -> Row:
    names.path(str(root / row["first_log"]), "log")  # which the problem names
    problem, command, workload = row["problem"], row["command"], row["workload"]
    return row | {
        "job": names.job(row["job"]),
        "command": command and names.command(command),
        "user": row["user"] and names.user(row["user"]),
        "input_file_systems": _file_systems(row["input_file_systems"], names),
        "first_log": names.path(row["first_log"], "log"),
        "workload": workload and names.text(workload),
        "problem": problem and names.text(problem),
        "last_error": None,
    }


def _file_systems(kinds: Sequence[str] | None, names: Pseudonyms) -> list[str] | None:
    return None if kinds is None else [names.file_system(kind) for kind in kinds]
