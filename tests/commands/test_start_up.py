"""What a command imports: what it needs, and nothing of the other commands."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

from tests import DATA
from vanidl.check.check import MOST_A_STATE
from vanidl.commands import arguments, schema
from vanidl.commands.arguments import COMMANDS, SHELLS
from vanidl.compare import comparison
from vanidl.readers.run_folder import NO_TRACER
from vanidl.record import recording
from vanidl.record.recorder import AUTO, TRACERS

RUN = DATA / "torch_pfs_workers0"
CODE = """
import sys
from vanidl.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
sys.stdout = sys.stderr
print(*sys.modules)
"""


def imported(*arguments: str) -> set[str]:
    """Names of the modules that are loaded once a command has run in a fresh interpreter."""
    code = CODE.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


LINES = [[], ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
LINES += [["completion", shell] for shell in SHELLS]
EACH = """
import contextlib, io, json, sys
from vanidl.cli import main
for line in json.loads(sys.argv[1]):
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(line)
    print(json.dumps([line, sorted(set(sys.modules) - before)]))
"""
PACKAGES = {"numpy", "pandas", "scipy", "jinja2", "orjson", "rich", "isal", "google_crc32c"}
ROOMS = {"analyses", "readers", "merge", "findings", "sections", "report", "run"}


def test_help_and_completion_import_no_package_and_no_analysis():
    command = [sys.executable, "-c", EACH, json.dumps([["--help"], *LINES])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(loaded) == 1 + len(LINES)
    for line, modules in loaded:
        assert not PACKAGES & {name.partition(".")[0] for name in modules}, line
        assert not ROOMS & {"".join(name.split(".")[1:2]) for name in modules}, line


def test_every_command_has_options_and_a_module_and_constants_are_those_of_the_rooms():
    assert list(arguments.ARGUMENTS) == list(COMMANDS)
    assert all(find_spec(f"vanidl.commands.{name}") for name in COMMANDS)
    recorders = (recorder.name for recorder in recording.RECORDERS)
    assert (AUTO, *recorders, NO_TRACER) == TRACERS
    assert tuple(schema.outputs()) == arguments.SCHEMAS
    assert arguments.WORSE == comparison.WORSE
    assert MOST_A_STATE == 100  # said in the help of check


def test_summary_imports_no_template_engine_no_statistics_and_no_comparison():
    loaded = imported("summary", str(RUN))
    assert "vanidl.commands.summary" in loaded
    for name in (
        "jinja2",
        "scipy",
        "pandas",
        "vanidl.compare",
        "vanidl.record.recording",
        "vanidl.survey",
    ):
        assert name not in loaded
