"""Our dataclasses are compared, hashed and printed as those of the standard library."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl.dataclass import dataclass as ours
from vanidl.dataclass import restore

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

    return [Nothing, One, Some, More, Own]


@pytest.mark.parametrize("options", OPTIONS)
@given(values=st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_ours_do_what_those_of_the_library_do(options: dict, values: list[int]) -> None:
    pairs = zip(
        classes_of(ours, **options), classes_of(dataclasses.dataclass, **options), strict=True
    )
    for own, library in pairs:
        count = len(dataclasses.fields(library))
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


def test_what_was_sent_is_what_comes_back() -> None:
    assert pickle.loads(pickle.dumps(Sent(1, (2, 3)))) == Sent(1, (2, 3))
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
