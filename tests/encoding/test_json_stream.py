from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanidl.encoding import json_stream
from vanidl.encoding.budget import Budget, names_limit
from vanidl.encoding.json_stream import BeyondLimit, CutJson, Elements, Member, NotJson, TextBehind

AWKWARD = st.sampled_from(
    [
        '"',
        "\\",
        '\\"',
        "{",
        "}",
        "},{",
        "},\n  {",
        "[",
        "]",
        ",",
        '"traceEvents": [',
        "é\u2028𝄞",
        "NaN",
    ]
)
STRINGS = (
    st.lists(AWKWARD | st.text(max_size=4), max_size=4)
    .map("".join)
    .filter(lambda s: not any("\ud800" <= c <= "\udfff" for c in s))
)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | STRINGS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=12,
)
EVENTS = st.lists(st.dictionaries(STRINGS, VALUES, max_size=5) | VALUES, max_size=12)
OBJECTS = st.dictionaries(STRINGS, VALUES | EVENTS, max_size=5)
LAYOUTS = st.sampled_from([(None, (",", ":")), (None, None), (2, None), ("\t", (" ,", " : "))])


def collect(text: bytes, block_bytes: int, chunk_bytes: int) -> dict:
    """What the scanner delivers, put together as a parser of the whole text would."""
    chunks = (text[i : i + chunk_bytes] for i in range(0, len(text), chunk_bytes))
    result: dict = {}
    for item in json_stream.members(chunks, array_key="bare", block_bytes=block_bytes):
        if isinstance(item, Member):
            result[item.key] = item.value
        else:
            assert item.broken == 0
            result[item.key] = ([] if item.first else result[item.key]) + item.values
    return result


@settings(deadline=None)  # a busy machine is no failure
@given(OBJECTS, LAYOUTS, st.booleans(), st.integers(1, 60), st.integers(1, 40))
def test_equals_a_parser_of_the_whole_text(content, layout, escaped, block, chunk) -> None:
    indent, separators = layout
    text = json.dumps(content, indent=indent, separators=separators, ensure_ascii=escaped)
    assert collect(text.encode(), block, chunk) == json.loads(text)


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 64, 1000, 10**6])
@pytest.mark.parametrize("indent", [None, 2])
def test_block_borders_everywhere(block_bytes: int, indent: int | None) -> None:
    events = [{"name": 'a},{"b\\', "args": [{"x": i}, {"y": [{}]}]} for i in range(40)]
    content = {"a": 1, "traceEvents": events, "z": "end"}
    text = json.dumps(content, indent=indent).encode()
    assert collect(text, block_bytes, 11) == content


def test_repeated_keys_and_bare_array() -> None:
    text = b' { "k" : [1] , "k" : [ 2 , 3 ] , "h": 1, "h": {"b": "}"} }  \n'
    assert collect(text, 4, 3) == {"k": [2, 3], "h": {"b": "}"}}
    assert collect(b'\xef\xbb\xbf [{"a": 1}, {"a": 2}]', 4, 3) == {"bare": [{"a": 1}, {"a": 2}]}


@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"k": [1, 2], "h": 3}', b'{"h": {}, "k": []}'])
@pytest.mark.parametrize("behind", [b"x", b" {", b"]", b"\0" * 9])
@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_text_behind_the_end_is_told_from_a_cut(text: bytes, behind: bytes, chunk: int) -> None:
    """Everything before it was delivered; white space is no such text."""
    taken = []
    whole = collect(text + b" \n", 4, chunk)
    chunks = [(text + behind)[i : i + chunk] for i in range(0, len(text + behind), chunk)]
    with pytest.raises(TextBehind, match=f"^{len(behind.lstrip())} bytes of other text"):
        taken += json_stream.members(chunks, array_key="bare", block_bytes=4)
    assert {item.key for item in taken} == {*whole} or not taken


NESTED = st.recursive(
    st.dictionaries(STRINGS, VALUES | EVENTS, max_size=3),
    lambda inner: st.dictionaries(
        st.just("in"), inner | st.lists(inner, min_size=1, max_size=3), max_size=1
    ),
    max_leaves=4,
)


