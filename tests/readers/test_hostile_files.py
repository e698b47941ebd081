"""Files by strangers: every reader answers, says what is wrong in one error, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.readers import HOSTILE_VALUES, READERS, Reader, count, hostile_at, replaced
from vanidl.cli import main
from vanidl.errors import InputError
from vanidl.readers.dftracer import reading as dftracer_run
from vanidl.readers.dftracer.trace_file import TraceFile

AGAIN = 1 if settings.default.derandomize else 3  # `make fuzz` looks for more, and others
JSON_READERS = [name for name, reader in READERS.items() if reader.is_json]


def tried(reader: Reader, content: bytes, folder: Path) -> object:
    """What the reader makes of the content; None where it refuses it."""
    path = folder / reader.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    try:
        return reader.read(path)
    except InputError as error:
        message = str(error)
    assert str(path) in message
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.mark.parametrize("name", READERS)
def test_the_whole_file_is_read(folder: Path, name: str) -> None:
    assert tried(READERS[name], READERS[name].content, folder) is not None


@pytest.mark.parametrize("name", READERS)
def test_a_cut_at_every_byte(folder: Path, name: str) -> None:
    content = READERS[name].content
    for end in range(0, len(content), max(1, len(content) // 200)):
        tried(READERS[name], content[:end], folder)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=20 * AGAIN)
@given(data=st.data())
def test_damage_anywhere(folder: Path, name: str, data: st.DataObject) -> None:
    content = bytearray(READERS[name].content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        put = data.draw(st.binary(max_size=12) | st.just(b"\xff" * 8) | st.just(bytes(64)))
        content[at : at + data.draw(st.integers(0, 12))] = put
    tried(READERS[name], bytes(content), folder)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=10 * AGAIN)
@given(content=st.binary(max_size=200))
def test_any_bytes(folder: Path, name: str, content: bytes) -> None:
    tried(READERS[name], content, folder)


@pytest.mark.parametrize("name", JSON_READERS)
def test_any_value_in_the_place_of_any_other(folder: Path, name: str) -> None:
    reader = READERS[name]
    value = json.loads(reader.content)
    for place in range(count(value)):
        for new in hostile_at(place):
            tried(reader, json.dumps(replaced(value, place, new)).encode(), folder)


def test_any_value_in_the_place_of_any_other_in_a_line(folder: Path) -> None:
    reader = READERS["dftracer"]
    lines = reader.content.splitlines()
    for i, line in enumerate(lines):
        value = json.loads(line)
        for place in range(1, count(value)):
            for new in hostile_at(place + i):
                changed = json.dumps(replaced(value, place, new)).encode()
                read = tried(reader, b"\n".join([*lines[:i], changed, *lines[i + 1 :]]), folder)
                assert isinstance(read, TraceFile)
                dftracer_run.combine_files([read])


@pytest.mark.parametrize("name", ["kineto", "run record"])
@settings(max_examples=15 * AGAIN)
@given(data=st.data())
def test_a_run_with_a_strange_file_in_it_is_summed_up(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    value = json.loads(READERS[name].content)
    place = data.draw(st.integers(1, count(value) - 1))
    new = data.draw(st.sampled_from(HOSTILE_VALUES))
    run = tmp_path_factory.mktemp("run")
    (run / READERS["dftracer"].name).write_bytes(READERS["dftracer"].content)
    (run / READERS[name].name).write_text(json.dumps(replaced(value, place, new)))
    assert main(["summary", str(run), "--json"]) in (0, 1)
    shutil.rmtree(run)
