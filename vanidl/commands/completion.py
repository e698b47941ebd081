"""`vanidl completion SHELL`: commands, options and their values, for the shell to complete."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from vanidl.commands.arguments import COMMANDS, command_parser
from vanidl.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its names, the values it can have, and its help in a line."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    takes_value: bool
    help: str


def run(options: argparse.Namespace) -> int:
    """Prints the script; exit status 0."""
    render = {"bash": bash, "zsh": zsh, "fish": fish}[options.shell]
    sys.stdout.write(render({name: options_of(name) for name in COMMANDS}))
    return 0


def options_of(name: str) -> tuple[Option, ...]:
    """The options of a command, and of its positional arguments the values to choose from."""
    return tuple(
        Option(
            tuple(action.option_strings),
            tuple(map(str, action.choices or ())),
            action.nargs != 0,
            " ".join((action.help or "").split()).replace("%(default)s", str(action.default)),
        )
        for action in command_parser(name)._actions
        if action.option_strings or action.choices
    )


def _words(options: tuple[Option, ...]) -> str:
    """Every option name, and the values of positional arguments."""
    words = [name for o in options for name in o.names]
    return " ".join([*words, *(choice for o in options if not o.names for choice in o.choices)])


def _values(options: tuple[Option, ...]) -> dict[str, str]:
    """Option name -> what it can be set to."""
    return {name: " ".join(o.choices) for o in options for name in o.names if o.choices}


def bash(commands: Mapping[str, tuple[Option, ...]]) -> str:
    """For `source <(vanidl completion bash)`; file names complete everywhere."""
    cases = [
        f"    {name}) words={_words(options)!r}; "
        + "".join(f"[[ $prev == {o} ]] && words={v!r}; " for o, v in _values(options).items())
        + ";;"
        for name, options in commands.items()
    ]
    return "\n".join(
        [
            "_vanidl() {",
            "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=",
            "  if (( COMP_CWORD == 1 )); then",
            f"    COMPREPLY=($(compgen -W '{' '.join(commands)} --help --version' -- \"$cur\"))",
            "    return",
            "  fi",
            "  case ${COMP_WORDS[1]} in",
            *cases,
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$cur") $(compgen -f -- "$cur"))',
            "}",
            "complete -o filenames -F _vanidl vanidl",
            "",
        ]
    )


def zsh(commands: Mapping[str, tuple[Option, ...]]) -> str:
    """For a file `_vanidl` in `$fpath`, or `source <(vanidl completion zsh)`."""
    cases = [
        f"    {name}) words=({_words(options)}); "
        + "".join(
            f"[[ $words_before == {o} ]] && words=({v}); " for o, v in _values(options).items()
        )
        + ";;"
        for name, options in commands.items()
    ]
    return "\n".join(
        [
            "#compdef vanidl",
            "_vanidl() {",
            '  local -a given words; given=("${(@)words}"); words=()',
            "  local words_before=${given[CURRENT-1]}",
            f"  if (( CURRENT == 2 )); then compadd -- {' '.join(commands)} --help --version; "
            "return; fi",
            "  case ${given[2]} in",
            *cases,
            "  esac",
            "  compadd -- $words",
            "  _files",
            "}",
            "compdef _vanidl vanidl",
            "",
        ]
    )


def fish(commands: Mapping[str, tuple[Option, ...]]) -> str:
    """For `~/.config/fish/completions/vanidl.fish`."""
    lines = [
        f"complete -c vanidl -n __fish_use_subcommand -f -a {name} -d {_quoted(text)}"
        for name, text in COMMANDS.items()
    ]
    for name, options in commands.items():
        seen = f"complete -c vanidl -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{seen}{_fish_option(option)}" for option in options]
    return "\n".join([*lines, ""])


def _fish_option(option: Option) -> str:
    flags = [
        f" -l {name[2:]}"
        if name.startswith("--")
        else f" -s {name[1:]}"
        if len(name) == 2
        else f" -o {name[1:]}"
        for name in option.names
    ]
    values = f" -f -a {_quoted(' '.join(option.choices))}" if option.choices else ""
    takes = " -r" if option.names and option.takes_value else ""
    return f"{''.join(flags)}{takes}{values} -d {_quoted(option.help[:60])}"


def _quoted(text: str) -> str:
    """In single quotes as fish reads them."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
