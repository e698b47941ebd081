"""Cores that a command may use: those of its host, within the quotas of its control groups."""

from __future__ import annotations

import pytest

from vanidl.parallel.threads import core_count
from vanidl.record import run_record


def put(folder, **files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"cpu__max": "max 100000\n"}, None),
        ({"cpu__max": "50000 100000\n"}, 0.5),
        ({"cpu__cfs_quota_us": "-1\n", "cpu__cfs_period_us": "100000\n"}, None),
        ({"cpu__cfs_quota_us": "25000\n", "cpu__cfs_period_us": "100000\n"}, 0.25),
        ({"cpu__max": "no number\n"}, None),
    ],
)
def test_a_quota_limits_the_cores_of_a_host(tmp_path, monkeypatch, files, cores):
    group = put(tmp_path / "group", **files)
    monkeypatch.setattr(run_record, "list_control_group_folders", lambda _: [group])
    assert run_record.count_cores() == (cores or core_count())


def test_the_narrowest_of_several_groups_counts(tmp_path, monkeypatch):
    groups = [put(tmp_path / n, cpu__max=f"{n}0000 100000") for n in ("4", "2")]
    monkeypatch.setattr(run_record, "list_control_group_folders", lambda _: groups)
    assert run_record.count_cores() == pytest.approx(0.2)
