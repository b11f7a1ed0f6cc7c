"""The layout of ``-h`` pages, for all commands. Needs nothing but Python."""

import re
import textwrap
from collections.abc import Iterable, Sequence

HELP = ("-h", "--h", "-help", "--help")
COLUMNS = 80  # of what -h and -show_config print
_WIDEST = 32  # widest column of options


def page(usage: str, meaning: str, examples: Iterable[str], rows: Sequence[tuple[str, str]], notes: str = "") -> str:
    """Format the help of a command, at most ``COLUMNS`` wide except for longer words.

    Args:
        usage: the general command line.
        meaning: what the command does.
        examples: command lines.
        rows: each option and its meaning.
        notes: a last paragraph.
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
    """Format an option and, in a column after ``width``, its meaning."""
    return _wrap(right, f"  {left:<{width}} ", " " * (width + 3))


def _as_typed(command: str) -> list[str]:
    """Split a command line into pieces that a shell joins."""
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
