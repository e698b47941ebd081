"""The gate: masked, escaped, bounded, valid UTF-8; done twice it changes nothing."""

from __future__ import annotations

import random
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.canaries import COMMAND_WORDS, NAMES, URLS, Canaries
from vanidl.formatting.from_logs import (
    MOST_COMMAND_CHARACTERS,
    MOST_TEXT_CHARACTERS,
    clean_command,
    clean_path,
    clean_paths,
    clean_settings,
    clean_text,
    clean_texts,
    clean_words,
)
from vanidl.formatting.secret_hints import MASK

texts = st.text(st.characters(codec=None), max_size=60)


@pytest.mark.parametrize("kind", COMMAND_WORDS)
def test_a_secret_of_each_kind_is_masked_in_words_and_in_their_text(kind: str) -> None:
    canaries = Canaries(1)
    words = ["python", "t.py", *COMMAND_WORDS[kind](canaries.word), "--lr", "0.1"]
    of_words, joined = clean_words(words), clean_command(" ".join(words))
    for said in (" ".join(of_words), joined, clean_command(shlex.join(words))):
        assert canaries.found_in(said) == set()
        assert MASK in said
        assert said.startswith("python t.py ")
    assert of_words[-2:] == ("--lr", "0.1")
    assert joined.endswith("--lr 0.1")
    assert clean_words(of_words) == of_words
    assert clean_command(joined) == joined


@pytest.mark.parametrize("kind", [*NAMES, *URLS])
def test_a_secret_of_each_kind_is_masked_in_a_path(kind: str) -> None:
    canaries = Canaries(1)
    made = (NAMES | URLS)[kind](canaries.word)
    path = made if "://" in made else f"/data/{made}/x.npy"
    for said in (clean_path(path), clean_text(f"{path}: cannot be read"), clean_text(path)):
        assert canaries.found_in(said) == set()
        assert MASK in said
    if "://" not in made:
        assert clean_path(path).startswith("/data/")
        assert clean_path(path).endswith("/x.npy")
        assert clean_text(f"{path}: cannot be read").endswith("/x.npy: cannot be read")


@pytest.mark.parametrize(
    "text",
    [
        "aten::scaled_dot_product_attention", "/data/tokenizer.json", "token_embeddings",
        "backward pass: 12 ms", "/data/day=2026-11-25/part-0.parquet", "s3://bucket/key/a.npy",
        "max_tokens=512", "DataLoader 0 (Images, training)", "author=alice", "https://host:8080/x",
        "key padding mask", "autograd::engine::evaluate_function: PassBackward", "pad_token=<pad>",
        "/home/alice/.cache/huggingface/token", "--token-file=/run/secrets/hf", "tcp://host:2345",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert clean_text(text) == clean_path(text) == text


@given(texts)
def test_what_comes_out_is_printable_utf8_and_stays_so(text: str) -> None:
    for clean in (clean_text, clean_path, clean_command):
        said = clean(text)
        assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in said)
        said.encode("utf-8")
        assert clean(said) == said


@given(st.lists(texts, max_size=8))
def test_many_are_as_each(some: list[str]) -> None:
    assert clean_texts(some) == tuple(map(clean_text, some))


def test_lengths_are_bounded_and_a_cut_shows_no_half_secret() -> None:
    chance = random.Random(1)
    for _ in range(6):
        canaries = Canaries(chance.randrange(1000))
        at = MOST_COMMAND_CHARACTERS - chance.randrange(60)
        command = f"{'a ' * (at // 2)}--url=https://u:{canaries.word()}@h/x --password x"
        assert canaries.found_in(clean_command(command)) == set()
        assert canaries.found_in(clean_command(command.split(" "))) == set()
        assert len(clean_command(command)) <= MOST_COMMAND_CHARACTERS + 40
        at = MOST_TEXT_CHARACTERS - chance.randrange(80)
        assert canaries.found_in(clean_text(f"{'a ' * (at // 2)}token={canaries.word()}")) == set()
    assert len(clean_text("x" * 10**6)) <= MOST_TEXT_CHARACTERS
    assert len(clean_path("/x" * 10**5)) <= MOST_TEXT_CHARACTERS
    assert clean_text("x" * 5000) != clean_text("x" * 5001)


def test_different_paths_stay_different() -> None:
    paths = [
        "/d/token=a/x",
        "/d/token=b/x",
        "/d/token=a/y",
        "/d/\x01",
        "/d/\\x01",
        "/d/token=***/x",
    ]
    shown = clean_paths(paths)
    assert len(set(shown)) == len(paths)
    assert shown[0] == "/d/token=***/x"
    assert clean_paths(["/a", "/b"]) == ("/a", "/b")
    assert clean_paths(["/a", "/a\n"]) == ("/a", "/a\\n")


def test_settings_called_a_secret_are_one_whatever_they_look_like() -> None:
    said = clean_settings({"WANDB_API_KEY": "abc", "HF_TOKEN": "", "LD_PRELOAD": "/x.so"})
    assert said == {"WANDB_API_KEY": MASK, "HF_TOKEN": "", "LD_PRELOAD": "/x.so"}
