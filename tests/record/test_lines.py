"""Lines that were sampled in a program, against what its lines took, in made time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vanidl
from tests.record.made_lines import PROGRAMS
from vanidl.analyses.lines import PartLines
from vanidl.readers.steps.journal import read_journal
from vanidl.record import record
from vanidl.record.injected.vanidl_steps import lines as sampled
from vanidl.record.injected.vanidl_steps.journal import Journal
from vanidl.record.injected.vanidl_steps.registry import Channel
from vanidl.record.injected.vanidl_steps.waits import Waits
from vanidl.record.run_record import SOURCE_LINES_NAME, keep_source_lines

PROGRAM = Path(__file__).with_name("made_lines.py")
SMALL_TORCH = Path(__file__).with_name("small_torch")
GRACE_NS = 40_000_000
OF_LOOP = {"step", "log"}
NEWEST = [f"python3.{minor}" for minor in (12, 13, 14)]


@pytest.fixture
def small_torch(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SMALL_TORCH))


def interpreter(name):
    """One that runs: what is found may only say that it is not installed."""
    folders = sorted(Path.home().glob(".pyenv/versions/*/bin"))
    for found in (shutil.which(name), *(folder / name for folder in folders)):
        if found is not None and Path(found).exists():
            said = subprocess.run([found, "-c", "print(1)"], capture_output=True, check=False)
            if said.returncode == 0:
                return str(found)
    pytest.skip(f"no {name} here: what samples lines from Python 3.12 on is not tried")


def shares(part: PartLines):
    """Wall and processor time of each kind of line that the program marks, in its own part."""
    found = defaultdict(lambda: [0.0, 0.0])
    for line in part.lines:
        name = line.text.rpartition("# line: ")[2] if "# line: " in line.text else ""
        found[name] = [
            a + b for a, b in zip(found[name], (line.share, line.cpu_share), strict=True)
        ]
    return found


def trained(folder, python, program):
    """What was sampled of a program, and what its lines took by the same clocks."""
    done = record([python, str(PROGRAM), str(folder / "truth"), program], folder / "RUN",
                  tracer="none")  # fmt: skip
    assert done.exit_status == 0
    failed = [path.read_text() for path in (folder / "RUN" / "steps").glob("*.steps-error")]
    assert not any("lines: " in text for text in failed), failed  # others may need more of PyTorch
    return vanidl.open_run(folder / "RUN").lines, json.loads((folder / "truth").read_text())


def assert_as_made(lines, truth):
    """Each line has its share of the part's wall time and processor time."""
    for part, mine in ((lines.fetch, set(truth) - OF_LOOP), (lines.loop, OF_LOOP)):
        spent = {name: truth[name] for name in mine}
        wall, cpu = (sum(times) for times in zip(*spent.values(), strict=True))
        assert part.samples > 0
        assert shares(part) == {
            name: pytest.approx([spent[name][0] / wall, spent[name][1] / cpu], abs=1e-6)
            for name in mine
        }
        assert all(0 <= line.cpu_s <= line.wall_s for line in part.lines)
        assert {Path(line.file).name for line in part.lines} == {PROGRAM.name}


@pytest.mark.usefixtures("small_torch")
@pytest.mark.parametrize("program", PROGRAMS)
def test_lines_take_what_they_say_themselves(tmp_path, program):
    assert_as_made(*trained(tmp_path, sys.executable, program))


@pytest.mark.usefixtures("small_torch")
@pytest.mark.parametrize("name", NEWEST)
def test_newer_pythons_have_events_of_the_functions_alone(tmp_path, name):
    assert_as_made(*trained(tmp_path, interpreter(name), "called"))


