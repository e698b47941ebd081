"""One verdict a file: whole, partial, cut, damaged, unknown version, foreign, empty."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests import DATA
from tests.makers.darshan_logs import Log, log_bytes, random_records
from tests.makers.xplane_files import Event as ProfileEvent
from tests.makers.xplane_files import xspace
from vanidl.check import check as check_text
from vanidl.check.check import check
from vanidl.cli import main
from vanidl.readers.verdict import STATES, Verdict

EVENTS = next((DATA / "torch_pfs_workers0/tb").glob("events.out.tfevents.*")).read_bytes()
TRACE = next((DATA / "torch_pfs_workers0/tb").glob("*.pt.trace.json.gz"))

BATCHES = [ProfileEvent("Profiled batch", 10 * i, 10 * i + 9, step=i) for i in range(5)]


def log(**more) -> bytes:
    return log_bytes(Log(names={2**63: b"/data/a"}, dxt={"DXT_POSIX": random_records(1)}, **more))


def damaged() -> bytes:
    content = bytearray(log())
    content[-40:-20] = bytes(20)
    return bytes(content)


EVENT = (
    '{"id":%d,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":%d,"dur":5,"ph":"X","args":{%s}}\n'
)
ARGS = '"fname":"/data/a","size":5'
PFW = ("[\n" + "".join(EVENT % (i, 10**15 + 10 * i, ARGS) for i in range(9))).encode()

MADE = {
    "whole.darshan": (log(), "whole"),
    "old.darshan": (log(version="3.10", byte_order=">"), "whole"),
    "partial.darshan": (log(partial=("POSIX",)), "partial"),
    "cut.darshan": (log()[:-200], "cut"),
    "head.darshan": (log()[:100], "cut"),
    "damaged.darshan": (damaged(), "damaged"),
    "future.darshan": (b"9.99\0\0\0\0" + log()[8:], "unknown version"),
    "text.darshan": (b"no log " * 50, "foreign"),
    "empty.darshan": (b"", "empty"),
    "left.darshan_partial": (log(), "partial"),
    "cut.pt.trace.json.gz": (TRACE.read_bytes()[:20_000], "cut"),
    "whole.pt.trace.json.gz": (TRACE.read_bytes(), "whole"),
    "other.pt.trace.json": (b"[1, 2]", "foreign"),
    "empty.pt.trace.json": (b"", "empty"),
    "events.out.tfevents.1.host.1.0": (EVENTS, "whole"),
    "events.out.tfevents.2.host.1.0": (EVENTS[:-7], "damaged"),
    "events.out.tfevents.3.host.1.0": (b"no events " * 9, "foreign"),
    "events.out.tfevents.4.host.1.0": (b"", "empty"),
    "whole.xplane.pb": (xspace(BATCHES), "whole"),
    "head.xplane.pb": (xspace(BATCHES)[:60], "cut"),
    "text.xplane.pb": (b"no profile " * 9, "foreign"),
    "x.input_pipeline.pb": (b"x", "not checked"),
    "whole.pfw": (PFW, "whole"),
    "bare.pfw": (PFW.replace(ARGS.encode(), b""), "partial"),
    "cut.pfw": (PFW[:-20], "cut"),
    "other.pfw": (b"no trace\n" * 9, "foreign"),
    "notes.txt": (b"hello", "foreign"),
    "nothing.txt": (b"", "empty"),
}


@pytest.mark.parametrize("name", MADE)
def test_state_of_a_file(tmp_path, name):
    content, state = MADE[name]
    path = tmp_path / name
    path.write_bytes(content)
    (verdict,) = check([path])
    assert (verdict.path, verdict.state) == (str(path), state)
    assert verdict.state in STATES
    assert bool(verdict.missing) == (state not in ("whole", "not checked"))
    readable = {"whole", "partial", "cut", "damaged"} - ({"cut"} if "head" in name else set())
    assert verdict.read == (state in readable)


def test_version_and_operations_are_told(tmp_path):
    (tmp_path / "old.darshan").write_bytes(MADE["old.darshan"][0])
    (tmp_path / "future.darshan").write_bytes(MADE["future.darshan"][0])
    future, old = check([tmp_path])
    assert (future.version, old.version) == ("9.99", "3.10")
    rows = sum(len(r.reads) + len(r.writes) for stream in random_records(1) for r in stream)
    assert [(c.layer, c.traced_ops) for c in old.layers if c.traced_ops] == [("POSIX", rows)]


def test_a_missing_path_and_an_empty_folder_are_verdicts(tmp_path):
    (tmp_path / "folder").mkdir()
    verdicts = check([tmp_path / "missing", tmp_path / "folder"])
    assert [v.state for v in verdicts] == ["unreadable", "foreign"]
    assert all(v.missing and not v.read for v in verdicts)


def test_real_logs(shared):
    states = {Path(v.path).name: v for v in check([shared / "data/public/darshan_logs"])}
    assert states["imbalanced-io.darshan"].state == "partial"
    assert states["partial_data_stdio.darshan"].state == "partial"
    assert states["nonmpi_dxt_anonymized.darshan"].state == "whole"
    assert len(states) > 50
    assert {v.state for v in states.values()} == {"whole", "partial"}
    cosmic = shared / "data/public/vanidl_cosmictagger/cosmictagger_8ranks.darshan"
    (verdict,) = check([cosmic])
    posix = next(c for c in verdict.layers if c.layer == "POSIX")
    assert (posix.counted_ops, posix.traced_fraction) == (313_872, 1.0)


def test_a_full_buffer_is_said_in_figures(shared):
    folder = shared / "data/recorded/tf_tfrecord_default_limits/darshan"
    (verdict,) = check([folder])
    posix = next(c for c in verdict.layers if c.layer == "POSIX")
    assert (posix.traced_ops, posix.counted_ops) == (2_353, 2_448)
    assert any("2,353 of 2,448" in sentence for sentence in verdict.missing)


def test_the_command_prints_a_table_and_json(tmp_path, capsys):
    for name, (content, _) in MADE.items():
        (tmp_path / name).write_bytes(content)
    assert main(["check", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "26 files: 6 whole, 3 partial, 5 cut" in text
    assert main(["check", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "vanidl/check/1"
    assert sum(document["states"].values()) == document["files"] == 26
    cut = next(v for v in document["checked"] if v["path"].endswith("/cut.darshan"))
    assert "bytes" in " ".join(cut["missing"])
    empty = next(v for v in document["checked"] if v["path"].endswith("/empty.darshan"))
    assert empty["version"] is None


def test_of_many_files_the_first_of_each_state_are_listed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check_text, "MOST_A_STATE", 3)
    for i in range(40):
        (tmp_path / f"{i:02}.darshan").touch()
    (tmp_path / "x.pfw").write_bytes(PFW)
    assert main(["check", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.count(".darshan\n") == 3
    assert "and 37 empty more: --all lists them" in text
    assert "41 files: 1 whole, 40 empty" in text
    for more, listed in (([], 4), (["--all"], 41)):
        assert main(["check", str(tmp_path), "--json", *more]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["states"] == {"whole": 1, "empty": 40}
        assert len(document["checked"]) == listed
        assert listed + sum(document["left_out"].values()) == document["files"] == 41


def test_of_many_losses_the_first_are_listed():
    verdict = Verdict("x", "log", "cut", read=True, missing=tuple(f"loss {i}" for i in range(500)))
    assert len(check_text.check_object([verdict])["checked"][0]["missing"]) == 21
    assert len(check_text.check_object([verdict], every=True)["checked"][0]["missing"]) == 500


def test_exit_status_1_only_where_nothing_can_be_read(tmp_path, capsys):
    (tmp_path / "x.darshan").write_bytes(b"")
    assert main(["check", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "empty" in out
    assert len(err.strip().splitlines()) == 1
    (tmp_path / "y.pt.trace.json.gz").write_bytes(gzip.compress(TRACE.read_bytes()[:10]))
    assert main(["check", str(tmp_path), str(TRACE)]) == 0
