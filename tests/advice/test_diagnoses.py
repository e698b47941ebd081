"""Laws of all diagnoses: nothing is cut, nothing gains more than there is, all can be run."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace

import pytest

from tests.advice.labeled import RECIPES, made
from tests.makers.results import EXAMPLES
from vanidl.advice.changes import Predicted
from vanidl.advice.diagnoses import CAUSES, group_by_cause
from vanidl.advice.finding import Finding, Remedy
from vanidl.advice.proof import UNKNOWN, _copy_program, format_ab_line, get_own_command
from vanidl.advice.registry import list_rules
from vanidl.commands.arguments import parser
from vanidl.compare.ab import Plan, order, run_pairs
from vanidl.formatting.from_logs import MOST_COMMAND_CHARACTERS, clean_command
from vanidl.model.run_facts import Ending
from vanidl.report.summary import summary_json

RUNS = sorted(RECIPES)
TRAIN = "python train.py --lr 1"


@pytest.mark.parametrize("name", RUNS)
def test_each_finding_is_evidence_of_exactly_one_diagnosis(name):
    run = made(name)
    folded_in = [f.code for d in run.diagnoses for f in d.findings]
    assert sorted(folded_in) == sorted(f.code for f in run.findings)


@pytest.mark.parametrize("name", RUNS)
def test_no_diagnosis_saves_more_than_the_step_has(name):
    run = made(name)
    for d in run.diagnoses:
        assert d.title
        assert d.saved_share is None or 0 <= d.saved_share <= 1
        assert (d.step_s is None) == (d.now_s is None) == (not d.basis)
        if d.step_s is not None:
            assert 0 <= d.step_s <= d.now_s
            assert 1 - d.step_s / d.now_s == pytest.approx(d.saved_share)
        rows = {row.name: row.ratio for row in run.what_if.rows} if run.what_if else {}
        if d.basis == "predicted":
            assert d.now_s == pytest.approx(run.breakdown.length_ns("step") / 1e9)
            assert d.step_s >= rows[d.change] * d.now_s * (1 - 1e-9)  # and no bound is exceeded


def test_the_kind_to_name_matches_the_file_of_unknown_use():
    run = made("read_and_written")
    (line,) = [r.code for d in run.diagnoses for r in d.remedies if r.title == "Name them"]
    glob = shlex.split(line)[-1].removesuffix("=dataset")
    most = max(run.files.rows, key=lambda row: (row.kind == "other", row.bytes_read))
    assert fnmatchcase(most.path, glob)


def test_every_rule_belongs_to_one_cause():
    codes = [code for cause in CAUSES for code in cause.findings]
    assert sorted(codes) == sorted(rule.code for rule in list_rules())


def test_a_finding_of_no_cause_is_a_diagnosis_of_its_own():
    finding = Finding("new_rule", "low", "A title", "A detail.", "An advice.", {})
    assert dict(group_by_cause((finding,))) == {"new_rule": (finding,)}


def remedies() -> list[Remedy]:
    """Every remedy that any labelled run gets."""
    found = {r.code: r for name in RUNS for d in made(name).diagnoses for r in d.remedies}
    return list(found.values())


def test_python_to_copy_is_python():
    blocks = [r for r in remedies() if r.title in ("PyTorch", "TensorFlow", "Python")]
    assert len(blocks) >= 8
    for remedy in blocks:
        compile(remedy.code, "remedy", "exec")


def test_loader_commands_are_understood_by_the_loaders():
    pytest.importorskip("torch")
    from vanidl_loaders.cli import _make_parser as loaders_parser

    commands = [r.code for r in remedies() if "vanidl_loaders" in r.code]
    assert {c.split("--loader ")[1].split()[0] for c in commands} >= {
        "scheduled", "decoded", "webdataset", "spatial", "pls",
    }  # fmt: skip
    for command in commands:
        words = shlex.split(command.partition("vanidl_loaders ")[2])
        options = loaders_parser(words).parse_args(words)
        assert options.loader in command


def test_each_proof_is_a_command_of_vanidl():
    runs = [made(name) for name in RUNS[::8]]
    of = [replace(r, trace=replace(r.trace, job=replace(r.trace.job, command=TRAIN))) for r in runs]
    proofs = {d.proof for run in of for d in run.diagnoses if d.proof}
    assert proofs
    for proof in proofs:
        options = parser().parse_args(shlex.split(proof.splitlines()[-1])[1:])
        assert options.command == "ab"
        assert shlex.split(options.a) != shlex.split(options.b)
        assert order(options.repeat)


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("python train.py --workers 0 --lr 1", "python train.py --workers 4 --lr 1"),
        ("python train.py --num-workers=0", "python train.py --num-workers=4"),
        ("python train.py --num_workers 0", "python train.py --num_workers 4"),
        ("python -u a/train.py --lr 1", "python -u a/train_changed.py --lr 1"),
        ("python -m package.train -x 1", "python -m package.train_changed -x 1"),
        ("python -m torch.distributed.run t.py", "python -m torch.distributed.run t_changed.py"),
        ("sh -c 'ls && python a/train.py 1'", "sh -c 'ls && python a/train_changed.py 1'"),
        ("python train.py 'cut off", "python train_changed.py ''\"'\"'cut' off"),
    ],
)
def test_the_second_command_has_the_change(command, changed):
    trace = made("healthy").trace
    trace = replace(trace, job=replace(trace.job, command=command))
    best = Predicted("4 workers", 0.1, 0.5, 1.0, "workers", 4)
    line = format_ab_line(trace, best, (Remedy("PyTorch", "x = 1"),))
    assert shlex.split(line.splitlines()[-1])[-1] == changed


@pytest.mark.parametrize(
    "command",
    ["", "./train --lr 1", "python -c 'import train' -x train.py", "sh -c 'cd a && python t.py'"],
)
def test_no_command_is_made_up_for_what_cannot_be_copied(command):
    trace = made("healthy").trace
    trace = replace(trace, job=replace(trace.job, command=command))
    assert format_ab_line(trace, None, (Remedy("PyTorch", "x = 1"),)) == ""


STARTED = {
    "a script": "python train.py --lr 1",
    "an interpreter's option": "python -u train.py",
    "an option for workers": "python train.py --workers 0",
    "a name with a blank": "python 'my train.py' --lr 1",
    "a folder": "python code/train.py",
    "a module": "python -m package.train --config base.py",
    "torchrun": "torchrun --standalone --nproc-per-node 2 train.py --lr 1",
    "torchrun with a module": "torchrun --nproc-per-node 2 -m package.train",
    "mpiexec": "mpiexec -n 2 python train.py",
    "srun": "srun -n 2 --cpu-bind=cores python train.py --lr 1",
    "masked words": "python train.py --token *** --url https://***@host/x",
    "a shell's line": "sh -c 'python code/train.py --note \"a b\"; exit $?'",
    "words that a shell would replace": "python train.py --note '$HOME & *'",
}
SCRIPT = "import os, sys\nopen(os.environ['SAID'], 'a').write(repr(sys.argv) + '\\n')\n"
STARTER = """#!/bin/sh
# drops the options of its own, and starts the program once
while [ $# -gt 0 ]; do case "$1" in
-n|--nproc-per-node) shift 2;; -m) break;; -*) shift;; *) break;; esac; done
case "$1" in -m|*.py) exec python "$@";; *) exec "$@";; esac
"""


@pytest.mark.parametrize("kind", STARTED)
def test_what_is_printed_runs_as_printed(kind, tmp_path, monkeypatch):
    """Of each way to start a training: the lines as they stand, in a shell and in vanidl ab."""
    for folder in ("", "code", "package"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "train.py").write_text(SCRIPT)
    (tmp_path / "my train.py").write_text(SCRIPT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    for name in ("torchrun", "mpiexec", "srun"):
        (tmp_path / "bin" / name).write_text(STARTER)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))

    trace = made("healthy").trace
    trace = replace(trace, job=replace(trace.job, command=STARTED[kind]))
    best = Predicted("4 workers", 0.1, 0.5, 1.0, "workers", 4)
    *before, line = format_ab_line(trace, best, (Remedy("PyTorch", "x = 1"),)).splitlines()
    for number, each in enumerate(before):
        if each.startswith("# export VANIDL_SECRET_"):
            monkeypatch.setenv(each.split()[2].partition("=")[0], f"s$cret {number}")
        else:
            subprocess.run(each, shell=True, check=True)
    options = parser().parse_args(shlex.split(line)[1:])

    def recorder(words, folder, tracer):
        status = subprocess.run(words, check=False).returncode
        return SimpleNamespace(exit_status=status, tracer=tracer, ending=Ending(status))

    run_pairs(Plan(options.a, options.b, tmp_path / "runs", 1), recorder)
    said = [ast.literal_eval(row) for row in (tmp_path / "said").read_text().splitlines()]
    ran_a, ran_b = (said[0], said[3]), (said[1], said[2])  # A B, B A
    assert ran_a[0] == ran_a[1] != ran_b[0] == ran_b[1]
    assert not any("***" in word or "VANIDL" in word for row in said for word in row)
    assert sum(a != b for a, b in zip(ran_a[0], ran_b[0], strict=True)) == 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_diagnoses_of_every_shape_of_run_are_in_the_json(name):
    run = EXAMPLES[name]().run
    told = json.loads(summary_json(run))["diagnoses"]
    assert [d["code"] for d in told] == [d.code for d in run.diagnoses]
    assert all(set(d) >= {"title", "step_s", "findings", "remedies", "proof"} for d in told)


def test_worst_steps_are_those_that_waited_longest():
    run = made("slow_first_batches")
    table = run.steps.table
    waits = sorted(table.input_wait_s.tolist(), reverse=True)[:3]
    assert [s.wait_s for s in run.diagnoses[0].show] == waits


@pytest.mark.parametrize("command", ["", "407752450"])
def test_a_hash_in_place_of_a_command_is_no_command(command):
    run = made("in_process_slow_storage")
    trace = replace(run.trace, job=replace(run.trace.job, command=command))
    remedy = Remedy("PyTorch", "code", "why")
    assert format_ab_line(trace, None, (remedy,)) == ""


def ab_of(command, best=None):
    trace = made("healthy").trace
    trace = replace(trace, job=replace(trace.job, command=clean_command(command)))
    return format_ab_line(trace, best, (Remedy("PyTorch", "x = 1"),))


def test_a_masked_word_is_a_variable_that_a_line_names():
    command = "python train.py --hf-token=AAAA --password BBBB https://me:CCCC@h/x --workers 0"
    *said, line = ab_of(command, Predicted("4 workers", 0.1, 0.5, 1.0, "workers", 4)).splitlines()
    assert [text.split(": ")[1] for text in said] == [
        "the value of --hf-token, which was masked",
        "the value of --password, which was masked",
        "the user of https://, which was masked",
    ]
    assert [text.split()[2] for text in said] == [f"VANIDL_SECRET_{n}=..." for n in (1, 2, 3)]
    options = parser().parse_args(shlex.split(line)[1:])
    for words, workers in ((options.a, 0), (options.b, 4)):
        assert words == (
            'python train.py --hf-token="$VANIDL_SECRET_1" --password "$VANIDL_SECRET_2" '
            f'https://"$VANIDL_SECRET_3"@h/x --workers {workers}'
        )
    assert clean_command(options.a) == options.a


def test_a_shell_puts_the_secrets_in():
    own = own_command_of("python t.py --token 'a b' --x='$HOME' url=http://u:p@h/")
    script = f"printf '%s\\n' {own.text}"
    hidden = {f"VANIDL_SECRET_{n + 1}": f"two {n}" for n in range(len(own.hidden))}
    done = subprocess.run(
        ["sh", "-c", script], env=hidden, capture_output=True, text=True, check=True
    )
    assert "two 0" in done.stdout.splitlines()
    assert "url=http://two 1@h/" in done.stdout.splitlines()


def own_command_of(command):
    trace = made("healthy").trace
    return get_own_command(replace(trace, job=replace(trace.job, command=clean_command(command))))


def test_a_command_that_was_cut_is_not_run_again():
    assert own_command_of("python t.py " + "x " * MOST_COMMAND_CHARACTERS).text == UNKNOWN


@pytest.mark.parametrize(
    ("word", "changed"),
    [("/" * 170_000, ""), ("./" * 85_000 + "t.py", "_changed"), ("a.py/" * 34_000, "")],
)
def test_long_words_of_a_command_take_their_length(word, changed):
    then = _copy_program(f"python {word}")
    assert (then and then[0]) == (f"python {word[:-3]}_changed.py" if changed else None)
