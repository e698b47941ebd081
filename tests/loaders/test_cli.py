from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("h5py", reason="h5py is not installed")

from vanidl_loaders.cli import main


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


def test_a_missing_package_is_named(tmp_path, run_python, python):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from vanidl_loaders.cli import main\n"
        "sys.exit(main(['train', '--data', 'x']))"
    )
    done = run_python([python, "-c", code])
    assert done.returncode == 1
    assert "expected the package torch" in done.stderr
    assert done.stderr.count("\n") == 1


def test_making_and_help_need_no_torch(tmp_path, run_python, python):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from vanidl_loaders.cli import main\n"
        "sys.exit(main(['make', '--workload', 'ptycho', '--data', 'x', '--samples', '1']))"
    )
    done = run_python([python, "-c", code])
    assert done.returncode == 0, done.stderr


def test_own_modules_of_a_user_do_not_shadow_the_package(tmp_path, run_python, python):
    for name in ("loaders", "loader", "data", "ranks", "errors", "commands"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the module of a user')\n")
    done = run_python([python, "-m", "vanidl_loaders", "list"])
    assert done.returncode == 0, done.stderr
    assert "baseline" in done.stdout


def test_nothing_drives_the_terminal(tmp_path, capsys):
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
