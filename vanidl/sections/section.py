"""What a section is: one topic of a run in every form in which it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.schema.schema import Kind
from vanidl.wording.cells import SaidCell

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from vanidl.figures.figure import Figure

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Json:
    """How a value of the JSON contract is made, and what kind of value it is."""

    make: Callable[[Run], Any]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Section:
    """One topic: its figures, its block of text and its place in the JSON contract.

    A figure that has nothing to draw says why. `text` is None where there is nothing to tell.
    The names of `json` are the paths of values in the contract: `io.sizes` lies in `io`.
    `traced`: numbers rest on single operations, so that they are marked where a trace lacks some.
    """

    name: str
    figures: tuple[Callable[[Run], Figure], ...] = ()
    text: Callable[[Run], str | None] | None = None
    json: Mapping[str, Json] = field(default_factory=dict)
    traced: bool = True


def values_of(record: DataclassInstance, *, without: tuple[str, ...] = ()) -> Object:
    """The fields of a record by name, some left out."""
    return {name: value for name, value in asdict(record).items() if name not in without}


CELL_KIND: Kind = {"key": str, "text": str}


def list_cells(cells: Iterable[SaidCell]) -> list[Object]:
    """Of each number of a cell that words say the key of the cell, beside what they say."""
    return [{"key": cell.key, "text": cell.text} for cell in cells]
