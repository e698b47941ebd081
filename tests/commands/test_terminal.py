"""The short summary, colours, guesses at typos, help and completion."""

from __future__ import annotations

import argparse
import io
import os
import pty
import shlex
import shutil
import subprocess
import sys
import textwrap
from itertools import takewhile

import pytest

from tests import DATA
from tests.advice.labeled import RECIPES, made
from tests.makers.results import EXAMPLES
from vanidl.cli import main
from vanidl.commands.arguments import COMMANDS, GROUPS, SHELLS, parser
from vanidl.commands.arguments import EXAMPLES as LINES_TO_COPY
from vanidl.commands.completion import options_of
from vanidl.commands.console import wants_colour
from vanidl.commands.summary import shows_blocks
from vanidl.report.brief import LINES, WIDTH, brief, plain
from vanidl.report.overview import make_overview
from vanidl.run import Run

RUN = DATA / "torch_pfs_workers0"


def check(run: Run, width: int = WIDTH) -> str:
    text = plain(brief(run, width))
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= width
    return text


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_summary_of_every_shape_of_run_fits_a_screen(name):
    run = EXAMPLES[name]().run
    text = check(run)
    check(run, 60)
    assert text.split()[:3] == (run.verdict or run.answer.title).split()[:3]


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_summary_names_the_first_action(name):
    run = made(name)
    text = check(run)
    actions = make_overview(run).actions
    if actions:
        assert f"1. {actions[0].title}" in text
        assert all(part.name in text for part in make_overview(run).bar.parts)


def test_signs_of_the_bar_fill_the_line_and_are_ascii_where_asked():
    bar = next(line for line in plain(brief(made("small_reads"))).splitlines() if "█" in line)
    assert len(bar) == WIDTH
    lines = plain(brief(made("small_reads"), blocks=False)).splitlines()
    assert next(line for line in lines if line.startswith("###")).isascii()


def test_full_holds_what_the_screen_has_no_room_for(capsys):
    assert main(["summary", str(RUN)]) == 0
    short = capsys.readouterr().out
    assert main(["summary", str(RUN), "--full"]) == 0
    full = capsys.readouterr().out
    assert len(short.splitlines()) <= LINES < len(full.splitlines())
    assert "Where the I/O falls" in full
    assert "\x1b" not in short + full


