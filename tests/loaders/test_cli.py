from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("h5py", reason="h5py is not installed")

from vanidl_loaders import console
from vanidl_loaders.cli import main
from vanidl_loaders.commands import COMMANDS
from vanidl_loaders.console import hide_credentials
from vanidl_loaders.errors import EXTRAS, InputError, report_missing_package

ROOT = Path(__file__).parents[2]


def test_make_says_what_it_made(tmp_path, capsys):
    line = ["make", "--workload", "ptycho", "--data", str(tmp_path / "d")]
    assert main([*line, "--samples", "2", "--size", "16"]) == 0
    assert capsys.readouterr().out == "2 samples of 3072 bytes, 6144 in all\n"


def test_bad_input_is_one_line_and_a_status(tmp_path, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert main(["train", "--data", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("loaders: expected samples.json")
    assert error.count("\n") == 1
    main(["make", "--workload", "ptycho", "--data", str(tmp_path), "--samples", "1"])
    assert main(["train", "--data", str(tmp_path), "--workload", "images"]) == 2
    assert main(["train", "--data", str(tmp_path), "--batch", "0"]) == 2


@pytest.mark.parametrize("option", ["--steps", "--threads"])
def test_limits_of_training_are_positive(option, tmp_path, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    for found in ("0", "-1"):
        assert main(["train", "--data", str(tmp_path), option, found]) == 2
        error = capsys.readouterr().err
        assert f"{option} of at least 1, found {found}" in error
        assert error.count("\n") == 1


def test_a_missing_package_is_named(tmp_path, run_python, python):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from vanidl_loaders.cli import main\n"
        "sys.exit(main(['train', '--data', 'x']))"
    )
    done = run_python([python, "-c", code])
    assert done.returncode == 1
    assert "expected the package torch, found none: pip install 'vanidl-io[loaders]'" in done.stderr
    assert done.stderr.count("\n") == 1


DISTRIBUTIONS = {
    "PIL": "pillow",
    "google_crc32c": "google-crc32c",
    "nvidia": "nvidia-dali-cuda130",
    "streaming": "mosaicml-streaming",
}
"""Of packages that PyPI has under another name."""
NOT_ON_PYPI = {"dlio_benchmark"}  # its own message says where it is


IMPORT = re.compile(r"^\s*(?:import (\w+)|from (\w+)[\w.]* import )", re.MULTILINE)


def imported() -> set[str]:
    """Packages that a module of vanidl_loaders imports, wherever in it."""
    found = set()
    for path in (ROOT / "loaders").rglob("*.py"):
        found.update(name for row in IMPORT.findall(path.read_text()) for name in row if name)
    return found - sys.stdlib_module_names - NOT_ON_PYPI - {"vanidl_loaders"}


def test_a_missing_package_names_the_extra_that_has_it():
    """As pyproject.toml lists them: what vanidl-io requires is in no extra."""
    text = (ROOT / "pyproject.toml").read_text()
    assert {"streaming", "torch", "h5py", "mpi4py", "PIL"} <= imported()
    for name in imported() | EXTRAS.keys():
        listed = f'"{DISTRIBUTIONS.get(name, name)}>='
        (extra,) = re.findall(r"\[(\w+)\]", str(report_missing_package(name))) or ("dependencies",)
        table = re.search(rf"^{extra} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
        assert table is not None, extra
        assert listed in table[1], (name, extra)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            ["train", "--data", "x", "--batch", "y"],
            "expected a whole number for --batch, found 'y'",
        ),
        (["plan", "--samples", "9", "--load-s", "q"], "expected a number for --load-s, found 'q'"),
        (["plan", "--samples", "9", "--bufer", "3"], "found --bufer; did you mean --buffer?"),
        (["plan"], "expected --samples, found none"),
        (["plan", "--samples"], "argument --samples: expected one argument"),
        (["mount", "a", "b", "c"], "found c"),
        (["trian"], "expected a known COMMAND, found 'trian'; did you mean train?"),
        (["train", "--data", "x", "--memory", "4QB"], "--memory: expected a size such as 4GiB"),
        ([], "expected COMMAND, found none"),
    ],
)
def test_wrong_usage_is_one_line_that_says_where_help_is(line, said, capsys):
    if line[:1] == ["train"]:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    assert main(line) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("loaders: ")
    assert error.endswith(" --help\n")
    assert error.count("\n") == 1


def test_making_and_help_need_no_torch(tmp_path, run_python, python):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from vanidl_loaders.cli import main\n"
        "sys.exit(main(['make', '--workload', 'ptycho', '--data', 'x', '--samples', '1']))"
    )
    done = run_python([python, "-c", code])
    assert done.returncode == 0, done.stderr


