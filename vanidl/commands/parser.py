"""The parser of the command line: commands in groups, examples, defaults, and guesses at typos."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NoReturn

import vanidl
from vanidl.commands import COMMANDS, EXAMPLES, GROUPS
from vanidl.commands.arguments import ARGUMENTS

_QUIET_DEFAULTS: tuple[object, ...] = (None, False, True, "", argparse.SUPPRESS)


@cache
def parser() -> argparse.ArgumentParser:
    """Of `vanidl`, made once; a command declares its options when it is first chosen."""
    top = _Parser(
        prog="vanidl",
        usage="vanidl [-h] [--version] COMMAND ...",
        description="Where does training time go to I/O, is it hidden behind compute, and did "
        "the change help?",
        epilog=_overview(),
        formatter_class=_Help,
    )
    version = getattr(vanidl, "__version__", "of unknown version")
    top.add_argument("--version", action="version", version=f"vanidl {version}")
    commands = top.add_subparsers(
        title="commands", metavar="COMMAND", required=True, help=argparse.SUPPRESS,
        parser_class=_CommandParser, prog="vanidl",
    )  # fmt: skip
    for name, text in COMMANDS.items():
        commands.add_parser(
            name, description=text, epilog=_examples(name), formatter_class=_Help
        ).set_defaults(command=name)
    return top


def command_parser(name: str) -> argparse.ArgumentParser:
    """Of one command alone, with its options."""
    own = argparse.ArgumentParser(prog=f"vanidl {name}")
    ARGUMENTS[name](own)
    return own


def _overview() -> str:
    """Commands by what they are for, each in a line."""
    grouped = [name for names in GROUPS.values() for name in names]
    groups = {**GROUPS, "more": tuple(name for name in COMMANDS if name not in grouped)}
    lines: list[str] = []
    for title, names in groups.items():
        known = [name for name in names if name in COMMANDS]
        if known:
            lines += [f"{title}:", *map(_entry, known), ""]
    shown = [line for name in ("record", "summary") for line in EXAMPLES[name]]
    return "\n".join([*lines, *_listed(shown)])


def _entry(name: str) -> str:
    """A command and what it does, in the columns of a terminal."""
    room = max(map(len, COMMANDS)) + 4
    head = f"  {name}".ljust(room)
    return textwrap.fill(COMMANDS[name], 80, initial_indent=head, subsequent_indent=" " * room)


def _examples(name: str) -> str | None:
    lines = EXAMPLES.get(name)
    return "\n".join(_listed(lines)) if lines else None


def _listed(lines: Iterable[str]) -> list[str]:
    return ["examples:", *(f"  {line}" for line in lines)]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with defaults, where these say more than "off"."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        quiet = action.default in _QUIET_DEFAULTS or action.default == []
        if not action.option_strings or quiet or action.nargs == 0 or "default" in (text or ""):
            return text
        return f"{text} (default: %(default)s)" if text else "default: %(default)s"


class _Parser(argparse.ArgumentParser):
    """A parser that guesses what a word that it does not know was meant to be."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """As of `ArgumentParser`; exits with status 2 on words that nothing knows."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [o for a in command_parser(options.command)._actions for o in a.option_strings]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_guess(unknown[0], known)}")
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            what = "no command" if action.metavar == "COMMAND" else "no such value:"
            raise argparse.ArgumentError(
                None if action.metavar == "COMMAND" else action,
                f"{what} {str(value)!r}{_guess(str(value), known) or _choices(known)}",
            )


class _CommandParser(_Parser):
    """The parser of one command, which declares its options once the command is chosen."""

    declared = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """As of `ArgumentParser`."""
        if not self.declared:
            ARGUMENTS[self.get_default("command")](self)
            self.declared = True
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """One line, and where help is."""
        self.exit(2, f"{self.prog}: error: {message}\nSee {self.prog} --help\n")


def _guess(word: str, known: Sequence[str]) -> str:
    """`; did you mean summary?`, or nothing where no known word is like it."""
    close = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _choices(known: Sequence[str]) -> str:
    return f"; choose from {', '.join(known)}"
