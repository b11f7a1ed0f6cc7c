"""The command line: the flags of the keys define both what is read and what ``-h`` prints."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from ..runtime.environment import program, versions
from ..runtime.errors import UserError
from ..runtime.hints import describe_path, find_similar, looks_like_path
from ..runtime.run_folders import CHECKPOINTS, CONFIG, is_run
from ..runtime.text_files import parse_yaml
from . import recipes, table
from .habits import OTHER_NAMES, find_advice
from .key import OPTIONS, SIZE, Flag, show
from .model_options import split_option
from .table import COMMAND_LINE, KeySetting
from .values import NONE_WORDS

# Flags that set no key.
_COMMAND_FLAGS = (
    Flag("cfg", "FILE", "run", 0, "YAML file, or the name of a recipe"),
    Flag("show_config", None, "help", 1, "print all values and the source of each"),
    Flag("h", None, "help", 2, "-h keys: keys of -cfg's task; -h all: all keys"),
    Flag("version", None, "help", 3, "of this package, Paddle and Python"),
)
_SIZE = re.compile(r"(\d+)(?:[xX](\d+))?")
_GROUPS = ("run", "data", "model", "training", "machine", "exported", "prediction", "help")


def all_flags() -> dict[str, Flag]:
    """Return all flags by name, in the order of the help page."""
    found = [*_COMMAND_FLAGS, *table.flags().values()]
    return {flag.name: flag for flag in sorted(found, key=lambda flag: (_GROUPS.index(flag.group), flag.place))}


def find_any_flag(name: str) -> Flag | None:
    """Return the flag of this name, if there is one."""
    return next((flag for flag in _COMMAND_FLAGS if flag.name == name), None) or table.find_flag(name)


@dataclass(frozen=True)
class GivenSettings:
    """What the command line, and later its files, set: in order, where later ones win."""

    argv: list[str]  # the command line
    cfg: str | None  # the file that -cfg names
    shows: bool  # whether -show_config was given
    settings: list[KeySetting]
    notices: list[str]  # lines for the log

    def find_last(self, name: str) -> KeySetting | None:
        """Return the last setting of a key; None if it is not set."""
        return next((setting for setting in reversed(self.settings) if setting.name == name), None)

    @property
    def task(self) -> str | None:
        """The last TASK, in the given spelling; None if it is not set."""
        setting = self.find_last("TASK")
        return None if setting is None else str(setting.value)


def parse_command_line(argv: Sequence[str]) -> GivenSettings:
    """Read flags (``-flag=value``, ``-flag value``, ``--flag``) and overrides (``KEY VALUE``, ``KEY=VALUE``) as texts.

    Raises:
        UserError: a flag is unknown, lacks its value or has an extra one; an override is incomplete.
        SystemExit: the version was requested and is printed.
    """
    if {"-version", "--version"} & set(argv):
        print(versions())
        raise SystemExit(0)
    given_flags, overrides = read_words(argv)
    cfg = given_flags["cfg"].values[-1] if "cfg" in given_flags else None
    given = GivenSettings(list(argv), cfg, "show_config" in given_flags, settings=[], notices=[])
    for name, (flag, values) in given_flags.items():
        if name == "import":  # each adds to the others
            values = [",".join(values)]
        elif len(values) > 1:
            last = f": the last one, {show(values[-1])}, is used" if flag.argument else ""
            given.notices.append(f"-{name} is given {len(values)} times{last}")
        given.settings.extend(_list_settings(flag, values[-1]))
    named = {setting.name for setting in given.settings}
    if "DATA.BATCH_SIZE" in named and "DATA.BATCH_SIZE_EVAL" not in named:
        value = given_flags["batch_size"].values[-1]
        given.settings.append(KeySetting("DATA.BATCH_SIZE_EVAL", value, COMMAND_LINE, "-batch_size"))
    for name, value in overrides:
        if name in named:
            given.notices.append(f"{name} is given more than once: the last override, {show(value)}, is used")
        named.add(name)
        given.settings.append(KeySetting(name, value, COMMAND_LINE, COMMAND_LINE))
    return given


def _list_settings(flag: Flag, value: str) -> list[KeySetting]:
    """Return the setting of a flag's key, none if the flag sets no key."""
    if flag.name == "batch_size" and value == "auto":
        return [KeySetting("DATA.FIND_BATCH_SIZE", True, COMMAND_LINE, "-batch_size=auto")]
    if not flag.key:
        return []
    typed = True if flag.argument is None else _expand_size(flag, value) if flag.argument == SIZE else value
    return [KeySetting(flag.key, typed, COMMAND_LINE, f"-{flag.name}")]


class GivenOption(NamedTuple):
    """A flag or a key of a command line with its value."""

    flag: Flag | None  # None for a key
    key: str  # the key that it sets; empty for a flag of the command itself
    value: str  # empty for a switch
    words: list[str]  # as typed


