"""Patches of a program: git applies them, and it then does what it did, or has these arguments."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.advice import labeled
from vanidl.advice.actions import (
    KEEP_FILES,
    KEEP_OPEN,
    LOADER,
    PREPARE,
    SAVE_BEHIND,
    SAVE_SELDOM,
    SEND_BEHIND,
    SYNC_SELDOM,
)
from vanidl.advice.patches import patch_program
from vanidl.model.lines import FETCH, FunctionLines, LineCost, SampledPart

BEGIN = "from torch.utils.data import DataLoader\n\n\ndef main():\n"


def trace_of(path, names=("DataLoader 0 (Files, training)",)):
    """A run of the program in a file, which was there before it."""
    trace = labeled.made("healthy").trace
    function = FunctionLines(str(path), "main", 1, True, None, 0, (LineCost(1, 1, 1, 1),))
    os.utime(path, ns=(trace.job.start_ns - 10**9,) * 2)
    return replace(
        trace,
        lines=(SampledPart(FETCH, 1, 1, 1, (function,)),),
        fetches=replace(trace.fetches, names=names),
    )


def arguments_of(source: str) -> list[dict[str, str]]:
    """Of each call of a loader its arguments by name."""
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    return [
        {k.arg: ast.unparse(k.value) for k in call.keywords}
        | {str(i): ast.unparse(arg) for i, arg in enumerate(call.args)}
        for call in calls
        if ast.unparse(call.func).endswith("DataLoader")
    ]


@pytest.mark.parametrize(
    ("call", "then"),
    [
        ("DataLoader(set_)", {"0": "set_", "num_workers": "4"}),
        ("DataLoader(set_, 8, num_workers=1)", {"0": "set_", "1": "8", "num_workers": "4"}),
        ("DataLoader(set_, 8, True, None, None, 2)",
         {"0": "set_", "1": "8", "2": "True", "3": "None", "4": "None", "5": "4"}),
        ("DataLoader(\n        set_,  # \u00e9\n        num_workers=count(),\n    )",
         {"0": "set_", "num_workers": "4"}),
        ("data.DataLoader(set_, batch_size=2,)", {"0": "set_", "batch_size": "2",
                                                  "num_workers": "4"}),
    ],
)  # fmt: skip
def test_git_applies_a_patch_that_changes_the_arguments_and_nothing_else(tmp_path, call, then):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    x = '\u00fc'; loader = {call}\n", encoding="utf-8")
    patch = patch_program(trace_of(program), LOADER, {"num_workers": "4"})
    apply = ["git", "apply", "-"]
    subprocess.run(apply, cwd=tmp_path, input=patch, text=True, check=True, encoding="utf-8")
    changed = program.read_text(encoding="utf-8")
    assert arguments_of(changed) == [then]
    assert changed.startswith(f"{BEGIN}    x = '\u00fc'; loader = ")


def test_of_several_loaders_the_one_over_the_recorded_dataset_is_changed(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        f"{BEGIN}    held = DataLoader(Other())\n    files = Files()\n"
        "    loader = DataLoader(files)\n"
    )
    patch = patch_program(trace_of(program), LOADER, {"num_workers": "2"})
    assert "+    loader = DataLoader(files, num_workers=2)" in patch
    assert "+    held" not in patch


@pytest.mark.parametrize(
    "source",
    [
        "DataLoader(Files(), **options)",
        "DataLoader(Files()), DataLoader(Files())",
        "make_loader(Files())",
        "DataLoader(Files()",
    ],
)
def test_no_patch_is_made_where_it_is_not_plain_what_to_change(tmp_path, source):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    loader = {source}\n")
    assert patch_program(trace_of(program), LOADER, {"num_workers": "2"}) == ""


def test_no_patch_is_made_of_a_program_that_was_changed_or_is_gone(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    loader = DataLoader(Files())\n")
    trace = trace_of(program)
    assert patch_program(trace, LOADER, {"num_workers": "2"})
    os.utime(program, ns=(trace.job.start_ns + 10**9,) * 2)
    assert patch_program(trace, LOADER, {"num_workers": "2"}) == ""
    program.unlink()
    assert patch_program(trace, LOADER, {"num_workers": "2"}) == ""


def test_arguments_that_need_workers_are_not_given_to_a_loader_without(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    loader = DataLoader(Files())\n")
    trace = trace_of(program)
    assert patch_program(trace, LOADER, {"persistent_workers": "True"}) == ""
    assert patch_program(trace, LOADER, {"num_workers": "2", "persistent_workers": "True"})


@pytest.mark.parametrize(
    "line",
    ["password = 'hunter22hunter22'", "note = '\x1b[31m'", "x = 1\r", "x = 1\x0c", None],
)
def test_no_patch_shows_secrets_or_holds_lines_that_git_would_count_otherwise(tmp_path, line):
    program = tmp_path / "train.py"
    last = "    loader = DataLoader(Files())"
    source = f"{BEGIN}{last}" if line is None else f"{BEGIN}    {line}\n{last}\n"
    program.write_bytes(source.encode())
    assert patch_program(trace_of(program), LOADER, {"num_workers": "2"}) == ""


def run_patched(folder, source: str, kind: str, settings: dict[str, str] | None = None) -> str:
    """What a program prints with a patch in it, by its own interpreter."""
    program = folder / "train.py"
    program.write_text(source)
    patch = patch_program(trace_of(program), kind, settings)
    apply = ["git", "apply", "-"]
    subprocess.run(apply, cwd=folder, input=patch, text=True, check=True, encoding="utf-8")
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


ARCHIVE = """\
import zipfile

