"""The command line: parses, dispatches, and turns errors into one line and a status.

Exit status: 0 done, 1 something needed is missing or damaged, 2 wrong usage, 128 and its number
after a signal.
"""

from __future__ import annotations

import argparse
import atexit
import difflib
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from . import console
from .commands import COMMANDS
from .errors import InputError, LoadersError, UsageError, report_missing_package
from .loader.stalls import StalledError, allow_ending
from .ranks.ending import end_ranks, end_with_launcher, find_launcher, keep_status
from .ranks.world import abort_on_error

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
SIGNALLED = 128  # and the number of the signal: above any other status
_said: list[str] = []
_stalled: list[StalledError] = []


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit status. Never raises for a bad input."""
    own, line = _split_line(list(sys.argv[1:] if arguments is None else arguments))
    with console.escaped(), console.ended_by_signals():
        try:
            options = _make_parser(own).parse_args(own, argparse.Namespace(line=line))
            status: int = options.command.run(options)
            sys.stdout.flush()
        # Whatever ends a command is one line, and a status that says how it ended.
        except LoadersError as error:
            return _report_failure(error)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] == "vanidl_loaders":
                raise error
            missing = report_missing_package(error.name.split(".")[0])
            return _report_failure(missing)
        except console.ReaderGone:
            console.discard(sys.stdout)
            return 1
        except OSError as error:
            what = f"to use {error.filename}" if error.filename else "storage and network to answer"
            found = error.strerror or _flatten_text(error)
            unreadable = InputError(f"expected {what}, found: {found}; see to it, start again")
            return _report_failure(unreadable)
        except MemoryError as error:
            why = f"expected enough memory, found too little: {error}; ask for less"
            return _report_failure(InputError(why))
        except KeyboardInterrupt:
            return INTERRUPTED
        except console.Ended as end:
            # A user who ends a command knows; a rank that its launcher ends says why it stops.
            by = find_launcher()
            if by is not None:
                sys.stderr.write(
                    f"loaders: expected to go on, found that {by} ended this rank (signal "
                    f"{end.exit_status - SIGNALLED}): see what other ranks said, start again\n"
                )
            return end.exit_status
        return status


def entry() -> None:
    """The console script."""
    atexit.register(_hide_leaks)  # the first to be registered is the last to run
    abort_on_error()
    end_with_launcher()
    allow_ending()
    console.interrupted_once()
    console.end_quietly()
    try:
        status = main()
    except KeyboardInterrupt:  # between what main guards
        status = INTERRUPTED
    keep_status()
    if status and status < SIGNALLED:
        end_ranks(status, _said[-1] if _said else f"exit status {status}")
    if _stalled:  # what hangs in the storage would hold up the interpreter's end
        sys.stdout.flush()
        os._exit(status)
    gc.freeze()  # else the end looks through PyTorch's modules, which takes a second
    sys.exit(status)


def _hide_leaks() -> None:
    """Triton's library would print 31 lines on what `gc.freeze` leaves to the system."""
    if "triton" in sys.modules:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _make_parser(arguments: Sequence[str]) -> Parser:
    parser = Parser(
        prog="python -m vanidl_loaders",
        description="Data loaders for deep learning, and their baselines.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        if command.NAME in arguments:  # options of some commands need PyTorch: ask only the one
            command.add_arguments(sub)
        sub.set_defaults(command=command)
    return parser


def _split_line(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before and after the first `--`: own options, and a command to run."""
    if "--" not in arguments:
        return arguments, []
    border = arguments.index("--")
    return arguments[:border], arguments[border + 1 :]


def _flatten_text(error: Exception) -> str:
    """Its text in a line: PyTorch hands on errors of its workers with their tracebacks."""
    text = " ".join(str(error).split())
    own = text.rpartition(f"{type(error).__name__}: ")[2]
    return own if text.startswith("Caught ") else text


def _report_failure(error: LoadersError) -> int:
    _said.append(_flatten_text(error))
    if isinstance(error, StalledError):
        _stalled.append(error)
    sys.stderr.write(f"loaders: {_said[-1]}\n")
    return error.exit_status


_LACKING = "the following arguments are required: "
_KINDS: dict[object, str] = {int: "a whole number", float: "a number"}


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse prints a page and exits: ranks then end together."""

    def error(self, message: str) -> NoReturn:
        """Raises the message, and where help is."""
        if message.startswith(_LACKING):
            message = f"expected {message.removeprefix(_LACKING)}, found none"
        raise UsageError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """As of `ArgumentParser`, but that there may be no unknown ones.

        Raises:
            UsageError: Something is missing, unknown or no value of its option.
        """
        options, unknown = super().parse_known_args(args, namespace)
        # What the user may have meant is named.
        if unknown:
            names = [name for each in self._actions for name in each.option_strings]
            guess = _suggest(unknown[0], names)
            self.error(f"expected options of {self.prog}, found {unknown[0]}{guess}")
        return options, unknown

    def _get_value(self, action: argparse.Action, text: str) -> Any:  # noqa: ANN401
        """The value of a word, which may not be of the option's type."""
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError as error:
            option = _name_option(action)
            if isinstance(error.__context__, argparse.ArgumentTypeError):  # says all by itself
                raise argparse.ArgumentError(None, f"{option}: {error.message}") from error
            kind = _KINDS.get(action.type, str(action.metavar or "another value"))
            raise argparse.ArgumentError(
                None, f"expected {kind} for {option}, found {text!r}"
            ) from error

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        what = _suggest(str(value), choices) or f"; choose from {', '.join(choices)}"
        raise argparse.ArgumentError(
            None, f"expected a known {_name_option(action)}, found {str(value)!r}{what}"
        )


def _name_option(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _suggest(word: str, known: Sequence[str]) -> str:
    """`; did you mean --batch?`, or nothing where no known word is like it."""
    close = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