@pytest.mark.usefixtures("small_torch")
@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="only a trace function slows others down")
class TestCost:
    def test_chance_does_not_use_up_what_may_be_spent(self, tmp_path):
        """Fetches that differ are sampled until the line is known, two calls down."""
        lines, _ = trained(tmp_path, sys.executable, "uneven")
        assert shares(lines.fetch)["hash"] == pytest.approx([1, 1], abs=1e-6)

    def test_what_samples_add_is_bounded(self, tmp_path):
        """By the grace, and the one sample that it began with some of it left."""
        lines, truth = trained(tmp_path, sys.executable, "slowed")
        added_ns = 8 * 4_000_000  # to a fetch
        assert lines.fetch.samples >= 1
        assert (lines.fetch.samples - 1) * added_ns <= GRACE_NS + 0.002 * truth["hash"][0]


def test_what_a_hook_calls_is_what_the_line_calls(tmp_path):
    source = """
from functools import wraps
def hooked(original):
    @wraps(original)
    def hook(*words):
        return original(*words)
    return hook
"""
    there: dict[str, object] = {}
    exec(compile(source, str(Path(sampled.__file__).with_name("made.py")), "exec"), there)

    def work():
        return sum(range(100))

    step = there["hooked"](work)

    def loop():
        return step()

    channel = Channel("lines", Journal(str(tmp_path)))
    sampler = sampled.Sampler(channel)
    assert sampler.start(sampled.FETCH, (loop.__code__,))
    loop()
    sampler.stop()
    assert channel.on
    (function,) = sampler.parts[sampled.FETCH].functions.values()
    assert [code for _, code in function.callees] == [work.__code__]
    assert sampled.is_library(step.__code__)
    assert not sampled.is_library(work.__code__)
    # Of a sample's neighbours as many are timed as tell what is usual.
    timed = 0
    while sampler.times_others(sampled.FETCH):
        sampler.passed(sampled.FETCH, 10)
        timed += 1
    assert sampler.parts[sampled.FETCH].others == timed > 0
    assert not sampler.times_others(sampled.LOOP)


LOOK = """
import sys
{before}
from torch.utils.data import DataLoader

class Samples:
    def __len__(self):
        return 64
    def __getitem__(self, i):
        {within}
        return i

def train():
    for batch in DataLoader(Samples(), batch_size=4):
        {step}
        pass

try:
    train()
{caught}
{after}
"""
TOOLS = """
for number in range(6):
    assert sys.monitoring.get_tool(number) == ("mine" if number == {mine} else None), number
"""


def ran(folder, python, **parts):
    """The lines that were sampled of a program that looks at itself."""
    nothing = dict.fromkeys(("before", "within", "step", "after"), "pass")
    parts = nothing | {"caught": "finally: pass"} | parts
    (folder / "program.py").write_text(textwrap.dedent(LOOK).format(**parts))
    done = record([python, str(folder / "program.py")], folder / "RUN", tracer="none")
    assert done.exit_status == 0
    journals = map(read_journal, (folder / "RUN" / "steps").glob("*.steps"))
    return [text for journal in journals for text in journal.lines]


@pytest.mark.usefixtures("small_torch")
class TestHarm:
    def test_a_program_that_nobody_looks_at_is_sampled_and_left_clean(self, tmp_path):
        assert ran(tmp_path, sys.executable, after="assert sys.gettrace() is None")

    @pytest.mark.parametrize("name", ["settrace", "setprofile"])
    def test_own_functions_of_tracing_are_left_alone(self, tmp_path, name):
        found = ran(
            tmp_path,
            sys.executable,
            before=f"calls = []\nmine = lambda *of: calls.append(of[1])\nsys.{name}(mine)",
            after=f"assert sys.g{name[1:]}() is mine\nassert calls",
        )
        assert found == []

    def test_a_trace_function_that_is_set_within_a_sample_stays(self, tmp_path):
        """As a debugger's is that a breakpoint starts."""
        ran(
            tmp_path,
            sys.executable,
            before="mine = lambda *of: None",
            within="sys.settrace(mine) if i == 0 else None",
            after="assert sys.gettrace() is mine",
        )

    def test_an_error_within_a_sample_is_the_programs(self, tmp_path):
        found = ran(
            tmp_path,
            sys.executable,
            within="{}[i] if i == 40 else None",
            caught="except KeyError: assert sys.gettrace() is None",
        )
        assert found

    @pytest.mark.parametrize("name", NEWEST)
    def test_tools_of_the_program_are_left_alone(self, tmp_path, name):
        found = ran(
            tmp_path,
            interpreter(name),
            before="sys.monitoring.use_tool_id(1, 'mine')",
            after=TOOLS.format(mine=1),
        )
        assert found == []

    @pytest.mark.parametrize("name", NEWEST)
    def test_no_tool_is_kept(self, tmp_path, name):
        assert ran(tmp_path, interpreter(name), after=TOOLS.format(mine=-1))