def read(name):
{}

opened = zipfile.ZipFile.__init__
count = [0]
def counted(self, *arguments, **options):
    count[0] += 1
    opened(self, *arguments, **options)
zipfile.ZipFile.__init__ = counted
print([read(f"{{k % 3}}") for k in range(9)], count[0])
"""


@pytest.mark.parametrize(
    "body",
    [
        "    archive = zipfile.ZipFile('data.zip')\n    return archive.read(name)",
        "    with zipfile.ZipFile('data.zip', 'r') as archive:\n        return archive.read(name)",
        "    archive = zipfile.ZipFile('data.zip')\n    found = archive.read(name)\n"
        "    archive.close()\n    return found",
    ],
)
def test_an_archive_is_opened_once_and_gives_out_the_same(tmp_path, body):
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for k in range(3):
            archive.writestr(str(k), f"member {k}")
    expected = [f"member {k % 3}".encode() for k in range(9)]
    assert run_patched(tmp_path, ARCHIVE.format(body), KEEP_OPEN) == f"{expected} 1\n"


@pytest.mark.parametrize(
    "body",
    [
        "    archive = zipfile.ZipFile('data.zip', 'a')\n    archive.writestr(name, name)",
        "    hold = self.archive = zipfile.ZipFile('data.zip')\n    hold.fp.close()",
        "    return zipfile.ZipFile(*name), zipfile.ZipFile('other.zip').read(name)"
        " + zipfile.ZipFile('third.zip').read(name)",
    ],
)
def test_an_archive_that_is_written_closed_elsewhere_or_one_of_several_is_left(tmp_path, body):
    program = tmp_path / "train.py"
    program.write_text(ARCHIVE.format(body))
    assert patch_program(trace_of(program), KEEP_OPEN) == ""


SAVING = """\
import numpy as np

def main(state):
    for step in range(3):
        state += 1
{}

main(np.zeros(4))
"""


def test_what_is_saved_behind_the_loop_is_the_state_as_it_was(tmp_path):
    source = SAVING.format('        np.save(f"{step}.npy", state)')
    run_patched(tmp_path, source, SAVE_BEHIND)
    saved = [np.load(tmp_path / f"{step}.npy").tolist() for step in range(3)]
    assert saved == [[step + 1.0] * 4 for step in range(3)]


def test_an_error_of_a_save_behind_the_loop_is_raised_by_the_next(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(SAVING.format('        np.save(f"none/{step}.npy", state)'))
    patch = patch_program(trace_of(program), SAVE_BEHIND)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "none/0.npy" in done.stderr


@pytest.mark.parametrize(
    "lines",
    [
        '        np.save(f"{step}.npy", state)\n        os.replace(f"{step}.npy", "last.npy")',
        "        np.save(stream, state)",
        '        size = np.save(f"{step}.npy", state)',
        '        np.save("a" + "b", state)\n        np.save("c" + "d", state)',
    ],
)
def test_a_save_is_left_where_later_lines_may_need_its_file(tmp_path, lines):
    program = tmp_path / "train.py"
    program.write_text(SAVING.format(lines))
    assert patch_program(trace_of(program), SAVE_BEHIND) == ""


@pytest.mark.parametrize(("every_s", "count"), [("30", 1), ("0", 3)])
def test_of_saves_that_come_too_often_the_last_one_is_made_when_the_program_ends(
    tmp_path, every_s, count
):
    program = tmp_path / "train.py"
    program.write_text(SAVING.format('        np.save(f"{step}.npy", state)'))
    patch = patch_program(trace_of(program), SAVE_SELDOM, {"every_s": every_s})
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True)
    assert len(list(tmp_path.glob("*.npy"))) == count
    assert np.load(tmp_path / "2.npy").tolist() == [3.0] * 4


def test_of_several_saves_the_one_that_was_seen_running_is_changed(tmp_path):
    program = tmp_path / "train.py"
    source = SAVING.format('        np.save(f"{step}.npy", state)')
    made = 'def make():\n    np.save("data" + ".npy", np.ones(9))\n\n\ndef main'
    program.write_text(source.replace("def main", made))
    patch = patch_program(trace_of(program), SAVE_BEHIND)
    assert '+        _save_behind(np.save, f"{step}.npy", state)' in patch
    assert '_save_behind(np.save, "data"' not in patch


def test_a_file_that_was_synced_with_each_step_is_synced_once_a_while(tmp_path):
    source = (
        "import os\n\ndef main():\n    with open('journal', 'w') as journal:\n"
        "        for step in range(50):\n            print(step, file=journal, flush=True)\n"
        "            os.fsync(journal.fileno())\n\n"
        "synced, count = os.fsync, []\nos.fsync = lambda file: (count.append(file), synced(file))\n"
        "main()\nprint(len(count))\n"
    )
    assert run_patched(tmp_path, source, SYNC_SELDOM) == "1\n"
    assert (tmp_path / "journal").read_text().split() == [str(step) for step in range(50)]


SENDING = """\
import io
import threading

