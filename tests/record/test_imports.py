"""Hooks of modules are called once, however a program comes by its modules."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path

import pytest

from vanidl.record.injected.vanidl_steps.registry import after, wraps


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "a_module_to_watch"
    (tmp_path / f"{name}.py").write_text("ran = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_who_only_asks_for_a_module_does_not_use_up_its_hook(module: str) -> None:
    ran: list[bool] = []
    passed_by = after({module: [lambda found: ran.append(found.ran)]})
    for _ in range(2):
        assert importlib.util.find_spec(module) is not None
    importlib.reload(importlib.import_module(module))
    assert (ran, passed_by()) == ([True], [])
    del sys.modules[module]


def test_a_module_that_is_there_already_is_watched(module: str) -> None:
    importlib.import_module(module)
    ran: list[bool] = []
    passed_by = after({module: [lambda found: ran.append(found.ran)]})
    assert (ran, passed_by()) == ([True], [])
    del sys.modules[module]


def test_a_module_that_is_imported_past_the_hook_is_known(module: str) -> None:
    before = [*sys.meta_path]
    passed_by = after({module: [], "never_imported": []})
    sys.meta_path[:] = before
    importlib.import_module(module)
    assert passed_by() == [module]
    del sys.modules[module]


def functions_of(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_errors_pass_through_a_stand_in_without_its_frames() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    async def fails_later() -> None:
        raise ZeroDivisionError

    def stand_in() -> None:
        fails()

    async def later() -> None:
        await fails_later()

    with pytest.raises(ZeroDivisionError) as caught:
        wraps(fails)(stand_in)()
    assert functions_of(caught.value)[1:] == ["stand_in", "fails"]
    with pytest.raises(ZeroDivisionError) as caught:
        asyncio.run(wraps(fails_later)(later)())
    assert functions_of(caught.value)[-2:] == ["later", "fails_later"]
    assert "awaited" not in functions_of(caught.value)
    assert wraps(fails)(stand_in).__name__ == "fails"