def iterate_options(argv: Sequence[str]) -> Iterator[GivenOption]:
    """Yield each flag and each key of a command line; raises a UserError at the first word that is neither."""
    rest = list(argv)
    while rest:
        before = list(rest)
        flag: Flag | None = None
        if is_flag(rest[0]):
            flag, value = take_flag(rest)
            key = flag.key or ""
        else:
            key, value = take_override(rest)
        yield GivenOption(flag, key, value, before[: len(before) - len(rest)])


class GivenFlag(NamedTuple):
    """A flag of a command line with its values, in order."""

    flag: Flag
    values: list[str]


def read_words(argv: Sequence[str]) -> tuple[dict[str, GivenFlag], list[tuple[str, str]]]:
    """Return the flags of a command line by name, and key and value of each override.

    A ``UserError`` says that a word is neither, or lacks its value.
    """
    given_flags: dict[str, GivenFlag] = {}
    overrides: list[tuple[str, str]] = []
    for option in iterate_options(argv):
        if option.flag is None:
            overrides.append((option.key, option.value))
        else:
            given_flags.setdefault(option.flag.name, GivenFlag(option.flag, [])).values.append(option.value)
    return given_flags, overrides


def take_flag(words: list[str]) -> tuple[Flag, str]:
    """Remove a flag and its value from the start of ``words``, and return them; a switch has an empty value.

    Raises:
        UserError: the flag is unknown, lacks its value or has an extra one.
    """
    word = words.pop(0)
    name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
    name = name.replace("-", "_")
    flag = find_any_flag(name)
    if flag is None:
        raise UserError(f"{word.partition('=')[0]} is not a known flag: {_explain_flag(word.partition('=')[0], name)}")
    if flag.argument is None:
        if equals:
            raise UserError(f"-{name} takes no value: write -{name} alone")
    elif not equals:
        if not words or is_flag(words[0]):
            raise UserError(f"-{name} needs a value: -{name}={flag.argument}")
        value = words.pop(0)
    if value == "=":
        raise UserError(f"-{name}: no spaces are allowed around '=': write -{name}={words[0] if words else 'VALUE'}")
    if name == "output" and value.endswith((".yaml", ".yml")):
        raise UserError(f"-output={value} must be a folder: did you mean '-cfg={value}'?")
    if name == "cfg" and not value:
        raise UserError(
            f"-cfg needs a value: a YAML file or the name of a recipe; '{program('inspect recipes')}' lists them"
        )
    if name == "import" and not value.strip():
        raise UserError("-import needs a value: a module, my_project.things, or a file, my_things.py")
    return flag, value


def take_override(words: list[str]) -> tuple[str, str]:
    """Remove ``KEY VALUE`` or ``KEY=VALUE`` from the start of ``words``, and return both; UserError without a value."""
    key, equals, value = words.pop(0).partition("=")
    if not equals:
        is_alone, is_known = not words or is_flag(words[0]), table.find_key(key) is not None
        if is_alone and is_known:
            raise UserError(f"command line: {key} needs a value: write {key}=VALUE")
        # A misspelled key has a value; a key after a word that is none says that the word stands alone.
        if is_alone or not (is_known or table.find_key(words[0].partition("=")[0]) is None):
            raise UserError(f"command line: {_explain_word(key)}")
        value = words.pop(0)
        if value == "=":
            raise UserError(f"{key}: no spaces are allowed around '=': write {key}={words[0] if words else 'VALUE'}")
    return key, value


def format_words(options: Mapping[str, Any]) -> list[str]:
    """Format keyword arguments, flags and keys by name, as words of a command line; a flag of None is skipped."""
    words = []
    for name, value in _flatten(options):
        flag = find_any_flag(name)
        if value is None and flag is not None:
            continue
        if flag is not None and flag.argument is None:
            words += [f"-{name}"] if value else []
        else:
            is_yaml = split_option(name, value)[0] == OPTIONS  # null and "no" are not the same as texts of them
            words.append(f"{'-' if flag else ''}{name}={_format_value(value, is_yaml)}")
    return words


