"""`ceiling.json`, which `vanidl ceiling` leaves in a RUN: what its steps take without input."""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose, isfinite
from pathlib import Path
from typing import Any

import orjson

from vanidl.encoding.budget import read_whole
from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError
from vanidl.files.atomic import write_whole
from vanidl.files.checked_json import checked_fields
from vanidl.model.run_facts import Ceiling
from vanidl.model.warnings import Notice

SCHEMA = "vanidl-ceiling/1"
NAME = "ceiling.json"
_MOST_REMARKS = 20
_LONGEST_REMARK = 400


def read_ceiling(path: Path) -> Ceiling:
    """The ceiling in a file.

    Raises:
        InputError: the file cannot be read, or no `vanidl ceiling` can have written it.
    """
    try:
        values = orjson.loads(read_whole(path))
        if values["schema"] != SCHEMA:
            raise InputError(_unusable(path, f"schema {values['schema']!r}"))
        return _ceiling(values)
    except OSError as error:
        raise InputError(_unusable(path, f"no readable file ({error.strerror})")) from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(_unusable(path, f"something else ({error})")) from error


def _unusable(path: Path, found: str) -> str:
    return (
        f"{path}: expected what vanidl ceiling measured (schema {SCHEMA}), found {found}; remove "
        "it, or measure again with vanidl ceiling --against."
    )


def _ceiling(values: dict[str, Any]) -> Ceiling:
    remarks = tuple(str(text)[:_LONGEST_REMARK] for text in values["remarks"][:_MOST_REMARKS])
    found = Ceiling(**checked_fields(Ceiling, values), remarks=remarks)
    times = (found.step_s, found.free_s, found.median_step_s, found.median_free_s)
    shares = (found.low, found.cost, found.high)
    counts = (found.ranks, found.steps, found.replayed, found.kept, found.pairs)
    sound = (
        all(isfinite(value) for value in (*times, *shares, found.copying_s))
        and min(times) > 0
        and found.copying_s >= 0
        and found.low <= found.cost <= found.high < 1
        and isclose(found.cost, 1 - found.free_s / found.step_s, abs_tol=1e-6)
        and min(counts) >= 1
        and found.kept_nbytes >= 0
    )
    if not sound:
        raise ValueError("numbers that contradict each other")
    return found


def write_ceiling(folder: Path, ceiling: Ceiling) -> None:
    """Writes it into a RUN, for its owner only; the file appears whole or not at all.

    Raises:
        VanidlError: it cannot be written.
    """
    values = {"schema": SCHEMA, **{key: getattr(ceiling, key) for key in Ceiling.__slots__}}
    text = orjson.dumps(values, option=orjson.OPT_INDENT_2)
    write_whole(folder / NAME, text, "the ceiling of the run")


def gather(run_records: Iterable[Path]) -> tuple[Ceiling | None, list[Notice]]:
    """What lies beside the only record of a run; of several runs none speaks for all."""
    paths = [path for record in run_records if (path := record.with_name(NAME)).is_file()]
    if len(paths) != 1:
        return None, []
    try:
        return read_one(read_ceiling, paths[0]), []
    except InputError as error:
        return None, [Notice("ceiling_unreadable", f"{error}.", "info")]
