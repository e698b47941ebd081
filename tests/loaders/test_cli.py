from __future__ import annotations

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
