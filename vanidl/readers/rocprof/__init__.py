"""Profiles of AMD's rocprofv3 (ROCprofiler-SDK), as it writes them to JSON (`*_results.json`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from vanidl.readers.format import (
    FileKind,
    Files,
    Format,
    Opening,
    Reading,
    Records,
    check_by_reading,
)

_PROFILE = "rocprof"
_BEGINS = re.compile(rb'\{\s*"rocprofiler-sdk-tool"\s*:')


def _read(files: Files, reading: Reading) -> Records:
    from vanidl.readers.rocprof.profile import read_profiles  # where there is one: it takes time

    profiles = reading.each(
        "profiles of rocprofv3",
        lambda path: read_profiles(path, wait_names=reading.wait_names),
        files.get(_PROFILE, ()),
    )
    return Records(profiles=tuple(profile for some in profiles for profile in some))


def _read_losses(path: Path) -> Sequence[str]:
    from vanidl.readers.rocprof.profile import read_profiles

    return read_profiles(path)[0].losses


def _sniff(opening: Opening) -> str:
    return _PROFILE if opening.is_json and _BEGINS.match(opening.text) else ""


FORMAT = Format(
    name="rocprof",
    title="profiles of rocprofv3",
    patterns=("_results.json",),
    kinds=(FileKind(_PROFILE, "profile of rocprofv3", perhaps=(".json", ".json.gz")),),
    read=_read,
    check=check_by_reading({_PROFILE: _read_losses}),
    sniff=_sniff,
    sniff_among=_sniff,
)