def on_terminal(*arguments: str, **environment: str) -> str:
    """What a command writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    known = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    done = subprocess.Popen(
        [sys.executable, "-m", "vanidl", *arguments], stdout=theirs, stderr=subprocess.DEVNULL,
        env=known | {"TERM": "xterm-256color"} | environment,
    )  # fmt: skip
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    assert done.wait() == 0
    return b"".join(chunks).decode()


def test_the_command_for_more_runs_where_it_was_asked(tmp_path, monkeypatch, capsys):
    """With the path as it was given, from whatever folder; where names are replaced, without."""
    (tmp_path / "a b").symlink_to(RUN)
    monkeypatch.chdir(tmp_path)
    for path in ("a b", "./a b"):
        assert main(["summary", path]) == 0
        printed = capsys.readouterr().out.splitlines()[-1].partition("page: ")[2]
        assert shlex.split(printed) == ["vanidl", "report", path]
    assert main(["summary", "a b", "--anonymize"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("vanidl report RUN")


def test_a_terminal_gets_colours_and_the_same_words(capsys):
    import re

    coloured = on_terminal("summary", str(RUN))
    without = on_terminal("summary", str(RUN), NO_COLOR="1")
    assert "\x1b[" in coloured
    assert "\x1b" not in without
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == without


@pytest.mark.parametrize(
    ("environment", "terminal", "wanted"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm"}, False, False),
    ],
)
def test_colour_is_for_terminals_of_those_who_want_it(monkeypatch, environment, terminal, wanted):
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_colour(Stream()) is wanted


def test_blocks_need_an_encoding_that_has_them():
    for encoding, has in (("utf-8", True), ("ascii", False), ("latin-1", False)):
        assert shows_blocks(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) is has


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (["sumary", "x"], "did you mean summary?"),
        (["repotr"], "did you mean report?"),
        (["summary", "x", "--anonymise"], "did you mean --anonymize?"),
        (["export", "x", "--to", "parket", "-o", "y"], "did you mean parquet?"),
        (["xyz"], "choose from"),
    ],
)
def test_typos_are_guessed(capsys, arguments, guess):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert guess in capsys.readouterr().err


def test_help_shows_every_command_once_and_by_what_it_is_for():
    text = parser().format_help()
    entries = [line for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
    lines = [line.split()[0] for line in entries]
    assert all(lines.count(name) == 1 for name in COMMANDS)
    assert all(f"{group}:" in text for group, names in GROUPS.items() if set(names) & set(COMMANDS))
    assert max(map(len, text.splitlines())) <= 92


@pytest.mark.parametrize("name", [n for n in LINES_TO_COPY if n != "completion"])
def test_examples_are_commands(name):
    for line in LINES_TO_COPY[name]:
        options = parser().parse_args(shlex.split(line)[1:])
        assert options.command == name


def test_defaults_are_in_the_help(capsys):
    for arguments, default in (
        (["report", "--help"], "report.html"),
        (["summary", "--help"], "POSIX (default)"),
        (["survey", "--help"], "default"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert default in capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command_and_option(capsys, shell):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in COMMANDS:
        assert name in script
        for option in options_of(name):
            for flag in option.names:
                assert (flag if shell != "fish" else flag.lstrip("-")) in script
    program = shutil.which(shell)
    if program is not None:
        done = subprocess.run([program, "-n"], input=script, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["vanidl", "su"], {"summary", "survey"}),
        (["vanidl", "summary", "--sa"], {"--samples-per-step"}),
        (["vanidl", "export", "x", "--to", "pa"], {"parquet"}),
        (["vanidl", "completion", "f"], {"fish"}),
    ],
)
def test_bash_completes(capsys, tmp_path, words, expected):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    ask = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _vanidl; "
    ask += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert set(done.stdout.split()) == expected


def test_each_option_has_help():
    for name in COMMANDS:
        for option in options_of(name):
            assert option.help or option.names == ("-o", "--output"), (name, option.names)
    assert argparse.SUPPRESS not in {o.help for n in COMMANDS for o in options_of(n)}


def test_runs_without_an_id_are_chosen_by_their_number(capsys, tmp_path):
    """Profiles have no job; their paths may be long and differ at the end alone."""
    folder = tmp_path / ("long" * 40)
    for name in ("torch_pfs_workers0", "torch_pfs_workers4"):
        shutil.copytree(DATA / name / "tb", folder / f"{name}-tb")
    assert main(["summary", str(tmp_path)]) == 1
    first, _, *rows = capsys.readouterr().err.splitlines()
    assert "--job @NUMBER" in first
    assert [row.split()[:2] for row in rows] == [["@1", "-"], ["@2", "-"]]
    assert all(len(row) < 160 for row in rows)
    assert len({row[2:] for row in rows}) == 2
    for number in ("@1", "@2"):
        assert main(["summary", str(tmp_path), "--job", number]) == 0
        assert "One step" in capsys.readouterr().out


def test_the_tutorial_prints_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = DATA.parents[1]
    monkeypatch.chdir(root)
    line = "vanidl summary tests/data/torch_pfs_workers0"
    _, _, after = (root / "docs" / "tutorial.md").read_text("utf-8").partition(f"`{line}` prints\n")
    block = textwrap.dedent("\n".join(takewhile(_is_quoted, after.strip("\n").splitlines())))
    assert main(line.split()[1:]) == 0
    assert capsys.readouterr().out.strip() == block.strip()


def _is_quoted(line: str) -> bool:
    return not line or line.startswith("    ")
