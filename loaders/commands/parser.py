"""The parser of the command line: what it cannot take is one line, as any other error is."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import UsageError

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
        if unknown:
            names = [name for each in self._actions for name in each.option_strings]
            guess = _guess(unknown[0], names)
            self.error(f"expected options of {self.prog}, found {unknown[0]}{guess}")
        return options, unknown

    def _get_value(self, action: argparse.Action, text: str) -> Any:  # noqa: ANN401
        """The value of a word, which may not be of the option's type."""
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError as error:
            option = _name(action)
            if isinstance(error.__context__, argparse.ArgumentTypeError):  # says all by itself
                raise argparse.ArgumentError(None, f"{option}: {error.message}") from error
            kind = _KINDS.get(action.type, str(action.metavar or "another value"))
            raise argparse.ArgumentError(
                None, f"expected {kind} for {option}, found {text!r}"
            ) from error

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        what = _guess(str(value), known) or f"; choose from {', '.join(known)}"
        raise argparse.ArgumentError(
            None, f"expected a known {_name(action)}, found {str(value)!r}{what}"
        )


def _name(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _guess(word: str, known: Sequence[str]) -> str:
    """`; did you mean --batch?`, or nothing where no known word is like it."""
    close = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
