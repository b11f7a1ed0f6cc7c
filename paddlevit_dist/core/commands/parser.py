"""Argument parser of all commands except train and evaluate."""

import argparse
import contextlib
import io
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ..registry import plugins
from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP, page
from ..runtime.hints import find_similar

_BY_TASK = ("-image_size",)  # options named as the flag of a key that not all tasks have


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
        keys: None: the command takes no keys. Else flags and keys of the main job become ``settings`` of the parsed
            options, words for ``settings.load``; a key whose flag is an option of this command means the option; and
            the help lists the flags of these names.
    """

    def __init__(
        self,
        command: str,
        description: str,
        examples: Sequence[str],
        imports: bool = False,
        other_names: Mapping[str, str] | None = None,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(prog=program(command), description=description, add_help=False)
        self.command = command
        self.examples = [f"{self.prog} {example}".rstrip() for example in examples]
        self.imports, self.keys = imports, keys
        self.other_names = other_names or {}
        if imports:
            meaning = "your Python module or file that registers the names used here; may be repeated"
            self.add_argument("--import", "-import", dest="imported", metavar="MODULE", action="append", help=meaning)

    def parse_args(self, words: Sequence[str]) -> Any:  # type: ignore[override]
        """Parse options before, between and after the positional arguments, and import the modules of -import."""
        if set(HELP) & set(words):
            self.print_help()
            raise HelpShown(self)
        settings: list[str] = []
        imported = split_imports(words)[0] if self.keys is not None else []
        if self.keys is not None:
            plugins.load(imported, "-import")  # first, for the keys that they register
            words, settings = self._split(words)
        for word in itertools.takewhile(lambda word: word != "--", words):  # argparse reports missing arguments first
            name = word.partition("=")[0]
            if name.lstrip("-")[:1].isalpha() and name[0] == "-" and name not in self._option_string_actions:
                self.error(f"{name} is not a known option: {self._suggest(name.lstrip('-'))}")
        options = self.parse_intermixed_args(words)
        options.settings = settings
        if self.imports:
            named = [module for names in options.imported or [] for module in names.split(",")]
            plugins.load([module for module in named if module not in imported], "-import")
        return options

    def _split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the words of this command, up to the first key (all after "--"), and the main job's flags and keys."""
        from ..settings import command_line  # with packages that some commands run without

        own: list[str] = []
        settings: list[str] = []
        rest, has_keys = list(words), False
        while rest and rest[0] != "--":
            name = rest[0].partition("=")[0]
            action = self._option_string_actions.get(name)
            if action is not None or (rest[0].startswith("-") and not self._takes_flag(name)):
                own.append(rest.pop(0))
                if action is not None and action.nargs != 0 and "=" not in own[-1] and rest and rest[0] != "--":
                    own.append(rest.pop(0))
            elif command_line.is_flag(rest[0]):
                flag, value = command_line.take_flag(rest)
                settings.append(f"-{flag.name}={value}" if flag.argument else f"-{flag.name}")
            elif has_keys or is_key(rest[0]):
                self._require_key(rest[0])
                has_keys = True
                word, is_own = self._take_key(rest)
                (own if is_own else settings).append(word)
            else:
                own.append(rest.pop(0))
        return [*own, *rest], settings

    def _take_key(self, rest: list[str]) -> tuple[str, bool]:
        """Take a key and its value from the front; return them as a word, and whether this command has the option."""
        from ..settings import command_line, table

        name, value = command_line.take_override(rest)
        key = table.find_key(name)
        option = f"-{key.flag.name}" if key and key.flag else ""
        is_own = option in self._option_string_actions and option not in _BY_TASK
        if key is not None and option == "-import":
            value = ",".join(key.parse(value))
        return f"{option if is_own else name}={value}", is_own

    def _require_key(self, word: str) -> None:
        """Check that a word among the keys is not an existing path."""
        if "=" in word or not os.path.lexists(word):
            return
        if is_key(word):
            self.error(
                f"{word} is a key and a path: write {word}=VALUE for the key, {os.path.join('.', word)} for the path"
            )
        self.error(f"{word} follows a key: write paths before the keys, or after --")

    def _takes_flag(self, name: str) -> bool:
        """Return whether an option that is not of this command is the flag of a key."""
        from ..settings.command_line import find_any_flag

        plain = name.lstrip("-").replace("-", "_")
        flag = None if plain.lower() in self.other_names else find_any_flag(plain)
        return flag is not None and flag.key is not None

    def _suggest(self, name: str) -> str:
        """Return advice on an unknown option."""
        from ..settings.command_line import OTHER_NAMES, advise, all_flags, find_any_flag  # one command lacks packages

        plain = name.lower().replace("-", "_")
        if plain in self.other_names:
            return self.other_names[plain]
        options = [option[1:] for option in self._option_string_actions if option[1] != "-"]
        name_here = OTHER_NAMES.get(plain, plain)
        if self.keys is not None and name_here not in options and (flag := find_any_flag(name_here)) and not flag.key:
            return f"it is of train and evaluate, and {self.command} does not read it: remove it"
        if self.keys is not None and name_here not in options and (advice := advise(plain)):
            return advice
        known = options if self.keys is None else [*options, *(flag.name for flag in all_flags().values() if flag.key)]
        near = [name_here] if name_here in options else find_similar(plain, known)
        return f"did you mean '-{near[0]}'?" if near else f"options are {', '.join(f'-{option}' for option in options)}"

    def error(self, message: str) -> NoReturn:
        """Raise ``UserError`` with the command's name and how to get help."""
        raise UserError(f"{self.command}: {message}; see {self.prog} -h")

    def format_help(self) -> str:
        """Format the help page in the layout of the main flags."""
        words = [written(action) for action in self._actions if not action.option_strings]
        flags = ["[-flag=value ...]"] if len(self._actions) > len(words) else []
        usage, notes = " ".join([self.prog, *words, *flags]), ""
        if self.keys is not None:
            usage += " [KEY VALUE ...]"
            notes = f"Flags and keys replace stored values; '{program('evaluate -h')}' lists more. "
            notes += "After --, no word is a key."
        return page(usage, self.description or "", self.examples, self.rows(), notes) + "\n"

    def rows(self) -> list[tuple[str, str]]:
        """Return how each argument and option is typed, and its meaning."""
        actions = sorted(self._actions, key=lambda action: bool(action.option_strings))
        rows = [(written(action), " ".join((action.help or "").split())) for action in actions]
        return rows + self._list_flags()

    def _list_flags(self) -> list[tuple[str, str]]:
        """Return the rows of the flags of keys; a name is skipped if the folder of its task was removed."""
        if not self.keys:
            return []
        from ..settings.command_line import describe_flag, find_any_flag

        flags = filter(None, map(find_any_flag, self.keys))
        return [
            (f"-{flag.name}={flag.argument}" if flag.argument else f"-{flag.name}", describe_flag(flag))
            for flag in flags
        ]

    def option(
        self, name: str, default: object, meaning: str, kind: Callable[[str], Any] = str, shown: str = "", **more: Any
    ) -> None:
        """Add ``--name VALUE``, also as ``-name``.

        The help shows a default that is not None, in the words of ``shown`` if it depends on the machine.
        """
        if "choices" not in more:
            more.setdefault("metavar", getattr(kind, "metavar", None))
        text = meaning if default is None else f"{meaning} (default: {shown or default})"
        self.add_argument(f"--{name}", f"-{name}", default=default, type=kind, help=text, **more)


def split_imports(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the modules that -import names, and the other words."""
    named, others, rest = [], [], list(words)
    while rest and rest[0] != "--":
        option, equals, value = rest.pop(0).partition("=")
        if option not in ("-import", "--import"):
            others.append(option + equals + value)
        elif equals or rest:
            named.append(value if equals else rest.pop(0))
    return [name for names in named for name in names.split(",") if name], [*others, *rest]


def is_key(word: str) -> bool:
    """Return whether a word is ``KEY`` or ``KEY=VALUE``; the name may be unknown if the word is not a path."""
    from ..settings.model_options import split_option
    from ..settings.table import find_keys

    name, _ = split_option(word.partition("=")[0], None)
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*(\.[A-Z0-9_]+)*", name):
        return False
    return name in find_keys() or ("." in name and not os.path.lexists(word))


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
    """Parse a finite number above 0; raises an ``argparse.ArgumentTypeError`` for anything else."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not '{text}'")
    return number


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
