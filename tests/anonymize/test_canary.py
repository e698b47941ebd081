"""Secret words in every field of every input format are in no byte of any output."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.anonymize.planted import CONSONANTS, Secrets, decoded, plant
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.cli import main
from vanidl.export.registry import FORMATS, export
from vanidl.merge.pipeline import Inputs
from vanidl.model.run_facts import DataOptions
from vanidl.model.trace import OBJECT
from vanidl.report.html import write_html
from vanidl.report.summary import summary_json, summary_text
from vanidl.run import Run, open_run

pytest.importorskip("pyarrow", reason="tables are written by pyarrow")
h5py = pytest.importorskip("h5py", reason="data sets are opened")
np = pytest.importorskip("numpy")

OUTPUTS: dict[str, Callable[[Run, Path], object]] = {
    "text": lambda run, folder: (folder / "summary.txt").write_text(summary_text(run)),
    "json": lambda run, folder: (folder / "summary.json").write_text(summary_json(run)),
    "page": lambda run, folder: write_html(run, folder / "page.html"),
    "csv": lambda run, folder: export(run, "csv", folder / "csv"),
    "document": lambda run, folder: export(run, "json", folder / "document.json"),
    "parquet": lambda run, folder: export(run, "parquet", folder / "parquet"),
    "chrome": lambda run, folder: export(run, "chrome", folder / "timeline.json.gz"),
    "darshan": lambda run, folder: export(run, "darshan", folder / "run.darshan"),
    "dlio": lambda run, folder: export(run, "dlio", folder / "workload.yaml"),
}
NOT_SEARCHED = {"figures", "tensorboard"}  # drawn from the page's own text; numbers only


@pytest.fixture(scope="module")
def secret() -> Secrets:
    return Secrets(random.Random(18))


@pytest.fixture(scope="module")
def data(secret: Secrets, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data files whose parts have secret names, too."""
    from pyarrow import parquet, table

    folder = tmp_path_factory.mktemp("data") / secret()
    folder.mkdir()
    with h5py.File(folder / f"{secret()}.h5", "w") as file:
        group = file.create_group(secret())
        group.create_dataset(secret(), data=np.zeros((64, 64)), chunks=(8, 64), compression="gzip")
        kind = np.dtype([(secret(), "i4"), (secret(), "f8")])
        file.create_dataset(f"{secret()} {secret()}", data=np.zeros(100, kind), chunks=(10,))
        file.attrs[secret()] = secret()
    np.savez(folder / f"{secret()}.npz", **{secret(): np.zeros(100), secret(): np.ones(9)})
    parquet.write_table(table({secret(): [1, 2, 3], secret(): ["a", "b", "c"]}),
                        folder / f"{secret()}.parquet")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def runs(secret: Secrets, data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return plant(secret, tmp_path_factory.mktemp("runs"), data)


@pytest.fixture(scope="module")
def opened(runs: list[Path], data: Path) -> dict[bool, list[Run]]:
    """Whether anonymised -> the runs."""

    def openings(names: Pseudonyms | None) -> list[Run]:
        looked = Inputs(data=DataOptions((str(data),), inspect=True))
        inputs = [looked, Inputs(), looked, Inputs(), Inputs(), Inputs()]
        return [open_run(run, inputs=i, names=names) for run, i in zip(runs, inputs, strict=True)]

    return {True: openings(Pseudonyms()), False: openings(None)}


def test_every_export_is_searched() -> None:
    assert set(FORMATS) - NOT_SEARCHED <= set(OUTPUTS) | {"json"}


def said(output: str, run: Run, folder: Path) -> str:
    """All that one output holds; a run of object storage alone is no Darshan log."""
    if output != "darshan" or run.trace.layers_traced != (OBJECT,):
        OUTPUTS[output](run, folder)
    return "\n".join(decoded(path) for path in sorted(folder.rglob("*")) if path.is_file())


RUN = re.compile(f"[{CONSONANTS}]{{5}}[{CONSONANTS}0-9é]*")
"""What a secret can stand in: all of them begin with five consonants, and have no vowel but é."""


def leaked(secret: Secrets, text: str) -> set[str]:
    runs = "\n".join(set(RUN.findall(text)))
    return {word for word in secret.words if word.lower() in runs}


@pytest.mark.parametrize("output", OUTPUTS)
def test_no_output_of_a_run_holds_a_secret(tmp_path, secret, opened, output) -> None:
    for i, run in enumerate(opened[True]):
        folder = tmp_path / str(i)
        folder.mkdir()
        assert leaked(secret, said(output, run, folder)) == set()


def test_the_search_would_notice(tmp_path, secret, opened) -> None:
    seen: set[str] = set()
    for output in ("page", "chrome", "parquet", "darshan"):
        for i, run in enumerate(opened[False]):
            folder = tmp_path / f"{output}-{i}"
            folder.mkdir()
            found = leaked(secret, said(output, run, folder))
            assert found or (output == "darshan" and run.trace.layers_traced == (OBJECT,))
            seen |= found
    assert len(seen) > len(secret.words) / 2


@pytest.mark.parametrize("command", ["summary", "report", "compare", "survey", "export"])
def test_no_error_holds_a_secret(capsys, tmp_path, secret, command) -> None:
    word = secret()
    gone = str(tmp_path / word / f"{secret()}.darshan")
    more = {"compare": [gone], "export": ["--to", "csv", "-o", f"{tmp_path}/x"],
            "survey": ["-o", f"{tmp_path}/y"]}  # fmt: skip
    assert main([command, gone, *more.get(command, ()), "--anonymize"]) != 0
    said = capsys.readouterr().err.lower()
    assert "expected" in said
    assert leaked(secret, said) == set()
    assert main([command, gone, *more.get(command, ())]) != 0
    assert word.lower() in capsys.readouterr().err.lower()


@pytest.mark.parametrize("command", ["summary", "survey"])
def test_no_output_holds_the_number_of_a_job(capsys, tmp_path, runs, command) -> None:
    where = {"summary": [str(runs[2]), "--json"],
             "survey": [str(runs[2]), "-o", f"{tmp_path}/y"]}  # fmt: skip
    said = []
    for more in ([], ["--anonymize"]):
        assert main([command, *where[command], *more]) == 0
        files = list(tmp_path.rglob("*.parquet"))
        said.append(capsys.readouterr().out + "".join(map(decoded, files)))
        where["survey"][-1] = f"{tmp_path}/z"
        [path.unlink() for path in files]
    assert "4711" in said[0]
    assert "4711" not in said[1]


def test_no_comparison_holds_a_secret(capsys, tmp_path, secret, runs) -> None:
    page = tmp_path / "page.html"
    paths = [str(runs[0]), str(runs[1])]
    assert main(["compare", *paths, "--json", "-o", str(page), "--anonymize"]) == 0
    printed = capsys.readouterr()
    assert main(["compare", *paths, "--anonymize"]) == 0
    text = capsys.readouterr().out + printed.out + printed.err
    assert leaked(secret, text.lower() + decoded(page)) == set()


def test_no_survey_holds_a_secret(capsys, tmp_path, secret, runs) -> None:
    out = tmp_path / "survey"
    assert main(["survey", str(runs[0].parent), "-o", str(out), "--anonymize"]) == 0
    printed = capsys.readouterr()
    found = [decoded(path) for path in sorted(out.rglob("*")) if path.is_file()]
    assert {path.name for path in out.iterdir()} == {"jobs.parquet", "fleet.html"}
    assert leaked(secret, "\n".join(found).lower()) == set()
    assert leaked(secret, (printed.out + printed.err).lower()) == set()
    plain = tmp_path / "plain"
    assert main(["survey", str(runs[0].parent), "-o", str(plain)]) == 0
    assert leaked(secret, decoded(plain / "jobs.parquet"))
    assert main(["survey", str(runs[0].parent), "-o", str(plain), "--anonymize"]) == 2
    assert _numbers(plain) == _numbers(out)


def _numbers(folder: Path) -> list[list[object]]:
    from pyarrow import parquet

    rows = parquet.read_table(folder / "jobs.parquet").to_pylist()
    return [[v for v in row.values() if not isinstance(v, str)] for row in rows]
