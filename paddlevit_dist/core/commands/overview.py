"""The help page of all commands, on one screen, by what people do. Needs nothing but Python."""

import textwrap
from collections.abc import Sequence

from ..registry.names import REGISTRY
from ..runtime.environment import program
from ..runtime.help_pages import row

_SCORING, _OTHERS = "Score the results of any program", "Recipes, keys, this machine"
# The commands of each group; "*" stands for any second word. Commands of users are of the last group.
_GROUPS = {
    "Train and evaluate": ("train", "evaluate", "predict"),
    "Look at data and results": ("inspect data", "inspect leaks", "report"),
    "Prepare data": ("prepare *",),
    "Weights and export": ("inspect", "convert", "export"),
    "Compare and search": ("compare", "search"),
    _SCORING: ("evaluate *",),
    _OTHERS: ("inspect recipes", "schema", "doctor", "version"),
}


def list_commands() -> list[str]:
    """Return the names of all commands, those with the same first word together."""
    first_words = list(dict.fromkeys(name.partition(" ")[0] for name in REGISTRY.commands))
    return sorted(REGISTRY.commands, key=lambda name: first_words.index(name.partition(" ")[0]))


def format_overview() -> str:
    """Format the help page of all commands."""
    lines = [f"usage: {program('COMMAND ...')}"]
    groups = {name: _find_group(name) for name in list_commands()}
    for title, words in _GROUPS.items():
        names = [name for name, group in groups.items() if group == title]
        names.sort(key=lambda name: words.index(name) if name in words else len(words))
        if names and title == _SCORING:
            kinds = sorted(name.partition(" ")[2] for name in names)
            named = textwrap.wrap(f"KIND: {', '.join(kinds)}", 78, initial_indent="  ", subsequent_indent=" " * 8)
            lines += ["", f"{title}: evaluate KIND [TRUTH] RESULTS", *named]
        elif names:
            lines += ["", f"{title}:", *format_rows(names)]
    return "\n".join([*lines, "", "COMMAND -h shows its options; -import=FILE.py adds your own code."])


def format_rows(names: Sequence[str]) -> list[str]:
    """Format the rows of these commands: the name, and what it does."""
    width = max(len(name) for name in REGISTRY.commands if _find_group(name) != _SCORING)
    return [line for name in names for line in row(name, REGISTRY.commands[name][1], width)]


def _find_group(name: str) -> str:
    """Return the title of the group that has a command by name, else by its first word."""
    for word in (name, name.partition(" ")[0] + " *"):
        for title, words in _GROUPS.items():
            if word in words:
                return title
    return _OTHERS
