"""Hooks of modules are called once, however a program comes by its modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from vanidl.record.injected.vanidl_steps.imports import after


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
