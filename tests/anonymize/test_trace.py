"""--anonymize: no name goes out by any door, and no number changes."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import DATA
from tests.makers.records import Io, darshan_log
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.cli import main
from vanidl.model.selection import Selection

RUN = DATA / "torch_pfs_workers4"
OTHER = DATA / "torch_pfs_workers0"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def secrets(run: Path) -> set[str]:
    """Parts of paths, hosts and commands of a run that no output may hold."""
    from vanidl import open_run

    trace = open_run(run).trace
    words = {p.host for p in trace.processes} | {p.command for p in trace.processes}
    words |= {part for p in trace.files.path for part in p.split("/")[1:-1]}
    words |= {p.rsplit("/", 1)[-1] for p in trace.files.path}
    words |= {Path(log.path).name for log in trace.logs}
    public = {"proc", "sys", "dev", "etc", "data", "python3", "lib", "bin", "root", "run"}
    public |= {"<STDIN>", "<STDOUT>", "<STDERR>"}
    return {w for w in words if len(w) > 3} - public


def found_in(text: str, words: set[str]) -> set[str]:
    words = {w for w in words if w in text}  # most are not, and this is quick
    return {w for w in words if re.search(rf"(?<![\w-]){re.escape(w)}(?![\w-])", text)}


def without_text(value: Any) -> Any:
    """The value with every string replaced by its kind of nothing.

    A proof is a command: of masked words none can be run, so that there is none.
    """
    if isinstance(value, dict):
        return [without_text(v) for key, v in value.items() if key != "proof"]
    if isinstance(value, list):
        return [without_text(v) for v in value]
    return "" if isinstance(value, str) else value


@pytest.mark.parametrize("run", [RUN, DATA / "ddp_two_hosts"], ids=lambda p: p.name)
def test_every_number_stays(capsys, run: Path) -> None:
    plain = json.loads(said(capsys, "summary", str(run), "--json"))
    public = json.loads(said(capsys, "summary", str(run), "--json", "--anonymize"))
    assert without_text(public) == without_text(plain)
    assert [w["code"] for w in public["coverage"]["warnings"]] == [
        w["code"] for w in plain["coverage"]["warnings"]
    ]


def test_no_name_goes_out(capsys, tmp_path: Path) -> None:
    run = DATA / "ddp_two_hosts"
    words = secrets(run)
    assert len(words) > 20
    texts = {
        "text": said(capsys, "summary", str(run), "--anonymize", "--full"),
        "brief": said(capsys, "summary", str(run), "--anonymize"),
        "json": said(capsys, "summary", str(run), "--json", "--anonymize"),
    }
    said(capsys, "report", str(run), "--anonymize", "-o", str(tmp_path / "r.html"))
    texts["page"] = (tmp_path / "r.html").read_text()
    plain = said(capsys, "summary", str(run), "--json")
    assert found_in(plain, words), "the test would not notice a name"
    said(capsys, "export", str(run), "--anonymize", "--to", "json", "-o", str(tmp_path / "e.json"))
    texts["export"] = (tmp_path / "e.json").read_text()
    target = str(tmp_path / "t.json")
    said(capsys, "export", str(run), "--anonymize", "--to", "chrome", "-o", target)
    texts["timeline"] = (tmp_path / "t.json").read_text()
    script = re.compile(r"<script>.*?</script>", re.DOTALL)  # the libraries, not the data
    assert {door: found_in(script.sub("", t), words) for door, t in texts.items()} == {
        door: set() for door in texts
    }


def test_tables_hold_no_name_and_keep_endings_and_kinds(capsys, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="CSV files are written by pyarrow")
    tables, words = {}, secrets(OTHER)
    for folder, more in (("plain", []), ("public", ["--anonymize"])):
        target = tmp_path / folder
        said(capsys, "export", str(OTHER), "--to", "csv", "-o", str(target), *more)
        with (target / "files.csv").open() as file:
            tables[folder] = list(csv.DictReader(file))
        texts = "".join(p.read_text() for p in target.glob("*.csv"))
        assert bool(found_in(texts, words)) == (folder == "plain")
    plain, public = (sorted(t, key=_numbers) for t in tables.values())
    assert [_numbers(a) for a in public] == [_numbers(b) for b in plain]
    endings = [Path(row["file"]).suffix for row in plain]
    assert {e for e in endings if e in (".h5", ".py", ".pt", ".so")} <= {
        Path(row["file"]).suffix for row in public
    }
    assert sorted(r["file"].count("/") for r in plain) == sorted(
        r["file"].count("/") for r in public
    )


def _numbers(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(v for k, v in row.items() if k not in ("file", "mount"))


def test_a_comparison_uses_one_set_of_names(capsys, tmp_path: Path) -> None:
    page = tmp_path / "c.html"
    runs = (str(OTHER), str(RUN))
    public = said(capsys, "compare", *runs, "--json", "--anonymize", "-o", str(page))
    plain = said(capsys, "compare", *runs, "--json")
    words = secrets(RUN) | secrets(OTHER) | {RUN.name, OTHER.name}
    script = re.compile(r"<script>.*?</script>", re.DOTALL)
    assert not found_in(public + script.sub("", page.read_text()), words)
    assert json.loads(public)["metrics"].keys() == json.loads(plain)["metrics"].keys()
    assert without_text(json.loads(public)) == without_text(json.loads(plain))
    named = said(capsys, "compare", *runs, "--json", "--anonymize", "--label", "before")
    assert [s["name"] for s in json.loads(named)["sides"]] == ["before", "run B"]


def test_patterns_still_mean_the_real_names(capsys) -> None:
    path = [str(OTHER), "--json"]
    for more in (["--include", "*.h5"], ["--exclude", "*.h5", "--only", "dataset"]):
        plain = json.loads(said(capsys, "summary", *path, *more))
        public = json.loads(said(capsys, "summary", *path, *more, "--anonymize"))
        assert without_text(public) == without_text(plain)


def test_damage_is_said_without_names(capsys, tmp_path: Path) -> None:
    run = tmp_path / "of anna"
    shutil.copytree(RUN, run)
    log = next(run.glob("darshan/*.darshan"))
    log.write_bytes(log.read_bytes()[:-1])
    (run / "my notes.pt.trace.json").write_text("[]")
    text = said(capsys, "summary", str(run), "--json", "--anonymize")
    assert json.loads(text)["coverage"]["complete"] is False
    assert not found_in(text, {"anna", "notes", log.name, tmp_path.name, log.stem})


def test_the_same_name_is_the_same_everywhere() -> None:
    names = Pseudonyms()
    first = names.path("/home/anna/d/x.h5", "dataset")
    assert names.path("/home/anna/d/x.h5") == first
    folder = first.rsplit("/", 1)[0]
    assert names.folder("/home/anna/d") == folder
    assert names.path("/home/anna/d/y.tar.gz", "dataset").startswith(f"{folder}/dataset-2.tar.gz")
    host = names.host("node01.site.org")
    assert names.host("node01") == host
    spaced = names.path("/home/anna/other dir/z.h5", "dataset")
    command_line = "python /home/anna/train.py --name secret " + "x" * 100
    command = names.command(command_line)
    message = (
        f"/home/anna/d/x.h5: anna on node01 ran {command_line[:60]}; see "
        "/home/anna/other dir/z.h5, ~/q.txt and (runs/a/b.h5). I/O at 3 MiB/s"
    )  # fmt: skip
    said = names.text(message)
    assert not {"anna", "secret", "node01", "z.h5"} & set(re.split(r"[^\w.]", said))
    assert said.startswith(f"{first}: user-1 on {host} ran {command};")
    assert f"; see {spaced}, " in said
    assert said.endswith("I/O at 3 MiB/s")


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("/proc/1234/stat", "/proc/dir-1/file-1"),
        ("<STDERR>", "<STDERR>"),
        ("", ""),
        ("/", "/"),
        ("../x.pt", "../file-1.pt"),
        ("/a/report.schmidtberg", "/dir-1/file-1"),
        ("/a/t.pt.trace.json.gz", "/dir-1/file-1.pt.trace.json.gz"),
        ("/a/train-00001.tfrecord-00004", "/dir-1/file-tfrecord-1"),
    ],
)
def test_what_is_kept_of_a_path(path: str, public: str) -> None:
    names = Pseudonyms()
    assert (names.folder if path == "/" else names.path)(path) == public


def test_order_by_name_is_kept_though_names_are_not() -> None:
    from vanidl.analyses.results import analyse
    from vanidl.anonymize.trace import anonymous, anonymous_selection
    from vanidl.merge.jobs import Group
    from vanidl.merge.pipeline import assemble

    names = {i: f"/d/{'b' if i % 2 else 'a'}/part-{i}.h5" for i in range(1, 13)}
    rows = [Io(10 * i, 10 * i + 5, 0, 4096, file=i) for i in (3, 1, 12, 2, 10, 9, 4, 7)]
    trace = assemble(Group((darshan_log(rows, names=names),), ()), {})
    used = Pseudonyms()
    used.path("/d/b/part-9.h5", "dataset")  # as another run may have asked for it before
    public = anonymous(trace, used)
    orders = [analyse(t).dataset.order for t in (trace, public)]
    assert orders[0] == orders[1]
    assert orders[0].concordance not in (None, 0.5, 1.0)
    chosen = anonymous_selection(trace, Selection(include=("*/a/*",)))
    assert analyse(public, chosen).summary == analyse(trace, Selection(include=("*/a/*",))).summary
