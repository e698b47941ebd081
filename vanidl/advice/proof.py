"""The command that measures a change: the run's own command against the changed one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from vanidl.advice.changes import Predicted
from vanidl.advice.finding import Remedy
from vanidl.formatting.from_logs import CUT_MARK
from vanidl.formatting.secret_hints import MASK, MASKED_WORD
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass

_WORKERS = re.compile(r"--(num[-_])?workers")
_INNER_WORD = re.compile(r"[^\s'\";&|]+")
_LAUNCHERS = frozenset({
    "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
    "deepspeed.launcher.runner", "horovod.runner.launch", "mpi4py", "cProfile", "torchrun",
})  # fmt: skip
"""Modules that start another program: theirs is not the one to change."""
_SHELLS = frozenset({"sh", "bash", "zsh", "dash"})
UNKNOWN = "python train.py"


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """The command of a run, to be run again in a shell.

    A masked word is `"$VANIDL_SECRET_1"`, and so on; `hidden` names what each stood for.
    """

    text: str
    hidden: tuple[str, ...] = ()

    def below_secrets(self, line: str) -> str:
        """The line, below one for each masked word."""
        said = (
            f"# export VANIDL_SECRET_{number}=... first: {what}, which was masked"
            for number, what in enumerate(self.hidden, 1)
        )
        return "\n".join([*said, line])


def get_own_command(trace: Trace) -> OwnCommand:
    """The command of the run; an example where none is known, as in logs that hold its hash."""
    command = trace.job.command
    if not command or command.isdigit() or command.endswith(CUT_MARK):
        return OwnCommand(UNKNOWN)
    if MASK not in command:
        return OwnCommand(command)
    # Each masked secret becomes a variable that the reader sets.
    words, hidden = _split_words(command), list[str]()
    for i, word in enumerate(words):
        while MASK in word:
            before = word.partition(MASK)[0]
            hidden.append(_name_masked_word(before, words[i - 1] if i else ""))
            word = word.replace(MASK, f"$VANIDL_SECRET_{len(hidden)}", 1)
        words[i] = word
    return OwnCommand(_join_command(words), tuple(hidden))


def format_ab_line(trace: Trace, best: Predicted | None, remedies: tuple[Remedy, ...]) -> str:
    """`vanidl ab` with both commands; "" where there is nothing to copy into the second.

    The number of workers is changed where the command has an option for it, else the second
    command runs a copy of the script, which a line above makes. No command is made up: "" too
    where none is known, or none of its words names what could be copied.
    """
    own = get_own_command(trace)
    if not remedies or own.text == UNKNOWN:
        return ""
    workers = best.amount if best is not None and best.lever == "workers" else None
    if trace.streams:
        workers = None  # the dataset is to be changed, too
    then, copy = _set_workers(own.text, workers) if workers is not None else None, ""
    # No option of the command says how many workers: a copy of the script is changed.
    if then is None:
        changed = _copy_program(own.text)
        if changed is None:
            return ""
        then, copy = changed
    line = f"vanidl ab --repeat 5 -o ab.html --a {shlex.quote(own.text)} --b {shlex.quote(then)}"
    return own.below_secrets(f"{copy}\n{line}" if copy else line)


def _name_masked_word(before: str, word_before: str) -> str:
    """What a masked word was: by what stands before it in its word, or by the word before."""
    if before.endswith("://"):
        return f"the user of {before}"
    name = re.split(r"[\s\"'?&]", before.rstrip("=: \"'"))[-1]
    return f"the value of {name or word_before or 'the first word'}"


def _split_words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # logs cut long commands, in the middle of a quote too
        return command.split()


def _join_command(words: Sequence[str]) -> str:
    """As `shlex.join`, but that a shell still replaces what stands for masked words."""
    return " ".join(map(_quote_word, words))


def _quote_word(word: str) -> str:
    secrets = MASKED_WORD.findall(word)
    if not secrets:
        return shlex.quote(word)
    plain = [piece and shlex.quote(piece) for piece in MASKED_WORD.split(word)]
    return plain[0] + "".join(f'"{s}"{p}' for s, p in zip(secrets, plain[1:], strict=True))


def _set_workers(command: str, workers: float) -> str | None:
    words = _split_words(command)
    for i, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if not _WORKERS.fullmatch(name):
            continue
        # Both forms, --workers=4 and --workers 4.
        if equals:
            return _join_command([*words[:i], f"{name}={workers:.0f}", *words[i + 1 :]])
        if i + 1 < len(words):
            return _join_command([*words[: i + 1], f"{workers:.0f}", *words[i + 2 :]])
    return None


def _copy_program(command: str) -> tuple[str, str] | None:
    """The command with a copy of its program, and the line that makes the copy.

    The program is the first word that names a script, or the module behind -m, unless that starts
    another; in the word of a shell's -c it is looked for inside. None: there is neither.
    """
    words = _split_words(command)
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        if before == "-m" and word not in _LAUNCHERS:
            path = word.replace(".", "/")
            copy = f"cp -n {path}.py {path}_changed.py  # make the change there"
            return _join_command([*words[:i], f"{word}_changed", *words[i + 1 :]]), copy
        inner = [word]
        if before == "-c":
            if PurePosixPath(words[i - 2]).name not in _SHELLS:
                return None  # a program in a word of its command
            inner = _INNER_WORD.findall(word)
            if {"cd", "pushd"} & set(inner):
                return None  # a folder that the copy would have to be made in
        script = next((each for each in inner if each.endswith(".py")), None)
        if script is None:
            continue
        changed = f"{script[:-3]}_changed.py"
        copy = f"cp -n {shlex.quote(script)} {shlex.quote(changed)}  # make the change there"
        word = word.replace(script, changed, 1)
        return _join_command([*words[:i], word, *words[i + 1 :]]), copy
    return None