def flat(content: dict) -> list[tuple[str, object]]:
    """Members in their order, those of objects under `in` in the place of these."""
    found: list[tuple[str, object]] = []
    for key, value in content.items():
        objects = value if isinstance(value, list) else [value]
        if key == "in" and objects and all(isinstance(one, dict) for one in objects):
            found += [pair for one in objects for pair in flat(one)]
        else:
            found.append((key, value))
    return found


@given(NESTED, LAYOUTS, st.integers(1, 64), st.integers(1, 64))
def test_objects_that_are_gone_into(content, layout, block, chunk) -> None:
    indent, separators = layout
    text = json.dumps(content, indent=indent, separators=separators).encode()
    chunks = (text[i : i + chunk] for i in range(0, len(text), chunk))
    found: list[list] = []
    for item in json_stream.members(chunks, block_bytes=block, enter={"in"}):
        if isinstance(item, Member):
            found.append([item.key, item.value])
        elif item.first:
            found.append([item.key, list(item.values)])
        else:
            found[-1][1] += item.values
    assert [tuple(pair) for pair in found] == flat(content)


@pytest.mark.parametrize("depth", [4, 5])
def test_a_file_leads_no_deeper_than_the_limit(depth: int) -> None:
    text = b'{"in":' * depth + b'{"a":1}' + b"}" * depth
    (member,) = json_stream.members([text], enter={"in"})
    assert member == (Member("a", 1) if depth == 4 else Member("in", {"a": 1}))


@pytest.mark.parametrize(
    "text",
    [
        b'{"in":[{"a":1}',
        b'{"in":[{"a":1},',
        b'{"in":{"a":1}',
        b'{"in":[{"a":1} {"a":1}]}',
        b'{"in":[{"a":1},2]}',
    ],
)
def test_cut_objects_that_are_gone_into(text: bytes) -> None:
    found = []
    stream = json_stream.members([text], enter={"in"})

    def read() -> None:
        for item in stream:
            found.append(item)  # noqa: PERF402

    with pytest.raises(CutJson):
        read()
    assert found == [Member("a", 1)]


def test_a_block_is_small() -> None:
    text = json.dumps({"traceEvents": [{"ph": "X", "name": "x" * 50}] * 2000}, indent=1).encode()
    blocks = list(json_stream.members([text], block_bytes=4096))
    assert max(len(block.values) for block in blocks) < 4096 / 60
    assert sum(block.first for block in blocks) == 1


NOT_FINITE = b'{"traceEvents": [{"n": "inf, NaN", "a": NaN}, {"a": -Infinity}, {"a": [inf, -nan]}]}'


@pytest.mark.parametrize("block_bytes", [1, 50, 1000])
def test_not_a_number_is_none(block_bytes: int) -> None:
    expected = [{"n": "inf, NaN", "a": None}, {"a": None}, {"a": [None, None]}]
    assert collect(NOT_FINITE, block_bytes, 5) == {"traceEvents": expected}


def test_elements_that_are_no_json_are_counted() -> None:
    text = (
        b'{"t": [{"a": 1}, {"a" 2}, {"a": "\xff\xfe"}, {"a": "\\ud800"}, {"a": nan, 3}, {"b": 4}]}'
    )
    (block,) = json_stream.members([text])
    assert isinstance(block, Elements)
    assert block.broken == 2
    assert block.values == [{"a": 1}, {"a": "\ufffd\ufffd"}, {"a": "\ud800"}, {"b": 4}]


@settings(deadline=None)  # a busy machine is no failure
@given(EVENTS.map(lambda e: [{"v": v} for v in e]), LAYOUTS, st.data())
def test_a_cut_text_gives_the_elements_before_the_cut(events, layout, data) -> None:
    text = json.dumps({"t": events}, indent=layout[0], separators=layout[1]).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    got: list = []
    with pytest.raises((CutJson, NotJson)):  # noqa: PT012  the items before the error count
        for item in json_stream.members([text[:cut]], block_bytes=20):
            got += item.values
    assert got == events[: whole_before(text.decode(), cut)]


