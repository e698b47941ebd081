"""What stays of a name and of a text, and that both take time by their length."""

from __future__ import annotations

import re
from pathlib import Path
from signal import Signals

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import DATA
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.run import open_run

LONG = 100_000


def test_a_file_on_the_root_makes_no_other_path_public() -> None:
    names = Pseudonyms()
    names.folder("/")
    names.path("/notes.txt")
    said = names.text("/home/alice/secretproject/model.py(12): forward")
    assert not re.search("alice|secretproject", said)
    assert said.endswith(".py(12): forward")


def test_a_known_path_ends_where_a_component_does() -> None:
    names = Pseudonyms()
    known = names.folder("/scratch/projX")
    said = names.text("/scratch/projX-secret/a.h5 and /scratch/projX/b.h5, /scratch/projX.")
    first, second, third = re.findall(r"/[\w/.-]*[\w]", said)
    assert not first.startswith(f"{known}/")
    assert second.startswith(f"{known}/file-")
    assert third == known
    assert "secret" not in said


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("x.bob.amd", "file-1"), ("x.bob.h5", "file-1.h5"), ("x.H5", "file-1.h5"),
        ("events.out.tfevents.17.host.1.0", "file-1"), ("a.tar.gz", "file-1.tar.gz"),
    ],
)  # fmt: skip
def test_only_endings_of_formats_stay(name: str, public: str) -> None:
    assert Pseudonyms().path(name) == public


@pytest.mark.parametrize(
    "text",
    [
        "!" * LONG, "/" * LONG, "/!" * (LONG // 2), "/a" * (LONG // 2), "a b/" * (LONG // 4),
        "q7" * (LONG // 2), "1-" * (LONG // 2), "python tra" * (LONG // 10), "é" * LONG,
        "_id1_.darshan" * (LONG // 13), "\ue0001\ue001" * 1000, "x." * (LONG // 2),
    ],
    ids=range(12),
)  # fmt: skip
def test_long_texts_and_deep_paths_take_their_length(text: str) -> None:
    names = Pseudonyms()
    names.command("python train.py " + "--key q " * 20)
    names.path(f"/a/b c/{text[:2000]}")
    names.host("node-1.site.org")
    names.text(text)
    assert names.path(text) == names.path(text)
    assert names.folder(f"/home/{text}").count("/") == text.count("/") + 2


@given(st.text(st.sampled_from("ab/. -_:\ue000\ue0010é\n"), max_size=60))
def test_any_text_has_a_public_form(text: str) -> None:
    names = Pseudonyms()
    names.path("/a/b b.h5")
    said = names.text(text)
    assert not re.search("é|bb", said.replace("-bb", ""))
    assert names.text(text) == said


@pytest.mark.parametrize("run", ["ddp_two_hosts", "torch_pfs_workers4"])
def test_words_of_our_own_stay(run: str) -> None:
    for warning in open_run(DATA / run).trace.warnings:
        plain = re.sub(r"\S*[/.]\S*|\([^)]*\)", "", warning.message)
        assert Pseudonyms().text(plain) == plain


@pytest.mark.parametrize("signal", Signals, ids=lambda each: each.name)
def test_the_signal_that_ended_a_program_stays(signal: Signals) -> None:
    said = f"the program was ended by {signal.name}"
    assert Pseudonyms().text(said) == said


def test_numbers_of_a_text_stay_and_none_is_added() -> None:
    text = "zzqx 3 of 1,920 (4.5 %) at -1.2e-05 s, zzqy 2026-11-22T08:30:00Z 128x64 qqq"
    said = Pseudonyms().text(text)
    assert re.findall(r"\d+", said) == re.findall(r"\d+", text)
    assert not re.search("zzq|qqq", said)


@pytest.mark.parametrize(
    ("given_name", "stays"),
    [
        ("NVIDIA A100-SXM4-80GB", True), ("/device:GPU:0", True), ("AMD Instinct MI250X", True),
        ("box of alicia", False), ("zq9x7", False),
    ],
)  # fmt: skip
def test_products_are_no_names(given_name: str, stays: bool) -> None:
    assert (Pseudonyms().device(given_name) == given_name) == stays


def test_a_file_system_is_a_known_one_or_a_number() -> None:
    names = Pseudonyms()
    assert [names.file_system(k) for k in ("lustre", "fuse.ceph", "", "alices")] == [
        "lustre", "fuse.ceph", "", "file-system-1",
    ]  # fmt: skip


def test_hostile_runs_have_public_summaries(shared: Path) -> None:
    from vanidl.report.summary import summary_text

    for name in ("anon_root_mount", "anon_marker", "anon_slow", "deep_path.darshan"):
        text = summary_text(open_run(shared / "data/hostile" / name, names=Pseudonyms()))
        assert "secretproject" not in text
