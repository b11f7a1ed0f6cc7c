"""Argument parser of all commands except train and evaluate."""

import argparse
import contextlib
import difflib
import io
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ..registry import plugins
from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP, page


class HelpShown(SystemExit):
    """Exit after a command has printed the help of this parser."""

    def __init__(self, parser: "CommandParser") -> None:
        super().__init__(0)
        self.parser = parser


class CommandParser(argparse.ArgumentParser):
    """Argument parser that accepts options with one hyphen or two and reports errors in one line.

    Args:
        command: the command's name, such as "prepare images".
        description: what the command does, for ``-h``.
        examples: arguments after the command's name, for ``-h``.
        imports: the command uses registered classes of users, and so takes -import=MODULE.
        other_names: an option's name in other tools -> what to write here.
    """

    def __init__(
        self,
        command: str,
        description: str,
        examples: Sequence[str],
        imports: bool = False,
        other_names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(prog=program(command), description=description, add_help=False)
        self.command = command
        self.examples = [f"{self.prog} {example}".rstrip() for example in examples]
        self.imports = imports
        self.other_names = other_names or {}
        if imports:
            meaning = "your Python module or file that registers the names used here; may be repeated"
            self.add_argument("--import", "-import", dest="imported", metavar="MODULE", action="append", help=meaning)

    def parse_args(self, words: Sequence[str]) -> Any:  # type: ignore[override]
        """Parse options before, between and after the positional arguments, and import the modules of -import."""
        if set(HELP) & set(words):
            self.print_help()
            raise HelpShown(self)
        for word in itertools.takewhile(lambda word: word != "--", words):  # argparse reports missing arguments first
            name = word.partition("=")[0]
            if name.lstrip("-")[:1].isalpha() and name[0] == "-" and name not in self._option_string_actions:
                self.error(f"{name} is not a known option: {self._suggest(name.lstrip('-'))}")
        options = self.parse_intermixed_args(words)
        if self.imports:
            plugins.load([name for names in options.imported or [] for name in names.split(",")], "-import")
        return options

    def _suggest(self, name: str) -> str:
        """Return advice on an unknown option."""
        from ..settings.command_line import OTHER_NAMES  # imports packages that one command runs without

        plain = name.lower().replace("-", "_")
        if plain in self.other_names:
            return self.other_names[plain]
        options = [option[1:] for option in self._option_string_actions if option[1] != "-"]
        name_here = OTHER_NAMES.get(plain, plain)
        near = [name_here] if name_here in options else difflib.get_close_matches(plain, options, n=1)
        return f"did you mean '-{near[0]}'?" if near else f"options are {', '.join(f'-{option}' for option in options)}"

    def error(self, message: str) -> NoReturn:
        """Raise ``UserError`` with the command's name and how to get help."""
        raise UserError(f"{self.command}: {message}; see {self.prog} -h")

    def format_help(self) -> str:
        """Format the help page in the layout of the main flags."""
        words = [written(action) for action in self._actions if not action.option_strings]
        flags = ["[-flag=value ...]"] if len(self._actions) > len(words) else []
        return page(" ".join([self.prog, *words, *flags]), self.description or "", self.examples, self.rows()) + "\n"

    def rows(self) -> list[tuple[str, str]]:
        """Return how each argument and option is typed, and its meaning."""
        actions = sorted(self._actions, key=lambda action: bool(action.option_strings))
        return [(written(action), " ".join((action.help or "").split())) for action in actions]

    def option(
        self, name: str, default: Any, meaning: str, kind: Callable[[str], Any] = str, shown: str = "", **more: Any
    ) -> None:
        """Add ``--name VALUE``, also as ``-name``.

        The help shows a default that is not None, in the words of ``shown`` if it depends on the machine.
        """
        if "choices" not in more:
            more.setdefault("metavar", getattr(kind, "metavar", None))
        text = meaning if default is None else f"{meaning} (default: {shown or default})"
        self.add_argument(f"--{name}", f"-{name}", default=default, type=kind, help=text, **more)


def written(action: argparse.Action) -> str:
    """Format an option or argument the way users type it."""
    value = str(action.metavar or (action.dest.upper() if action.nargs != 0 else ""))
    if not action.option_strings:
        return f"[{value}]" if action.nargs in ("?", "*") else f"{value} ..." if action.nargs == "+" else value
    if action.choices and action.metavar is None:
        value = "|".join(str(choice) for choice in action.choices)
    name = action.option_strings[0].lstrip("-")
    return f"-{name}={value}" if value else f"-{name}"


def build_parser(run: Callable[[list[str]], None]) -> CommandParser | None:
    """Run a command up to its help page and return its parser; None if it takes the main flags."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run(["-h"])
    except HelpShown as shown:
        return shown.parser
    except SystemExit:
        return None
    raise AssertionError("a command continued after printing its help")


def at_least(smallest: int, largest: float = float("inf")) -> Callable[[str], int]:
    """Return a parser for an integer within these bounds."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not smallest <= int(text) <= min(largest, 2**31 - 1):
            upwards = "up" if largest == float("inf") else f"to {largest}"
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {smallest} {upwards}")
        return int(text)

    parse.metavar = "N"  # type: ignore[attr-defined]
    return parse


def above_zero(text: str) -> float:
    """Parse a finite number above 0.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not '{text}'")
    return number


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to 1")
    return value


def choice(*words: str) -> Callable[[str], str]:
    """Return a parser for one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"'{text}' is not one of {', '.join(words)}")
        return text

    parse.metavar = "|".join(words)  # type: ignore[attr-defined]
    return parse


def image_size(text: str) -> Any:
    """Parse pixels: a number, or (height, width)."""
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdigit() and int(side) > 0 for side in sides):
        raise argparse.ArgumentTypeError(f"'{text}' is neither pixels such as 224 nor HEIGHTxWIDTH such as 224x320")
    return int(text) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def path(text: str) -> str:
    """Parse a path, expanding ``~`` to the home folder."""
    return os.path.expanduser(text)


path.metavar = "PATH"  # type: ignore[attr-defined]
share.metavar = "SHARE"  # type: ignore[attr-defined]
