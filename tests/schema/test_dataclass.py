"""Our dataclasses are compared, hashed and printed as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl.schema.dataclass import dataclass as ours
from vanidl.schema.dataclass import restore

OPTIONS = ({}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True})


def classes_of(decorate, **options) -> list[type]:
    """No field, one, several, some not compared or shown, a subclass, methods of its own."""

    @decorate(**options)
    class Nothing:
        """Empty."""

    @decorate(**options)
    class One:
        """One field."""

        a: int = 0

    @decorate(**options)
    class Some:
        """Fields that are left out of this or that."""

        a: int = 0
        b: int = field(default=0, compare=False)
        c: int = field(default=0, repr=False)

    @decorate(**options)
    class More(Some):
        """One more."""

        d: int = 0

    @decorate(**options)
    class Own:
        """Is compared and printed in its own way."""

        a: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.a % 2 == other.a % 2

        def __repr__(self) -> str:
            return "own"

    @decorate(**options)
    class Made:
        """Values that are made anew, checked, of the class, or given by their name alone."""

        shared: ClassVar[int] = 7
        b: list[int] = field(default_factory=list)
        c: int = field(default=0, init=False)
        a: int = field(default=0, kw_only=True)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    return [Nothing, One, Some, More, Own, Made]


@pytest.mark.parametrize("options", OPTIONS)
@given(values=st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_ours_do_what_those_of_the_library_do(options: dict, values: list[int]) -> None:
    pairs = zip(
        classes_of(ours, **options), classes_of(dataclasses.dataclass, **options), strict=True
    )
    for own, library in pairs:
        count = len(inspect.signature(library).parameters) - (own.__name__ == "Made")
        first, second = values[:count], values[4 : 4 + count]
        a, b = own(*first), own(*second)
        c, d = library(*first), library(*second)
        assert (a == b) == (c == d)
        assert (a != b) == (c != d)
        assert a != (a,)
        assert repr(a) == repr(c)
        assert (own.__hash__ is None) == (library.__hash__ is None)
        if library.__hash__ is not None:
            assert (hash(a) == hash(b)) == (hash(c) == hash(d))
        assert own.__match_args__ == library.__match_args__


@pytest.mark.parametrize("options", OPTIONS)
def test_ours_take_what_those_of_the_library_take(options: dict) -> None:
    every, (*_, made) = classes_of(ours, **options), classes_of(dataclasses.dataclass, **options)
    for own, library in zip(every, classes_of(dataclasses.dataclass, **options), strict=True):
        kinds = [
            [(each.name, each.kind) for each in inspect.signature(cls).parameters.values()]
            for cls in (own, library)
        ]
        assert kinds[0] == kinds[1]
        assert own.__dataclass_params__.frozen == library.__dataclass_params__.frozen
        assert hasattr(own(), "__dict__") == hasattr(library(), "__dict__")
    for cls in (every[-1], made):
        first, second = cls(), cls([1], a=3)
        assert (first.b, first.c, first.a, first.shared) == ([], 0, 0, 7)
        assert (second.b, second.c, second.a) == ([1], 0, 3)
        assert cls().b is not first.b
        with pytest.raises(ValueError, match="negative"):
            cls(a=-1)
        with pytest.raises(TypeError):
            cls([], 1)


@pytest.mark.parametrize("slots", [False, True])
def test_what_is_frozen_stays_as_it_is(slots: bool) -> None:
    for cls in classes_of(ours, frozen=True, slots=slots):
        record = cls()
        # What is derived is of the library, which has no message for other names and slots.
        others = [] if cls.__bases__ != (object,) else ["another"]
        for name in (*(each.name for each in dataclasses.fields(cls)), *others):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, name, 1)
            with pytest.raises(dataclasses.FrozenInstanceError):
                delattr(record, name)
        assert record == cls()


def test_classes_of_the_same_fields_differ_and_records_that_hold_themselves_are_printed() -> None:
    (_, one, some, *_), (_, other, *_) = classes_of(ours), classes_of(ours)
    assert one(1) != other(1)
    record = some(1)
    record.a = record
    assert "..." in repr(record)


@ours(frozen=True, slots=True)
class Sent:
    """A record that goes to another process."""

    a: int
    b: tuple[int, ...] = ()
    shared: ClassVar[int] = 1


def test_what_was_sent_is_what_comes_back() -> None:
    assert pickle.loads(pickle.dumps(Sent(1, (2, 3)))) == Sent(1, (2, 3))
    assert copy.deepcopy(Sent(1, (2, 3))) == Sent(1, (2, 3))
    assert dataclasses.replace(Sent(1), a=2) == Sent(2)


def test_unknown_options_are_those_of_the_library() -> None:
    ordered = ours(order=True)(type("Ordered", (), {"__annotations__": {"a": int}}))
    assert ordered(1) < ordered(2)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_restored_record_has_exactly_its_fields(count: int) -> None:
    values = (1, (2,), 3)[:count]
    if count == 2:
        assert restore(Sent, *values) == Sent(1, (2,))
    else:
        with pytest.raises(ValueError, match="zip"):
            restore(Sent, *values)
