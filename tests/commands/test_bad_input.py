"""Input that nobody hopes to have: one clear line and exit 1, or a report that states the loss."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import DATA
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from vanidl.cli import main
from vanidl.errors import SeveralJobsError
from vanidl.merge.jobs import choose_run, group_runs
from vanidl.model.trace import SpanKind

RUN = DATA / "torch_pfs_workers0"
LOG = next((RUN / "darshan").glob("*.darshan"))
TRACE = next((RUN / "tb").glob("*.pt.trace.json.gz"))


def fails(capsys, *arguments: str, status: int = 1) -> str:
    """The one line that the command prints on stderr."""
    assert main(list(arguments)) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("vanidl: ")
    assert "Traceback" not in err
    return err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize("command", ["summary", "report"])
def test_a_missing_path(capsys, folder, command):
    assert "missing.darshan" in fails(capsys, command, str(folder / "missing.darshan"))


@pytest.mark.parametrize("command", ["summary", "report"])
def test_an_empty_folder(capsys, folder, command):
    assert "expected" in fails(capsys, command, str(folder))


def test_a_folder_of_other_files(capsys, folder):
    (folder / "notes.txt").write_text("hello")
    assert "found 1 other file" in fails(capsys, "summary", str(folder))


def test_an_empty_log(capsys, folder):
    (folder / "x.darshan").touch()
    assert "x.darshan" in fails(capsys, "summary", str(folder))


def test_a_log_of_an_unknown_version(capsys, folder):
    content = bytearray(LOG.read_bytes())
    content[:8] = b"9.99\0\0\0\0"
    (folder / "x.darshan").write_bytes(content)
    assert "9.99" in fails(capsys, "summary", str(folder))


def test_a_text_file_named_darshan(capsys, folder):
    (folder / "x.darshan").write_text("not a log " * 100)
    assert "Darshan" in fails(capsys, "summary", str(folder / "x.darshan"))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "[1, 2]", "null", '{"traceEvents": 3}', '{"a": ' * 500, "\0\1\2", "{'a'}"],
)
def test_json_that_is_no_trace(capsys, folder, text):
    (folder / "x.pt.trace.json").write_text(text)
    assert "x.pt.trace.json" in fails(capsys, "summary", str(folder))


def test_a_cut_gzip_without_events(capsys, folder):
    (folder / "x.pt.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}')[:12])
    assert "x.pt.trace.json.gz" in fails(capsys, "summary", str(folder))


def test_an_unwritable_output(capsys, folder):
    target = folder / "no-such-folder" / "report.html"
    assert "no-such-folder" in fails(capsys, "report", str(LOG), "-o", str(target))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--layer", "H5D"], "POSIX"),
        (["--only", "nonsense"], "dataset"),
        (["--from", "900"], "window"),
        (["--from", "5", "--to", "2"], "window"),
        (["--kind", "nonsense"], "GLOB=KIND"),
        (["--kind", "*.h5=nonsense"], "dataset"),
        (["--wait-name", "("], "("),
    ],
)
def test_options_that_make_no_sense(capsys, options, word):
    assert word in fails(capsys, "summary", str(RUN), *options, status=2)


def test_a_job_that_is_not_there(capsys):
    assert "12345" in fails(capsys, "summary", str(RUN), "--job", "12345")


def test_steps_without_a_profile(capsys, folder):
    (folder / "events.out.tfevents.1.host.1.0").touch()
    assert "--steps" in fails(capsys, "summary", str(LOG), "--steps", str(folder))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.999])
def test_a_cut_log_gives_what_was_whole_and_says_what_is_missing(capsys, folder, share):
    content = LOG.read_bytes()
    (folder / LOG.name).write_bytes(content[: int(len(content) * share)])
    status = main(["summary", str(folder), "--json"])
    out, err = capsys.readouterr()
    if status == 1:
        assert len(err.splitlines()) == 1
        return
    result = json.loads(out)
    assert result["coverage"]["complete"] is False
    assert any(w["code"] == "damaged" for w in result["coverage"]["warnings"])


def test_a_bad_file_among_good_ones_is_named(capsys, folder):
    shutil.copy(LOG, folder)
    (folder / "bad.darshan").write_text("x" * 1000)
    (folder / "bad.pt.trace.json").write_text("[]")
    (folder / "left.darshan_partial").write_text("x")
    assert main(["summary", str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    messages = " ".join(w["message"] for w in result["coverage"]["warnings"])
    for name in ("bad.darshan", "bad.pt.trace.json", "left.darshan_partial"):
        assert name in messages
    assert result["coverage"]["complete"] is False


def test_a_log_that_darshan_did_not_finish_is_used_and_said(capsys, folder):
    name = LOG.name + "_partial"
    (folder / name).write_bytes(LOG.read_bytes())
    assert main(["summary", str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["coverage"]["complete"] is False
    assert any("did not finish" in w["message"] for w in result["coverage"]["warnings"])
    assert main(["summary", str(LOG), "--json"]) == 0
    assert result["io"]["ops"] == json.loads(capsys.readouterr().out)["io"]["ops"]


def test_a_log_without_its_table_of_contents_is_one_clear_line(capsys, folder):
    content = LOG.read_bytes()
    path = folder / (LOG.name + "_partial")
    path.write_bytes(bytes(1328) + content[1328:])
    assert "never written" in fails(capsys, "summary", str(path))
    assert "never written" in fails(capsys, "summary", str(folder))


@pytest.mark.parametrize("kept", [1_350, 1_400, 1_500])
def test_a_log_cut_in_its_job_record_is_one_clear_line(capsys, folder, kept):
    path = folder / "cut.darshan"
    path.write_bytes(LOG.read_bytes()[:kept])
    assert "expected a job record" in fails(capsys, "summary", str(path))


def test_two_unrelated_jobs_give_a_table(capsys, folder, shared):
    shutil.copy(LOG, folder)
    other = shared / "data/recorded/torch_hdf5_workers0/darshan"
    shutil.copy(next(other.glob("*.darshan")), folder)
    assert main(["summary", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    first, *table = err.strip().splitlines()
    assert "--job" in first
    rows = [line.split()[:2] for line in table]
    assert rows == [["choose", "job"], ["@1", "8342"], ["@2", "10322"]]
    assert main(["summary", str(folder), "--job", "@2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["id"] == "10322"
    assert main(["summary", str(folder), "--job", "8342", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["id"] == "8342"


def test_unrelated_pieces_are_several_groups():
    early = darshan_log([Io(0, 10)], pid=1, job_id="1", command="a")
    late = darshan_log([Io(0, 10)], pid=2, job_id="2", command="b")
    with pytest.raises(SeveralJobsError, match="2 unrelated groups"):
        choose_run(group_runs([early, late], []))


def test_a_profile_of_another_time_claims_no_overlap(capsys, folder):
    shutil.copy(LOG, folder)
    far = json.loads(gzip.decompress(TRACE.read_bytes()))
    far["baseTimeNanoseconds"] += 10**15
    (folder / TRACE.name).write_bytes(gzip.compress(json.dumps(far).encode()))
    assert main(["summary", str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["overlap"] is None
    assert "clock_unverified" in {w["code"] for w in result["coverage"]["warnings"]}
    assert main(["summary", str(folder), "--json", "--clock-offset", "-1000000"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["overlap"]["mean"]["in_wait_s"] == pytest.approx(10.868, rel=0.01)


def test_a_profile_without_steps_gives_no_overlap():
    from tests.makers.runs import analysed
    from vanidl.merge.jobs import Group
    from vanidl.merge.pipeline import assemble

    log = darshan_log([Io(0, 10, 0, 5)])
    seen = profile([Span(SpanKind.OP, 0, 5)], base_ns=JOB_START_NS)
    results = analysed(assemble(Group((log,), (seen,)), {}))
    assert results.overlap is None
    assert results.steps is None
    assert results.summary.bytes_read == 5


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_a_full_disk_is_one_line():
    done = subprocess.run(
        f"'{sys.executable}' -m vanidl summary '{RUN}' > /dev/full",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "vanidl: cannot write the output: No space left on device\n"


def test_a_device_is_written_to_and_not_replaced(capsys):
    assert main(["report", str(RUN), "-o", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


def test_a_folder_as_output_is_one_line(capsys, folder):
    assert "directory" in fails(capsys, "report", str(LOG), "-o", str(folder))


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(
        f"'{sys.executable}' -m vanidl summary '{RUN}' | head -1",
        shell=True, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.startswith("Training waited 15.9 s")


def test_wrong_usage_exits_2(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["nonsense"])
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_control_characters_in_names_never_reach_the_terminal():
    from vanidl.analyses.results import analyse
    from vanidl.merge.jobs import Group
    from vanidl.merge.pipeline import assemble
    from vanidl.report.summary import summary_text
    from vanidl.run import Run

    log = darshan_log([Io(0, 10, 0, 5)], command="\033[2Jrm", names={1: "/a\033]0;x\007\nb"})
    trace = assemble(Group((log,), ()), {})
    text = summary_text(Run(trace, analyse(trace)))
    assert all(c == "\n" or c.isprintable() for c in text)
    assert "\\x1b" in text
