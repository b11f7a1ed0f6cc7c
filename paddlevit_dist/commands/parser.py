"""The argument parser of all commands but train and evaluate."""

from __future__ import annotations

import argparse
import os
from typing import Any, Callable, NoReturn

from ..errors import UserError


class CommandParser(argparse.ArgumentParser):
    """Accepts options with one hyphen or two; reports errors in one line.

    Args:
        command: its name, such as "prepare images".
        description: what it does, for ``-h``.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"python -m paddlevit_dist {command}", description=description, allow_abbrev=False)
        self.command = command

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.command}: {message}; see {self.prog} -h")

    def option(self, name: str, default: Any, meaning: str, kind: Callable[[str], Any] = str, **more: Any) -> None:
        """``--name VALUE``, also as ``-name``; a default that is not None is shown."""
        shown = meaning if default is None else f"{meaning} (default: {default})"
        self.add_argument(f"--{name}", f"-{name}", default=default, type=kind, help=shown, **more)


def at_least(smallest: int, largest: float = float("inf")) -> Callable[[str], int]:
    """Parser for an integer within these bounds."""

    def parse(text: str) -> int:
        if not text.isdigit() or not smallest <= int(text) <= largest:
            upwards = "up" if largest == float("inf") else f"to {largest}"
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {smallest} {upwards}")
        return int(text)

    return parse


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
