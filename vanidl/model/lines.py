"""Which lines of the program took the time of sampled fetches and steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from vanidl.formatting.from_logs import clean_path, clean_text, set_clean
from vanidl.schema.dataclass import dataclass

PartName = Literal["fetch", "loop"]
FETCH: PartName = "fetch"
LOOP: PartName = "loop"
"""Parts that are sampled: what fetches call, and the function that asks for batches."""


@dataclass(frozen=True, slots=True)
class LineCost:
    """What one line of a function took, functions that it calls included."""

    number: int
    hits: int
    wall_ns: int
    cpu_ns: int  # of the thread; what remains of `wall_ns` it was blocked, or waited for a core
    text: str = ""  # of the source, "" where that was not at hand

    def __post_init__(self) -> None:
        """The text as it may be shown."""
        set_clean(self, text=clean_text(self.text))


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """The lines of one function."""

    file: str
    name: str
    first: int  # line
    own: bool  # of the program, not of a library
    parent: tuple[str, str, int] | None  # key of the function that calls it, None: outermost
    parent_line: int
    lines: tuple[LineCost, ...]  # by number

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        set_clean(self, file=clean_path(self.file), name=clean_text(self.name))

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from others."""
        return self.file, self.name, self.first

    @property
    def posix_file(self) -> str:
        """Its file with slashes between folders, on whatever system it ran."""
        return self.file.replace("\\", "/")


@dataclass(frozen=True, slots=True)
class SampledPart:
    """What was sampled of one part: each function once."""

    name: PartName
    samples: int
    wall_ns: int
    cpu_ns: int
    functions: tuple[FunctionLines, ...] = ()


def merge_parts(found: Iterable[SampledPart]) -> tuple[SampledPart, ...]:
    """The same over several processes, which ran the same program."""
    parts: dict[PartName, SampledPart] = {}
    for part in found:
        known = parts.get(part.name, SampledPart(part.name, 0, 0, 0))
        functions = {function.key: function for function in known.functions}
        for function in part.functions:
            before = functions.get(function.key)
            functions[function.key] = function if before is None else _merge_lines(before, function)
        parts[part.name] = SampledPart(
            part.name,
            known.samples + part.samples,
            known.wall_ns + part.wall_ns,
            known.cpu_ns + part.cpu_ns,
            tuple(functions[key] for key in sorted(functions)),
        )
    return tuple(parts[name] for name in sorted(parts))


def _merge_lines(one: FunctionLines, other: FunctionLines) -> FunctionLines:
    lines = {line.number: line for line in one.lines}
    for line in other.lines:
        known = lines.get(line.number)
        lines[line.number] = (
            line
            if known is None
            else LineCost(
                line.number,
                known.hits + line.hits,
                known.wall_ns + line.wall_ns,
                known.cpu_ns + line.cpu_ns,
                known.text or line.text,
            )
        )
    return replace(one, lines=tuple(lines[number] for number in sorted(lines)))
