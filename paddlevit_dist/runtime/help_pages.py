"""The form of what ``-h`` prints, for all commands. Needs nothing but Python."""

import re
import textwrap
from collections.abc import Iterable, Sequence

HELP = ("-h", "--h", "-help", "--help")
COLUMNS = 80  # of what -h and -show_config print
_WIDEST = 32  # of the options, where their meanings can begin


def page(usage: str, meaning: str, examples: Iterable[str], rows: Sequence[tuple[str, str]], notes: str = "") -> str:
    """The help of a command, at most ``COLUMNS`` wide where nothing is longer in one piece.

    Args:
        usage: the command line in general.
        examples: command lines.
        rows: an option and what it means.
    """
    width = max((len(left) for left, _ in rows if len(left) <= _WIDEST), default=0)
    parts = [
        [*_wrap(usage, "usage: ", " " * 9), *_wrap(meaning)],
        [line for example in examples for line in _as_typed(example)],
        [line for option in rows for line in row(*option, width)],
        _wrap(notes),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def row(left: str, right: str, width: int) -> list[str]:
    """Lines with what is typed, and what it means in a column behind ``width``."""
    return _wrap(right, f"  {left:<{width}} ", " " * (width + 3))


def _as_typed(command: str) -> list[str]:
    """A command line in pieces that a shell joins."""
    lines = [""]
    for word in re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""", command):
        if len(lines[-1]) + len(word) > COLUMNS - len("    ") - len(" \\"):
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n    ".join([f"  {lines[0]}", *lines[1:]]).split("\n")


def _wrap(text: str, first: str = "", further: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