class TestSourceLines:
    def journal(self, folder, file, wall_ns=100):
        folder.mkdir()
        costs = [[1, 1, wall_ns, 0, 0], [2, 1, 1000, 0, 0], [99, 1, 1000, 0, 0]]
        table = {"lines": "fetch", "wall_ns": 20_000, "functions": [{"file": file, "costs": costs}]}
        (folder / "host-1.steps").write_bytes(b"rows" + json.dumps(table).encode() + b" rows")
        return folder

    @pytest.mark.parametrize(("wall_ns", "kept"), [(99, [2]), (100, [1, 2])])
    def test_of_costly_lines_that_are_there(self, tmp_path, wall_ns, kept):
        source = tmp_path / "data.py"
        source.write_text("first\n    second\n")
        folder = self.journal(tmp_path / "steps", str(source), wall_ns)
        keep_source_lines(folder, source.stat().st_mtime_ns + 1)
        rows = json.loads((folder / SOURCE_LINES_NAME).read_bytes())
        assert [row[1] for row in rows] == kept
        assert rows[-1] == [str(source), 2, "second"]

    def test_none_of_a_file_that_was_changed_since(self, tmp_path):
        source = tmp_path / "data.py"
        source.write_text("first\nsecond\n")
        folder = self.journal(tmp_path / "steps", str(source))
        keep_source_lines(folder, source.stat().st_mtime_ns)
        assert not (folder / SOURCE_LINES_NAME).exists()

    @pytest.mark.parametrize("file", ["<string>", "/nowhere/data.py", "\0"])
    def test_none_of_what_is_no_file(self, tmp_path, file):
        folder = self.journal(tmp_path / "steps", file)
        keep_source_lines(folder, 1 << 62)
        assert [path.name for path in folder.iterdir()] == ["host-1.steps"]


FRAMEWORK = """
class Loop:
    def run(self, batches):
        for batch in batches:
            self.step(batch)
    def step(self, batch):
        self.trainer.lightning_module.training_step(batch)
"""


@pytest.mark.parametrize("folder", ["site-packages", "mine"])
def test_of_a_loop_of_a_framework_what_it_calls_is_sampled(tmp_path: Path, folder: str) -> None:
    """The line of the program that calls it would have all of the time."""

    class Module:
        def training_step(self, batch):
            return batch + 1

    class Batches:
        def __init__(self):
            self.left = 3

        def __iter__(self):
            return self

        def __next__(self):
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    there: dict[str, Any] = {}
    exec(compile(FRAMEWORK, f"/x/{folder}/loops.py", "exec"), there)
    loop = there["Loop"]()
    loop.trainer = SimpleNamespace(lightning_module=Module())
    channel = Channel("lines", Journal(str(tmp_path)))
    channel.journal.lines = sampler = sampled.Sampler(channel)
    Waits(channel, lambda *_: {}).watch_steps(Batches)
    loop.run(Batches())
    (part,) = sampler.parts.values()
    first = next(iter(part.functions))
    is_framework = folder == "site-packages"
    assert first is (Module.training_step if is_framework else there["Loop"].run).__code__
