"""``paddlevit-dist completion SHELL``: a script with which a shell completes commands, flags, recipes and keys."""

import argparse
import copy
from typing import Any

from ..config import recipes
from ..config.command_line import FLAGS
from ..config.help import ABOUT
from ..config.table import keys
from ..registry import list_names
from ..runtime.errors import UserError
from . import COMMANDS, function_of
from .parser import CommandParser, parser_of

_RECIPES = {  # functions of the script that offer recipes and files
    "bash": """_paddlevit_dist_recipes() {{
  compgen -W '{0}' -- $1
  compgen -f -- $1
}}""",
    "zsh": "_paddlevit_dist_recipes() {{ compadd {0}; _files }}",
}
# bash divides -cfg=vit into three words: the function of shtab sees two, as if a space stood there.
_BASH = """
_paddlevit_dist() {
  local place words=() current=$COMP_CWORD
  for place in "${!COMP_WORDS[@]}"; do
    if [ "${COMP_WORDS[place]}" != = ]; then
      words+=("${COMP_WORDS[place]}")
    elif [ "$place" -eq "$COMP_CWORD" ]; then
      words+=("")
    elif [ "$place" -lt "$COMP_CWORD" ]; then
      current=$((current - 1))
    fi
  done
  local COMP_WORDS=("${words[@]}") COMP_CWORD=$current
  _shtab_paddlevit_dist
}
complete -o filenames -F _paddlevit_dist paddlevit-dist
"""


def run(words: list[str]) -> None:
    """Print the script.

    Raises:
        UserError: shtab is not installed.
    """
    parser = CommandParser(
        "completion",
        "Print a script with which a shell completes commands, flags, recipes, names and keys after Tab. bash: source "
        "it, in ~/.bashrc for example; zsh: save it as _paddlevit-dist in a folder of $fpath.",
        ("bash > paddlevit-dist.bash", "zsh > _paddlevit-dist"),
    )
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    shell = parser.parse_args(words).shell
    try:
        import shtab
    except ImportError:
        raise UserError("completion needs shtab: python -m pip install 'shtab>=1.7,<2'") from None
    preamble = {name: function.format(" ".join(recipes.names())) for name, function in _RECIPES.items()}
    print(shtab.complete(_tree(shtab.FILE), shell, preamble=preamble))
    if shell == "bash":
        print(_BASH)


def _tree(files: Any) -> argparse.ArgumentParser:
    """All commands as subparsers of one parser; those of two words below one of the first.

    Args:
        files: what shtab knows as "any file".
    """
    root = argparse.ArgumentParser(prog="paddlevit-dist", add_help=False)
    parsers, below = {"": root}, {"": root.add_subparsers()}
    for name, (_, meaning) in COMMANDS.items():
        first, _, last = name.rpartition(" ")
        if first not in parsers:  # prepare is no command by itself
            parsers[first] = below[""].add_parser(first, help=f"{first} ...", add_help=False)
        if first not in below:
            below[first] = parsers[first].add_subparsers()
        parsers[name] = below[first].add_parser(last, help=meaning, add_help=False)
        _add_options(parsers[name], name)
        for action in parsers[name]._actions:
            _say_what_fits(action, name, files)
    return root


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """The options of a command, each with one hyphen."""
    own = parser_of(function_of(name))
    if own is not None:
        for action in map(copy.copy, own._actions):
            action.option_strings = [option for option in action.option_strings if not option.startswith("--")]
            parser._add_action(action)
        return
    for option, meaning in ABOUT[name].further:
        parser.add_argument(option, action="store_true", help=meaning)
    for flag in FLAGS.values():
        kind = {"metavar": flag.argument} if flag.argument else {"action": "store_true"}
        parser.add_argument(f"-{flag.name}", help=flag.said(), **kind)
    parser.add_argument("KEY", nargs="*", choices=list(keys()))


def _say_what_fits(action: Any, command: str, files: Any) -> None:
    """Give an option the values that a shell is to offer for it."""
    if action.option_strings == ["-cfg"]:
        action.complete = dict.fromkeys(_RECIPES, "_paddlevit_dist_recipes")
    elif action.option_strings == ["-dataset"]:
        action.choices = action.choices or list_names("dataset")
    elif command in ("inspect", "inspect recipes") and not action.option_strings:
        action.choices = list_names("model") if command == "inspect" else recipes.names()
    elif not action.choices and (not action.option_strings or action.metavar in ("FILE", "FOLDER", "PATH", "MODULE")):
        action.complete = files
    if not action.option_strings:  # a command of two words begins with one that has arguments itself
        further = [name.rpartition(" ")[2] for name in COMMANDS if name.startswith(f"{command} ")]
        action.choices = [*action.choices, *further] if action.choices and further else action.choices
