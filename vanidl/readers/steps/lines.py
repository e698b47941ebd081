"""Lines that were sampled in a process -> their costs, without what a trace function adds.

Journals have a table of each part again and again: the last one counts. Before Python 3.12 lines
are sampled by a trace function, which slows down all Python that they call. How much it added to
a part is known by its fetches and steps that were not sampled, and is taken from each line by the
number of calls that were traced in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from vanidl.encoding.budget import bounded_name, read_whole
from vanidl.errors import InputError
from vanidl.model.lines import (
    FETCH,
    LOOP,
    FunctionLines,
    LineCost,
    PartName,
    SampledPart,
    merge_parts,
)
from vanidl.readers.steps.journal import Journal

_MOST_FUNCTIONS, _MOST_LINES = 100, 10_000
_LARGEST = 1 << 62
_ENOUGH = 3  # that were not sampled, to tell what the others took more

Sources = Mapping[tuple[str, int], str]
"""File and number of a line -> its text."""


def build_sampled_parts(journals: Iterable[Journal], sources: Sources) -> tuple[SampledPart, ...]:
    """What was sampled in a training process and its workers; tables that make no sense are none.

    Args:
        journals: theirs.
        sources: texts of lines, as far as they are known.
    """
    parts = []
    for journal in journals:
        last = {text["lines"]: text for text in journal.lines if text["lines"] in (FETCH, LOOP)}
        for name in (FETCH, LOOP):
            part = _build_part(name, last[name], sources) if name in last else None
            if part is not None:
                parts.append(part)
    return merge_parts(parts)


def read_sources(path: Path) -> dict[tuple[str, int], str]:
    """The texts of lines that the recorder kept beside the journals.

    Raises:
        InputError: they cannot be read.
    """
    try:
        rows = orjson.loads(read_whole(path))
    except OSError as error:
        raise InputError(f"{path}: permission denied or missing ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: expected lines of source as JSON, found {error}") from error
    return {
        (row[0], row[1]): row[2]
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and [type(value) for value in row] == [str, int, str]
    }


def _build_part(name: PartName, table: Mapping[str, Any], sources: Sources) -> SampledPart | None:
    totals = [_to_count(table.get(key)) for key in ("samples", "wall_ns", "cpu_ns")]
    functions = table.get("functions")
    if None in totals or not totals[0] or not isinstance(functions, list):
        return None
    samples, wall_ns, cpu_ns = (total or 0 for total in totals)
    rows = [row for row in functions[:_MOST_FUNCTIONS] if _is_function(row)]

    # What tracing added, by call.
    calls = sum(cost[4] for row in rows if row["parent"] < 0 for cost in row["costs"])
    added_ns = min(_estimate_added_ns(table, samples, cpu_ns), cpu_ns)
    a_call_ns = added_ns / calls if calls else 0.0
    keys = [(row["file"], row["name"], row["first"]) for row in rows]
    descriptions = []
    for row in rows:
        parent = row["parent"]
        lines = tuple(_build_line(row["file"], cost, a_call_ns, sources) for cost in row["costs"])
        descriptions.append(
            FunctionLines(
                bounded_name(row["file"]), bounded_name(row["name"]), row["first"], row["own"],
                keys[parent] if 0 <= parent < len(keys) else None, row["parent_line"], lines,
            )
        )  # fmt: skip

    # The part took at least what its outermost lines took.
    outermost = [
        line for function in descriptions if function.parent is None for line in function.lines
    ]
    wall_ns = max(wall_ns - round(added_ns), sum(line.wall_ns for line in outermost))
    cpu_ns = max(cpu_ns - round(added_ns), sum(line.cpu_ns for line in outermost))
    return SampledPart(name, samples, wall_ns, cpu_ns, tuple(descriptions))


def _estimate_added_ns(table: Mapping[str, Any], samples: int, cpu_ns: int) -> float:
    """Processor time that sampling added; 0 where nothing tells."""
    others, others_cpu_ns = _to_count(table.get("others")), _to_count(table.get("others_cpu_ns"))
    if not others or others < _ENOUGH or others_cpu_ns is None:
        return 0.0
    return max(cpu_ns - samples * others_cpu_ns / others, 0.0)


def _build_line(file: str, cost: list[int], a_call_ns: float, sources: Sources) -> LineCost:
    number, hits, wall_ns, cpu_ns, calls = cost
    spared_ns = min(round(calls * a_call_ns), cpu_ns, wall_ns)
    text = sources.get((file, number), "")
    return LineCost(number, hits, wall_ns - spared_ns, cpu_ns - spared_ns, text.strip())


def _is_function(row: Any) -> bool:  # noqa: ANN401
    if not isinstance(row, dict):
        return False
    kinds = {"file": str, "name": str, "first": int, "own": bool, "parent": int,
             "parent_line": int, "costs": list}  # fmt: skip
    return (
        all(type(row.get(key)) is kind for key, kind in kinds.items())
        and len(row["costs"]) <= _MOST_LINES
        and all(
            isinstance(cost, list) and len(cost) == 5 and None not in map(_to_count, cost)
            for cost in row["costs"]
        )
    )


def _to_count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST else None
