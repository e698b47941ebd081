"""Training on object storage with workers, recorded as a user does it: the answer names it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.makers.object_server import object_server
from vanidl.cli import main
from vanidl.model.trace import OBJECT
from vanidl.record import record
from vanidl.run import open_run

pytest.importorskip("torch")

SAMPLES = 24
SIZE = 20_000
PROGRAM = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
import light_torch, time, urllib3, torch
from torch.utils.data import DataLoader, Dataset
URL = sys.argv[1] + "/train/samples/slow{{:03}}.bin"
SIGNED = "?X-Amz-Credential=CANARY%2F2026%2Fus%2Fs3%2Faws4_request&X-Amz-Signature=CANARY"
class Objects(Dataset):
    pool = None
    def __len__(self):
        return {SAMPLES}
    def __getitem__(self, k):
        self.pool = self.pool or urllib3.PoolManager()
        name, part = URL.format(k) + SIGNED, {{"Range": "bytes=0-{SIZE - 1}"}}
        self.pool.request("HEAD", name)
        return torch.frombuffer(bytearray(self.pool.request("GET", name, headers=part).data),
                                dtype=torch.uint8)
loader = DataLoader(Objects(), batch_size=4, num_workers=2)
model = torch.nn.Linear({SIZE}, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    model(batch.float()).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, int]]]:
    """(RUN, method and bytes of each request as the server logged it)."""
    folder = tmp_path_factory.mktemp("objects") / "RUN"
    program = folder.parent / "train.py"
    program.write_text(PROGRAM)
    with object_server() as (url, store):
        done = record([sys.executable, str(program), url], folder, tracer="none")
    assert done.exit_status == 0
    return folder, [(row.method, row.sent) for row in store.log]


def test_the_report_agrees_with_the_servers_log(trained: tuple[Path, list]) -> None:
    folder, log = trained
    run = open_run(folder)
    assert Counter(log) == {("GET", SIZE): SAMPLES, ("HEAD", 0): SAMPLES}
    assert run.summary.layer == OBJECT
    assert (run.summary.reads, run.summary.bytes_read) == (SAMPLES, SAMPLES * SIZE)
    (totals,) = run.summary.layers
    assert totals.meta_s is not None
    assert totals.meta_s > 0
    assert int(run.trace.counters[OBJECT].counters["OBJECT_STATS"].sum()) == SAMPLES
    assert run.summary.storage_bytes_read is None


def test_workers_belong_to_the_trainer_and_its_waits_are_for_object_storage(
    trained: tuple[Path, list],
) -> None:
    run = open_run(trained[0])
    assert [p.role for p in run.trace.processes] == ["trainer", "worker", "worker"]
    assert run.overlap is not None
    mean = run.overlap.mean
    assert mean.io_s == pytest.approx(run.summary.time.per_rank_mean_s)
    assert mean.input_wait_io_s is not None
    assert 0 <= mean.input_wait_io_s <= mean.input_wait_s
    assert mean.input_wait_metadata_s is not None
    assert mean.in_wait_s > 0
    assert mean.input_wait_io_at_most_s > 0  # at least: not where cores were short
    assert mean.input_wait_metadata_at_most_s > 0
    matters = mean.input_wait_metadata_s >= 0.02 * mean.window_s  # not where all else is slower
    assert ("object_asked_first" in {finding.code for finding in run.findings}) == matters


def test_every_output_shows_the_layer_and_the_names(
    trained: tuple[Path, list], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(trained[0])
    assert main(["summary", folder, "--full", "--layer", "OBJECT"]) == 0
    text = capsys.readouterr().out
    assert "I/O through OBJECT" in text
    assert "s3://train/samples/slow" in text  # the files with most time, whichever they are
    assert main(["summary", folder, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["io"]["layer"] == OBJECT
    assert values["layers"][OBJECT]["bytes_read"] == SAMPLES * SIZE
    assert values["storage"]["bytes_read"] is None
    for form, name in (("chrome", "run.json"), ("csv", "tables")):
        assert main(["export", folder, "--to", form, "-o", str(tmp_path / name)]) == 0
        files = [p for p in (tmp_path / name).rglob("*") if p.is_file()] or [tmp_path / name]
        assert any(b"slow000.bin" in p.read_bytes() for p in files), form
    page = tmp_path / "report.html"
    assert main(["report", folder, "-o", str(page)]) == 0
    assert "slow000.bin" in page.read_text()


def test_pseudonyms_hide_bucket_and_key(
    trained: tuple[Path, list], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", str(trained[0]), "--anonymize", "--json"]) == 0
    text = capsys.readouterr().out
    assert "s3://dir" in text
    for word in ("train/samples", "s3://train", "slow0"):
        assert word not in text


def test_no_secret_is_in_the_run(trained: tuple[Path, list]) -> None:
    for file in trained[0].rglob("*"):
        assert file.is_dir() or b"CANARY" not in file.read_bytes(), file
