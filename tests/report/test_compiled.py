"""Compiled templates: kept where Python keeps bytecode, and never needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from vanidl.report.page import CompiledTemplates


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Python keeps bytecode in this test."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path


def _rendered(text: str) -> str:
    environment = Environment(
        loader=DictLoader({"page": text}), autoescape=True, bytecode_cache=CompiledTemplates()
    )
    return environment.get_template("page").render(name="<run>")


def _kept(prefix: Path) -> list[Path]:
    return [path for path in prefix.rglob("*") if path.is_file()]


def test_a_template_is_compiled_once(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second environment reads what the first one kept."""
    Path(CompiledTemplates().directory).mkdir(parents=True)
    assert _rendered("of {{ name }}") == "of &lt;run&gt;"
    assert len(_kept(prefix)) == 1
    monkeypatch.setattr(Environment, "_compile", None)  # a second compilation would fail
    assert _rendered("of {{ name }}") == "of &lt;run&gt;"


def test_a_changed_template_is_compiled_again(prefix: Path) -> None:
    """What is kept belongs to one text."""
    Path(CompiledTemplates().directory).mkdir(parents=True)
    _rendered("of {{ name }}")
    assert _rendered("by {{ name }}") == "by &lt;run&gt;"


@pytest.mark.parametrize("kept", [b"", b"damaged"])
def test_damaged_bytecode_is_compiled_again(prefix: Path, kept: bytes) -> None:
    """A file that is no bytecode is replaced."""
    Path(CompiledTemplates().directory).mkdir(parents=True)
    _rendered("of {{ name }}")
    (path,) = _kept(prefix)
    path.write_bytes(kept)
    assert _rendered("of {{ name }}") == "of &lt;run&gt;"
    assert path.stat().st_size > len(kept)


def test_a_folder_that_cannot_be_written_is_no_error(prefix: Path) -> None:
    """As where a package is installed for all users."""
    assert _rendered("of {{ name }}") == "of &lt;run&gt;"  # the folder is not there
    assert not _kept(prefix)


def test_nothing_is_kept_where_python_keeps_no_bytecode(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONDONTWRITEBYTECODE holds for templates, too."""
    Path(CompiledTemplates().directory).mkdir(parents=True)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    _rendered("of {{ name }}")
    assert not _kept(prefix)
