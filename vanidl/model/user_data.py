"""What the user states about the data of a run, and what opening it showed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vanidl.model.file_facts import FileFacts


@dataclass(frozen=True, slots=True)
class UserData:
    """What no log holds. Keys are paths as the job saw them."""

    record_bytes: int | None = None  # bytes of one sample
    samples_per_step: int | None = None  # of one rank
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes on disk, of files found here
    facts: Mapping[str, FileFacts] = field(default_factory=dict)  # of files opened here
    on_disk: tuple[str, ...] | None = None  # data files here that the job never opened