HELP = """
import contextlib, io, json, sys
from vanidl_loaders.cli import main
from vanidl_loaders.commands import COMMANDS
for line in [[], ["--help"], *([command.NAME, "--help"] for command in COMMANDS)]:
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(line)
    print(json.dumps([line, sorted({n.split(".")[0] for n in set(sys.modules) - before})]))
"""


def test_help_of_every_command_imports_no_package(run_python, python):
    done = run_python([python, "-c", HELP])
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line, _ in lines] == [[], ["--help"], *([c.NAME, "--help"] for c in COMMANDS)]
    for line, loaded in lines:
        packages = {"numpy", "torch", "h5py", "mpi4py", "PIL", "scipy", "pandas", "mfusepy"}
        assert not packages & {*loaded}, line


def test_own_modules_of_a_user_do_not_shadow_the_package(tmp_path, run_python, python):
    for name in ("loaders", "loader", "data", "ranks", "errors", "commands"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the module of a user')\n")
    done = run_python([python, "-m", "vanidl_loaders", "list"])
    assert done.returncode == 0, done.stderr
    assert "baseline" in done.stdout


def test_nothing_drives_the_terminal(tmp_path, capsys):
    pytest.importorskip("numba", reason="numba is not installed")
    name = tmp_path / "a\x1b]0;title\x07\u202e.vdl"
    assert main(["inspect", str(name)]) == 1
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "\\x1b]0;title" in said


def test_a_reader_that_goes_away_is_no_error():
    line = [sys.executable, "-c", "import sys; from vanidl_loaders.cli import main;"
            "sys.exit(main(['list']))"]  # fmt: skip
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as closed:
        done = subprocess.run(line, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def end(*_arguments, **_options) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def then_end(function):
    """Does what it does, and is ended before anybody goes on."""

    def ended(*arguments, **options):
        function(*arguments, **options)
        end()

    return ended


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


MAKE = ["make", "--samples", "2", "--size", "16", "--workload"]


@pytest.mark.parametrize(
    ("module", "function", "line"),
    [
        ("workloads.making", "_write_image", [*MAKE, "images", "--data", "D"]),
        ("workloads.making", "h5py.h5p.create", [*MAKE, "ptycho", "--data", "D"]),
        ("scheduled.plan", "np.savez_compressed", ["plan", "--samples", "9", "-o", "D/p"]),
    ],
)
def test_a_signal_leaves_nothing_half_written(tmp_path, monkeypatch, module, function, line):
    owner = pytest.importorskip(f"vanidl_loaders.{module}", reason="PyTorch is not installed")
    *inner, name = function.split(".")
    for each in inner:
        owner = getattr(owner, each)
    monkeypatch.setattr(owner, name, then_end(getattr(owner, name)))
    assert main([word.replace("D", str(tmp_path)) for word in line]) == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not {name for name in files(tmp_path) if "part" in name}
    assert files(tmp_path) <= {"samples.json"}


def test_a_signal_leaves_no_process(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from vanidl_loaders.baseline import BaselineLoader

    line = ["--data", str(tmp_path / "d")]
    assert main([*MAKE, "ptycho", *line]) == 0
    before, workers = set(multiprocessing.active_children()), set()
    batches = BaselineLoader.__iter__

    def first(loader):
        for batch in batches(loader):
            workers.update(set(multiprocessing.active_children()) - before)
            end()
            yield batch

    monkeypatch.setattr(BaselineLoader, "__iter__", first)
    assert main(["bench", *line, "--batch", "1", "--workers", "1"]) == 128 + signal.SIGTERM
    assert workers
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()


@pytest.mark.parametrize("error", [InputError("expected x, found y; do z"), OSError("no answer")])
def test_an_error_of_a_worker_is_one_line_without_its_traceback(error, monkeypatch, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch._utils import ExceptionWrapper

    def works(_options):
        try:
            raise error
        except type(error):
            wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
        wrapped.reraise()

    monkeypatch.setattr("vanidl_loaders.commands.listing.run", works)
    assert main(["list"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("loaders: expected ")
    assert str(error) in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("variable", "by"),
    [("", ""), ("TORCHELASTIC_RUN_ID", "torchrun"), ("PMI_RANK", "mpiexec"),
     ("OMPI_COMM_WORLD_RANK", "mpiexec")],
)  # fmt: skip
def test_a_rank_that_its_launcher_ends_says_so(variable, by, monkeypatch, capsys):
    def ends(_options):
        raise console.Ended(signal.SIGTERM)

    monkeypatch.setattr("vanidl_loaders.commands.listing.run", ends)
    monkeypatch.setattr(os, "environ", {variable: "1"})
    assert main(["list"]) == 143
    said = f"found that {by} ended this rank (signal 15)"
    assert capsys.readouterr().err.count(said) == bool(by)


@pytest.mark.parametrize(("error", "lines"), [(console.Ended(15), 0), (ValueError("x"), 1)])
def test_a_signal_while_a_generator_is_cleared_up_leaves_no_traceback(error, lines, monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    console.end_quietly()

    def stream():
        try:
            yield
        finally:
            raise error

    left = stream()
    next(left)
    del left
    assert len(shown) == lines


def test_an_interrupt_that_a_launcher_repeats_is_one(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    ended, now = [], [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(console.os, "_exit", ended.append)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console.interrupted_once()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        now[0] += console.SAME_S
        signal.raise_signal(signal.SIGINT)
        assert ended == []
        now[0] += 0.1
        signal.raise_signal(signal.SIGINT)
        assert ended == [130]
    finally:
        signal.signal(signal.SIGINT, before)


SECRETS = ("hunter2secret", "sk-abcdefghijklmnop1234", "AKIAABCDEFGHIJKLMNOP")
CARRIERS = (
    "https://user:{}@host/data", "s3://key:{}@bucket/d", "https://host/d?token={}&x=1",
    "https://host/d?X-Amz-Signature={}", "--hf-token={}", "API_KEY={}", "--password={}",
)  # fmt: skip


@pytest.mark.parametrize("carrier", CARRIERS)
def test_credentials_are_in_no_output(tmp_path, capsys, monkeypatch, carrier):
    monkeypatch.chdir(tmp_path)
    for secret in SECRETS:
        word = carrier.format(secret)
        data = str(tmp_path / "d")
        lines = [
            ["train", "--data", word], ["inspect", word], ["decode", word, "x.npy"],
            ["encode", word, word], ["convert", "--data", word, "--to", "tar"],
            ["plan", "--samples", "8", "-o", f"{word}/missing/plan.npz"],
            ["mount", word, word], ["make", "--data", data, "--nonsense", word],
            ["make", "--workload", word, "--data", data, "--samples", "1"],
        ]  # fmt: skip
        for line in lines:
            try:
                status = main(line)
            except SystemExit as error:  # of the parser
                status = error.code
            said = "".join(capsys.readouterr())
            assert status, line
            assert secret not in said, line


def test_credentials_by_option_and_by_kind():
    for secret in SECRETS:
        for text in (f"--token {secret} x", f"Authorization: Bearer {secret}"):
            assert secret not in hide_credentials(text)
    for text in ("found sk-abcdefghijklmnop1234 there", '{"path": "hf_abcdefghijklmnop12"}'):
        assert "***" in hide_credentials(text)
        assert "abcdefghijklmnop" not in hide_credentials(text)
    stats = json.dumps({"loads": 3, "nbytes": 4096, "path": "/data/tokens/sig/a=b.h5"})
    assert hide_credentials(stats) == stats


def test_hiding_takes_no_more_than_the_text_is_long():
    for text in ("a" * 20_000, "a." * 10_000, "-" * 20_000, "token" * 4_000, "a+" * 10_000):
        assert hide_credentials(text) == text


def test_one_is_said_as_one(tmp_path, capsys):
    pytest.importorskip("h5py", reason="h5py is not installed")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    data = ["--data", str(tmp_path)]
    said = []
    for line in (
        ["make", "--workload", "ptycho", "--samples", "1", "--size", "8", *data],
        ["train", "--loader", "scheduled", "--batch", "1", "--epochs", "1", *data],
        ["bench", "--loaders", "scheduled", "--batch", "1", "--epochs", "1", *data],
        ["train", "--batch", "2", "--drop-last", *data],
    ):
        main(line)
        said += capsys.readouterr()
    text = " ".join(said)
    assert "1 sample of" in text
    assert "1 step on each of 1 rank " in text
    assert "1 sample cannot fill a batch of 1 x 2" in text
    assert not re.search(r"(?<![\d.,])1 (sample|step|rank|load|hit|request|time)s\b", text), text
