"""Recipes for Spack and conda-forge ask for what the package itself asks for."""

from __future__ import annotations

import ast
import re

import pytest

import vanidl
from tests import ROOT

yaml = pytest.importorskip("yaml", reason="recipes are YAML")
CONDA = ROOT / "contrib" / "conda" / "recipe.yaml"
SPACK = ROOT / "contrib" / "spack" / "package.py"
NAMES = {"darshan": "pydarshan", "isal": "python-isal"}
"""What conda-forge calls a distribution of PyPI, where the names differ."""


def requirements(table: str) -> dict[str, str]:
    """Name -> bounds of a list of requirements in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(rf"^{table} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    rows = re.findall(r'"([\w-]+)([^;"]*)', found.group(1))
    return dict(rows)


def test_every_dependency_ends_before_a_major_version_that_may_break() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    extras = text[text.index("[project.optional-dependencies]") : text.index("[project.scripts]")]
    tables = ["dependencies", *re.findall(r"^(\w+) = \[", extras, re.MULTILINE)]
    assert len(tables) > 15
    assert [
        (table, name)
        for table in tables
        for name, bounds in requirements(table).items()
        if "<" not in bounds and name != "vanidl-io"
    ] == []


def test_all_names_every_extra_that_vanidl_itself_can_use() -> None:
    of_others = {"loaders", "storage", "dlio", "decoders", "dali", "peers"}
    text = (ROOT / "pyproject.toml").read_text()
    extras = text[text.index("[project.optional-dependencies]") : text.index("[dependency-groups]")]
    tables = set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))
    assert of_others < tables
    named = re.search(r'^all = \["vanidl-io\[(.*)\]"\]$', extras, re.MULTILINE)
    assert named is not None
    assert set(named[1].split(",")) == tables - of_others - {"all"}


def spack_range(bounds: str) -> str:
    """`>=1.26,<3` as Spack writes it: 1.26:2."""
    low, _, high = bounds.removeprefix(">=").partition(",<")
    return f"{low.removesuffix('.0')}:{int(high) - 1 if high else ''}"


def calls(name: str) -> list[ast.Call]:
    nodes = ast.walk(ast.parse(SPACK.read_text()))
    named = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return [node for node in named if node.func.id == name]


def test_conda_asks_for_the_same_and_has_the_same_version() -> None:
    recipe = yaml.safe_load(CONDA.read_text())
    asked = dict(line.split(" ", 1) for line in recipe["requirements"]["run"])
    del asked["python"]
    assert asked == {NAMES.get(n, n): bounds for n, bounds in requirements("dependencies").items()}
    assert recipe["context"]["version"] == vanidl.__version__
    extras = {}
    for extra in ("parquet", "notebook", "tensorboard", "formats", "darshan"):
        extras |= {NAMES.get(n, n): bounds for n, bounds in requirements(extra).items()}
    for line in recipe["requirements"]["run_constraints"]:
        name, bounds = line.split(" ", 1)
        assert extras[name] == bounds


def test_spack_asks_for_the_same_and_has_the_same_version() -> None:
    always = [call.args[0].value for call in calls("depends_on") if len(call.keywords) == 1]
    wanted = [f"py-{n}@{spack_range(b)}" for n, b in requirements("dependencies").items()]
    assert [spec for spec in always if "setuptools" not in spec][1:] == wanted
    assert always[0] == "python@3.10:"
    assert calls("version")[0].args[0].value == vanidl.__version__


def test_what_spack_s_variants_ask_for_is_an_extra() -> None:
    for call in calls("depends_on"):
        when = next((k.value.value for k in call.keywords if k.arg == "when"), None)
        if when is not None:
            name, _, bounds = call.args[0].value.removeprefix("py-").partition("@")
            assert spack_range(requirements(when[1:])[name]) == bounds


def test_conda_s_builder_reads_its_recipe() -> None:
    builder = pytest.importorskip("rattler_build", reason="needs py-rattler-build")
    variants = builder.VariantConfig({"python_min": ["3.10"]})
    (rendered,) = builder.Stage0Recipe.from_file(str(CONDA)).render(variants)
    assert rendered.recipe.package.name == "vanidl-io"
