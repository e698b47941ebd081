"""The lines of docs/dask.md about TLS and Slurm do what they say; no job is submitted."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

import vanidl
from tests import ROOT
from tests.makers.needed import needed
from tests.parallel.test_executors import page_status
from vanidl.parallel.executors import ExecutorOptions, warn_about

yaml = pytest.importorskip("yaml", reason="comes with Dask")
needed("dask_jobqueue", reason="an extra of the tests")
pytestmark = [  # its processes end when they like; what they leave open is not under test
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def block(having: str) -> str:
    """The block of code of the page that holds a word."""
    text = (ROOT / "docs" / "dask.md").read_text("utf-8")
    blocks = re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", text, re.MULTILINE)
    return next(textwrap.dedent(found) for found in blocks if having in found)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """The folder that the page makes."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    command = block("openssl req").splitlines()[1]
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_the_documented_cluster_asks_slurm_for_workers_with_tls(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = yaml.safe_load(block("require-encryption").replace("TLS", str(certificates)))
    asked: list[Any] = []

    import dask
    import dask_jobqueue as jobqueue

    def scale(self: Any, jobs: int) -> None:
        if not asked:  # it is scaled to 0 at the end
            asked.append((jobs, self.job_script()))
            asked.append(self.scheduler.http_server.port)

    def open_run(path: str, executor_options: ExecutorOptions) -> None:
        asked.append(executor_options)
        asked.append(page_status(asked[1], "/info/main/workers.html"))

    monkeypatch.setattr(jobqueue.SLURMCluster, "scale", scale)
    monkeypatch.setattr(vanidl, "open_run", open_run)
    with dask.config.set(dask.config.merge(dask.config.config, settings)):
        exec(block("SLURMCluster("), {})
    (jobs, script), _, options, page = asked
    assert page == 404  # of calls and their arguments, without TLS
    assert jobs == 4
    assert isinstance(options, ExecutorOptions)
    assert warn_about(options) is None  # its address is one with TLS
    assert "#SBATCH -p cpu\n" in script
    assert "export DASK_CONFIG=~/dask-tls/dask.yaml\n" in script
    command = script.strip().splitlines()[-1]
    assert f" {options.dask} " in command
    assert " --nthreads 1 " in command
    assert " --nworkers 8 " in command
    assert " --no-dashboard" in command
    for option, name in (("ca-file", "cert"), ("cert", "cert"), ("key", "key")):
        assert f" --tls-{option} {certificates}/{name}.pem" in command