asked, begun = [], threading.Event()

def urlopen(url, data=None):
    begun.wait(10)  # nothing is answered before the loop has ended
    asked.append((url, data))
    if "wrong" in url:
        raise OSError(url)
    return io.BytesIO(b"thanks")

def main(row):
    for step in range(3):
        row["step"] = step
{}

main({{}})
print(len(asked))
begun.set()
import atexit
atexit._run_exitfuncs()
print(sorted((url, data and data["step"]) for url, data in asked))
"""


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ('        urlopen(f"/{step}")', [(f"/{k}", None) for k in range(3)]),
        ('        with urlopen(f"/{step}", row) as answer:\n            answer.read()',
         [(f"/{k}", k) for k in range(3)]),
        ('        with urlopen(f"/{step}"):\n            pass',
         [(f"/{k}", None) for k in range(3)]),
    ],
)  # fmt: skip
def test_requests_are_sent_behind_the_loop_with_what_they_were_given(tmp_path, body, asked):
    said = run_patched(tmp_path, SENDING.format(body), SEND_BEHIND)
    assert said == f"0\n{asked}\n"


def test_an_error_of_a_request_behind_the_loop_is_raised_when_the_program_ends(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(SENDING.format('        urlopen("/wrong")'))
    patch = patch_program(trace_of(program), SEND_BEHIND)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "OSError: /wrong" in done.stderr


@pytest.mark.parametrize(
    "body",
    [
        '        row = urlopen(f"/{step}").read()',
        '        with urlopen(f"/{step}") as answer:\n            row["rate"] = answer.read()',
        '        urlopen(f"/{step}")\n        urlopen("/other")',
        "        urlopen()",
    ],
)
def test_a_request_whose_answer_is_used_is_left_in_the_loop(tmp_path, body):
    program = tmp_path / "train.py"
    program.write_text(SENDING.format(body))
    assert patch_program(trace_of(program), SEND_BEHIND) == ""


def test_no_helper_is_added_where_its_name_is_taken(tmp_path):
    program = tmp_path / "train.py"
    source = "import os\n\ndef main(file, _os):\n    os.fsync(file)\n    return _os\n"
    program.write_text(source)
    assert patch_program(trace_of(program), SYNC_SELDOM) == ""
    program.write_text(source.replace("_os", "system"))
    assert patch_program(trace_of(program), SYNC_SELDOM) != ""


READING = """\
import os

def main(name):
    {}
        return file.read()

before = [main(f"{{k}}.bin") for k in range(3)]
for k in range(3):
    os.unlink(f"{{k}}.bin")