def whole_before(text: str, cut: int) -> int:
    """Number of elements of the array that end before a place of the text (ASCII)."""
    place, count = text.index("[") + 1, 0
    while True:
        place += len(text[place:]) - len(text[place:].lstrip(" ,\t\n"))
        if text[place] == "]":
            return count
        _, place = json.JSONDecoder().raw_decode(text, place)
        if place > cut:
            return count
        count += 1


@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize(("count", "fits"), [(40, True), (41, False)])
def test_elements_use_up_the_budget_of_the_file(block_bytes, count, fits) -> None:
    text = json.dumps({"events": [{"a": i} for i in range(count)]}).encode()
    found = json_stream.members([text], block_bytes=block_bytes, budget=Budget(0, 0, 40, 0))
    if fits:
        assert sum(len(block.values) for block in found if isinstance(block, Elements)) == 40
    else:
        with pytest.raises(CutJson, match="more than 40 elements"):
            list(found)


@pytest.mark.parametrize("text", [b"", b"  \n", b"hello", b"17", b'"x"', b"\x00\x01"])
def test_foreign_text(text: bytes) -> None:
    with pytest.raises(NotJson):
        list(json_stream.members([text]))


def test_a_lost_quotation_mark_does_not_pull_in_the_file() -> None:
    budget = replace(Budget.of_file(0), item_bytes=10_000)
    chunks = iter([b'{"t": [{"a": "x}, '] + [b'{"a": 1}, ' * 100] * 10_000)
    with pytest.raises(CutJson):
        list(json_stream.members(chunks, budget=budget))
    assert len(list(chunks)) > 9_000


@pytest.mark.parametrize(
    "layout", ['{"k": "%s", "t": [1]}', '{"t": [1, {"k": "%s"}]}', '{"%s": 1}']
)
def test_an_item_is_read_up_to_its_limit_and_one_that_is_longer_is_not_called_cut(
    layout: str,
) -> None:

    def read(text: str) -> dict[str, object]:
        budget = replace(Budget.of_file(0), item_bytes=10_000)
        found = json_stream.members([text.encode()], block_bytes=1000, budget=budget)
        return {item.key: item for item in found}

    fits, longer = (layout % ("x" * n) for n in (9_900, 10_100))
    assert read(fits).keys() == json.loads(fits).keys()
    with pytest.raises(BeyondLimit) as found:
        read(longer)
    assert found.value.loss.startswith("an element or a member of it is longer than 9.77 KiB, ")
    assert names_limit(found.value.loss)
    with pytest.raises(CutJson, match="does not end") as cut:  # which the text does not hold
        read(fits[:-100])
    assert not isinstance(cut.value, BeyondLimit)


def test_items_may_be_longer_in_a_longer_file_and_where_the_user_says_so(monkeypatch) -> None:
    mib = 1 << 20
    assert Budget.of_file(0).item_bytes == 8 * mib
    assert Budget.of_file(37 * mib).item_bytes == Budget.of_file(37 << 30).item_bytes == 64 * mib
    monkeypatch.setenv("VANIDL_MAX_MEMORY", str(6 << 30))
    assert Budget.of_file(0).item_bytes == 1 << 30


@pytest.mark.parametrize("more", [0, 1])
def test_values_of_one_item_are_bounded_by_its_memory(monkeypatch, more: int) -> None:
    monkeypatch.setattr(json_stream, "MAX_VALUES", 1)
    monkeypatch.setattr(json_stream, "_MOST_LENIENT_BYTES", 0)
    budget = replace(Budget.of_file(0), held_bytes=2 * json_stream.VALUE_BYTES * 1002)
    text = json.dumps({"k": list(range(1000 + more))})  # an object, a list and its elements
    (elements,) = json_stream.members([f'{{"t":[{text}]}}'.encode()], budget=budget)
    assert elements.values == ([] if more else [json.loads(text)])
    assert elements.broken == more
