"""Marks of cells in sentences come out again, whatever else the words are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from vanidl.formatting.from_logs import clean_text
from vanidl.wording.cells import cells_of, mark_cell, settle

texts = st.text(st.sampled_from("a \x01\x02\x03\ue000\ue001\ue002é/"), max_size=12).map(clean_text)
numbers = st.tuples(st.sampled_from(["", "mean/step", "0/input_wait/storage"]), texts)


@settings(max_examples=200)
@given(st.lists(st.tuples(texts, numbers), max_size=6), texts)
def test_a_sentence_says_what_it_was_put_together_of(parts, end):
    """Names from logs, whatever characters they are made of, are no marks."""
    marked = "".join(words + mark_cell(key, number) for words, (key, number) in parts) + end
    sentence = settle(marked)
    assert sentence == "".join(words + number for words, (_, number) in parts) + end
    said = [(cell.key, cell.text) for cell in cells_of(sentence)]
    assert said == [(key, number) for _, (key, number) in parts if key]
    for cell in cells_of(sentence):
        assert sentence[cell.at : cell.at + len(cell.text)] == cell.text
