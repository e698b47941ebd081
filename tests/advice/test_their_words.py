"""Remedies in the words of the framework that a loop is written in."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from vanidl.advice import their_words as words

FRAMEWORKS = (
    words.LIGHTNING, words.TRAINER, words.FASTAI, words.KERAS, words.GRAIN, words.JAX,
)  # fmt: skip
CHANGES = (words.AHEAD, words.KEEP)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_code_is_that_of_the_framework(framework: str) -> None:
    for change in CHANGES:
        code, _ = words.code(framework, change, 3)
        ast.parse(code.replace("(self, ...)", "(self)"))
        assert "{workers}" not in code
        assert "tf.data" not in code
        assert framework not in words.WITHOUT_TORCH or "DataLoader(" not in code
    assert all(words.code(framework, words.AHEAD, 3))
    assert words.title(framework, words.AHEAD)


def run(names: list[str], imported: list[str]) -> SimpleNamespace:
    spans = SimpleNamespace(names=names)
    return SimpleNamespace(spans=spans, profiles=[SimpleNamespace(frameworks=tuple(imported))])


TORCH_LOADER = "DataLoader 0 (Rows, training)"


@pytest.mark.parametrize(
    ("names", "imported", "framework"),
    [
        ([TORCH_LOADER], ["torch"], ""),
        ([TORCH_LOADER], ["torch", "lightning"], words.LIGHTNING),
        ([TORCH_LOADER], ["torch", "transformers"], words.TRAINER),
        ([TORCH_LOADER], ["torch", "fastai"], words.FASTAI),
        (["JAXEpochIterator 0 (PyDatasetAdapter, training)"], ["keras", "jax"], words.KERAS),
        (["MapDataset 0 (SourceMapDataset, training)"], ["jax", "grain"], words.GRAIN),
        (["Batches 0 (training)"], ["jax"], words.JAX),
        ([TORCH_LOADER], ["torch", "jax"], ""),  # a DataLoader that gives to JAX
        (["_BatchDataset 0 (training)"], ["tensorflow"], ""),
        (["Batches 0 (training)"], [], ""),
    ],
)
def test_the_framework_of_a_loop(names: list[str], imported: list[str], framework: str) -> None:
    assert words.written_in(run(names, imported)) == framework  # type: ignore[arg-type]


def test_what_the_table_does_not_have_is_nothing() -> None:
    assert words.code("", words.AHEAD, 2) == ("", "")
    assert words.title("", words.AHEAD) == ""