print(before == [main(f"{{k}}.bin") for k in range(3)], len(before[2]))
print(os.environ["VANIDL_KEPT_FILES"])
"""


def test_files_are_read_from_their_copies_which_go_with_the_program(tmp_path):
    for k in range(3):
        (tmp_path / f"{k}.bin").write_bytes(os.urandom(1000 + k))
    source = READING.format('with open(name, "rb") as file:')
    said, folder = run_patched(tmp_path, source, KEEP_FILES).splitlines()
    assert said == "True 1002"
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    "line",
    [
        'with open(name, "r+b") as file:',
        "with open(name) as file:",
        'with open(*name, mode="rb") as file:',
        'with open(name, "rb") as file, open("log", "rb") as other:',
        'with io.open(name, "rb") as file:',
    ],
)
def test_files_that_are_written_or_one_of_several_are_not_kept(tmp_path, line):
    program = tmp_path / "train.py"
    program.write_text(READING.format(line))
    assert patch_program(trace_of(program), KEEP_FILES) == ""


TWO = """\
class Other:
    def main(self, name):
        with open(name, "rb") as file:
            return file.read()

class Read:
    def main(self, name):
        with open(name, "rb") as file:
            return len(file.read())
"""


def test_of_methods_of_one_name_the_one_that_was_sampled_is_changed(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(TWO)
    trace = trace_of(program)
    (part,) = trace.lines
    function = replace(part.functions[0], name="Read.main", first=7)
    patch = patch_program(replace(trace, lines=(replace(part, functions=(function,)),)), KEEP_FILES)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    other, read = program.read_text().split("class Read:")
    assert 'open(name, "rb")' in other
    assert 'open(_keep_file(name), "rb")' in read


TORCH = """\
def default_collate(samples):
    return list(samples)

class DataLoader:
    def __init__(self, dataset, batch_size=1, num_workers=0, collate_fn=default_collate, **more):
        self.batches = [dataset[k : k + batch_size] for k in range(0, len(dataset), batch_size)]
        self.collate, self.workers, self.more = collate_fn, num_workers, more

    def __iter__(self):
        return map(self.collate, self.batches)
"""
PREPARING = """\
from torch.utils.data import DataLoader

def {function}

def main(rows):
    loader = DataLoader({arguments})
    for batch in loader:
        {first}
        print(sum({used}), loader.workers, loader.collate.__class__.__name__)

main(list(range(6)))
"""
DOUBLED = "double(batch, by=2):\n    return [by * row for row in batch]"


def preparing(first, used="batch", arguments="rows, batch_size=3", function=DOUBLED):
    return PREPARING.format(first=first, used=used, arguments=arguments, function=function)


@pytest.mark.parametrize(
    ("source", "factor", "workers"),
    [
        (preparing("batch = double(batch)"), 2, 2),
        (preparing("batch = double(batch, 5)"), 5, 2),
        (preparing("twice = double(batch)", "twice"), 2, 2),
        (preparing("batch = double(batch)", arguments="rows, batch_size=3, num_workers=1"), 2, 1),
    ],
)
def test_workers_prepare_batches_that_are_what_the_loop_made_of_them(
    tmp_path, source, factor, workers
):
    (tmp_path / "torch/utils").mkdir(parents=True)
    for package in ("torch", "torch/utils"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "torch/utils/data.py").write_text(TORCH)
    said = run_patched(tmp_path, source, PREPARE, {"num_workers": "2"}).splitlines()
    assert said == [f"{factor * total} {workers} _Prepared" for total in (3, 12)]


@pytest.mark.parametrize(
    "source",
    [
        preparing("twice = double(batch)", "batch"),  # it is needed as it was
        preparing("batch = double(batch, by=3)"),
        preparing("batch = double(rows)"),
        preparing("batch = sorted(batch)"),
        preparing("done = len(batch); batch = double(batch)"),
        preparing("batch = double(batch)", arguments="rows, collate_fn=list"),
        preparing("batch = double(batch)", arguments="rows, batch_size=None"),
        preparing("batch = double(batch)", arguments="rows, **options"),
        preparing("batch = double(batch)", function="double(batch):\n    return batch.to(device)"),
        preparing("batch = double(batch)",
                  function="double(batch):\n    global seen\n    seen = batch\n    return batch"),
    ],
)  # fmt: skip
def test_what_a_loop_may_need_of_its_batches_stays_in_it(tmp_path, source):
    program = tmp_path / "train.py"
    program.write_text(source)
    assert patch_program(trace_of(program), PREPARE, {"num_workers": "2"}) == ""


def test_memory_of_batches_is_pinned_by_an_argument(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(f"{BEGIN}    loader = DataLoader(set_, num_workers=2)\n")
    patch = patch_program(trace_of(program), LOADER, {"pin_memory": "True"})
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    (arguments,) = arguments_of(program.read_text())
    assert arguments == {"0": "set_", "num_workers": "2", "pin_memory": "True"}
