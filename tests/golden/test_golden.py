"""The numbers of every log at hand are those that were agreed; `make golden` agrees to new ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.test_every_log import RUNS
from tests.golden import (
    assert_same,
    changed_keys,
    digests,
    flat,
    golden,
    name_of,
    own_logs,
    shared_logs,
    summary,
)


@pytest.mark.parametrize("name", own_logs())
def test_numbers_of_recorded_runs_are_the_golden_ones(name):
    assert_same(golden(name), summary(own_logs()[name]))


def test_logs_beside_the_repository_have_digests(shared):
    """The numbers themselves are looked at where each of these logs is read anyway."""
    assert golden("shared").keys() == shared_logs().keys()
    assert {name_of(path) for path in RUNS if shared in path.parents} == shared_logs().keys()


def test_every_golden_run_is_there_and_every_key_of_it_has_a_digest():
    assert {path.name.removesuffix(".json.gz") for path in Path(__file__).parent.glob("*.gz")} == {
        *own_logs(),
        "shared",
    }
    result = {"a": {"b": {"c": 1.5}, "d": [1, {"e": None}]}, "f": "text"}
    assert digests(result).keys() == {"a.b", "a.d", "f"}
    for before, after, key in (("1.5", "1.6", "a.b"), ("null", "0", "a.d"), ("text", "word", "f")):
        other = json.loads(json.dumps(result).replace(before, after))
        assert changed_keys(digests(result), digests(other)) == [key]
    assert dict(flat(result)) == {"a.b.c": 1.5, "a.d[0]": 1, "a.d[1].e": None, "f": "text"}
    assert changed_keys(result, {"a": {"b": {"c": 1.5}}, "f": "text"}) == ["a.d[0]", "a.d[1].e"]


def test_a_summary_names_no_place_of_this_machine(tmp_path):
    """Other paths, another zone, the same answer."""
    name, path = next(iter(own_logs().items()))
    (tmp_path / name).symlink_to(path)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TZ", "Asia/Kathmandu")
        elsewhere = summary(tmp_path / name)
    assert changed_keys(summary(path), elsewhere) == []
    assert str(path.parent) not in json.dumps(elsewhere)
