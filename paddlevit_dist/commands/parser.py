"""The argument parser of all commands but train and evaluate."""

from __future__ import annotations

import argparse
import os
from typing import Any, Callable, NoReturn

from .. import own_code
from ..environment import program
from ..errors import UserError


class CommandParser(argparse.ArgumentParser):
    """Accepts options with one hyphen or two; reports errors in one line.

    Args:
        command: its name, such as "prepare images".
        description: what it does, for ``-h``.
        imports: it uses what users register, so that it takes -import=MODULE.
    """

    def __init__(self, command: str, description: str, imports: bool = False) -> None:
        super().__init__(prog=program(command), description=description, allow_abbrev=False)
        self.command = command
        self.imports = imports
        if imports:
            meaning = "Python module or file of yours that registers what is named here; may be repeated"
            self.add_argument("--import", "-import", dest="imported", metavar="MODULE", action="append", help=meaning)

    def parse_args(self, *arguments: Any, **more: Any) -> Any:
        """As ``argparse`` does; what -import names is imported."""
        return self._with_imports(super().parse_args(*arguments, **more))

    def parse_intermixed_args(self, *arguments: Any, **more: Any) -> Any:
        """The same, with options before, between and after the other arguments."""
        return self._with_imports(super().parse_intermixed_args(*arguments, **more))

    def _with_imports(self, options: Any) -> Any:
        if self.imports:
            own_code.load([name for names in options.imported or [] for name in names.split(",")], "-import")
        return options

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.command}: {message}; see {self.prog} -h")

    def option(
        self, name: str, default: Any, meaning: str, kind: Callable[[str], Any] = str, shown: str = "", **more: Any
    ) -> None:
        """``--name VALUE``, also as ``-name``; a default that is not None is shown, as ``shown`` if it depends on the
        machine."""
        text = meaning if default is None else f"{meaning} (default: {shown or default})"
        self.add_argument(f"--{name}", f"-{name}", default=default, type=kind, help=text, **more)


def at_least(smallest: int, largest: float = float("inf")) -> Callable[[str], int]:
    """Parser for an integer within these bounds."""

    def parse(text: str) -> int:
        if not text.isdigit() or not smallest <= int(text) <= largest:
            upwards = "up" if largest == float("inf") else f"to {largest}"
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {smallest} {upwards}")
        return int(text)

    return parse


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to 1")
    return value


def choice(*words: str) -> Callable[[str], str]:
    """Parser for one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(words)}")
        return text

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
