"""Our frozen dataclasses do what the standard ones do; the standard decorator is the oracle."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import numpy as np
import pytest

from vanidl.datatypes import dataclass


def made_by(decorator: Callable[..., Any], *, slots: bool) -> type:
    @decorator(frozen=True, slots=slots)
    class Row:
        """A row."""

        number: int
        name: str = "none"
        cells: list[int] = field(default_factory=list)
        hidden: int = field(default=3, repr=False, compare=False)

        def twice(self) -> int:
            return 2 * self.number

    return Row


@pytest.fixture(params=[True, False], ids=["slots", "no slots"])
def ours_and_theirs(request: pytest.FixtureRequest) -> tuple[type, type]:
    slots = request.param
    return made_by(dataclass, slots=slots), made_by(dataclasses.dataclass, slots=slots)


VALUES = [(1,), (2,), (1, "a"), (1, "a", [4]), (1, "a", [4], 9)]


def test_same_text_values_fields_and_signature(ours_and_theirs: tuple[type, type]) -> None:
    ours, theirs = ours_and_theirs
    for values in VALUES:
        assert repr(ours(*values)) == repr(theirs(*values))
        assert dataclasses.asdict(ours(*values)) == dataclasses.asdict(theirs(*values))
    names = [[f.name for f in dataclasses.fields(kind)] for kind in (ours, theirs)]
    assert names[0] == names[1]
    assert ours.__match_args__ == theirs.__match_args__
    signatures = [inspect.signature(kind).parameters for kind in (ours, theirs)]
    assert list(signatures[0]) == list(signatures[1])
    assert [p.annotation for p in signatures[0].values()] == [
        p.annotation for p in signatures[1].values()
    ]


def test_equal_where_the_standard_ones_are(ours_and_theirs: tuple[type, type]) -> None:
    ours, theirs = ours_and_theirs
    for one in VALUES:
        for other in VALUES:
            assert (ours(*one) == ours(*other)) == (theirs(*one) == theirs(*other)), (one, other)
    assert ours(1) != theirs(1)
    with pytest.raises(TypeError, match="unhashable"):  # it holds a list
        hash(ours(1))


def test_frozen_and_factories_make_new_values(ours_and_theirs: tuple[type, type]) -> None:
    ours, _ = ours_and_theirs
    row: Any = ours(1)
    for change in (lambda: setattr(row, "number", 2), lambda: setattr(row, "new", 2)):
        with pytest.raises(FrozenInstanceError):
            change()
    with pytest.raises(FrozenInstanceError):
        del row.number
    assert ours(1).cells is not ours(1).cells
    assert replace(row, number=4).twice() == 8
    assert copy.copy(row) == copy.deepcopy(row) == row
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'number'"):
        ours()


@dataclass(frozen=True, slots=True)
class Base:
    """Pickled by its name."""

    number: int


@dataclass(frozen=True, slots=True)
class Derived(Base):
    """Has methods of its own, which stay."""

    array: Any = None

    def __repr__(self) -> str:
        return "derived"

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError(self.number)


def test_inherited_pickled_hashed_and_own_methods_kept() -> None:
    one = Derived(1, "a")
    assert pickle.loads(pickle.dumps(one)) == one
    assert {one: 2}[Derived(1, "a")] == 2
    assert repr(one) == "derived"
    assert one != Base(1)
    assert hash(Base(1)) == hash(Base(1))
    with pytest.raises(ValueError, match="-1"):
        Derived(-1)


def test_one_array_is_compared_as_a_standard_one_compares_it() -> None:
    @dataclass(frozen=True, slots=True)
    class Held:
        array: Any

    values = np.arange(3)
    assert Held(values) == Held(values)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(Held(values) == Held(values.copy()))


def test_a_class_that_is_not_frozen_is_the_standard_one() -> None:
    @dataclass(slots=True)
    class Count:
        number: int = 0

    count = Count()
    count.number = 2
    assert count == Count(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)