def _flatten(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values, of a section in a dictionary, such as TRAIN={"BASE_LR": 0.1}, each of its keys."""
    for name, value in options.items():
        if isinstance(value, Mapping) and any(key.startswith(f"{name}.") for key in table.find_keys()):
            yield from _flatten({f"{name}.{key}": each for key, each in value.items()})
        else:
            yield name, value


def _expand_size(flag: Flag, text: str) -> str:
    """Return the list [height, width] for pixels such as 512 or 480x640; lists and None are for the key to parse."""
    match = _SIZE.fullmatch(text)
    if match is None and "," not in text and text.strip().lower() not in NONE_WORDS:
        raise UserError(f"-{flag.name} is {show(text)}: expected pixels such as 224, or HEIGHTxWIDTH such as 224x320")
    return f"[{match[1]}, {match[2] or match[1]}]" if match else text


def _format_value(value: object, is_yaml: bool) -> str:
    if is_yaml or isinstance(value, (list, tuple)):
        plain = list(value) if isinstance(value, tuple) else value
        return yaml.safe_dump(plain, default_flow_style=True, width=10**6).removesuffix("\n...\n").strip()
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def remove_keys(argv: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the words of a parsed command line without the flags and overrides of these keys."""
    return [word for option in iterate_options(argv) if option.key not in names for word in option.words]


def describe_flag(flag: Flag) -> str:
    """Return what the flag does, in one line."""
    key = table.find_key(flag.key or "")
    return flag.meaning or (key.meaning if key else "")


def takes_next_word(word: str) -> bool:
    """Return whether a flag or a key takes the next word as its value."""
    if "=" in word:
        return False
    if not is_flag(word):
        return True
    flag = find_any_flag(word.lstrip("-").replace("-", "_"))
    return flag is not None and flag.argument is not None


def is_flag(word: str) -> bool:
    """Return whether a word is written as a flag; a negative number is not."""
    if not word.startswith("-"):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def parse_value(name: str, value: str, task: str | None) -> Any:
    """Return a text or number unchanged, for its key to parse; parse any other value (true, a list) as YAML.

    The keys of ``task`` are searched first. Raises UserError: the value is empty, where a path is expected.
    """
    key = table.find_key(name, task)
    if key and key.kind == "path" and key.optional and not value.strip():
        raise UserError(f"command line: {name} is empty: is a shell variable not set? Remove {name}, or set it to None")
    if key and key.kind == "path" and value == "~":  # the home folder on a command line, None in a file
        return os.path.expanduser(value)
    if key and key.kind not in ("bool", "switch", "options"):
        return value
    try:
        return parse_yaml(value)
    except ValueError:
        return value


def spell_here(name: str, value: str = "") -> str:
    """Return how to write the flag or key that is called ``name`` here or in other tools; empty if there is none.

    ``value`` is the value to set; empty: the placeholder of the help page.
    """
    name = name.lower().replace("-", "_")
    ours = name if find_any_flag(name) else OTHER_NAMES.get(name, "")
    flag = find_any_flag(ours)
    if flag is None:
        return ours and f"{ours} {value or 'VALUE'}"
    return f"-{ours}={value or flag.argument}" if flag.argument else f"-{ours}"


def translate_to_key(name: str) -> str:
    """Return the key of a flag, or of another tool's name for one; empty if there is none."""
    ours = OTHER_NAMES.get(name.lower(), name.lower())
    flag = find_any_flag(ours)
    if flag:
        return flag.key or ""
    return ours if table.find_key(ours) else ""


def _explain_flag(word: str, name: str) -> str:
    """Return what to write instead of an unknown flag, ``name`` without its hyphens."""
    if key := table.find_key(word.lstrip("-").upper()):
        return f"keys are written without a dash: {key.name}=VALUE"
    advice = advise(name)
    if advice:
        return advice
    if len(keys := [key for key in table.find_keys() if key.endswith(f".{name.upper()}")]) == 1:
        return f"write {keys[0]} VALUE"
    if near := find_similar(name, all_flags()):
        return f"did you mean '-{near[0]}'?"
    names = ", ".join(f"-{flag}" for flag in all_flags())
    return f"valid flags: {names}; keys are written without a dash: TRAIN.BASE_LR 3e-4"


def advise(name: str, value: str = "") -> str:
    """Return what to do in place of a flag or key that is called ``name`` in other tools; empty if that is unknown."""
    spelling = spell_here(name, value)
    return f"write {spelling}" if spelling else find_advice(name)


def _suggest_spelling(word: str) -> str:
    """Return the end of a message about a word that is neither a flag nor a key: what to write instead, if known."""
    if recipes.names_recipe(word):
        return f": did you mean '-cfg={word}'?"
    spelling, advice = spell_here(word), find_advice(word)
    return f": did you mean '{spelling}'?" if spelling else f": {advice}" if advice else ""


def _looks_like_key(word: str) -> bool:
    """Return whether a word may be a misspelled key, here or in other tools, rather than the name of a run."""
    is_path = os.sep in word or word.startswith((".", "~"))
    return not is_path and ("." in word or word == word.upper() or bool(advise(word)))


def _explain_word(word: str) -> str:
    """Return what is wrong with a word that is neither a flag nor a key."""
    suggestion, path = _suggest_spelling(word), os.path.expanduser(word)
    if suggestion or _looks_like_key(word) or os.path.isfile(path):
        suggestion = suggestion or ": write TRAIN.BASE_LR 3e-4, for example"
        return f"{show(word)} is neither a flag nor a KEY with its VALUE{suggestion}"
    if is_run(path):
        return f"{word} is a run: to continue it, write -resume={word}, or to repeat it -cfg={word}/{CONFIG}"
    if os.path.isdir(path):
        return f"{word} is a folder, but not of a run: it needs {CONFIG} and {CHECKPOINTS}"
    if looks_like_path(word):
        return f"{describe_path(word)}; expected a run's folder, a flag, or a KEY with its VALUE"
    return f"there is no run or recipe named {word}; '{program('inspect recipes')}' lists the recipes"
