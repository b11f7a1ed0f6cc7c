"""Tables of keys with their rules, each next to its readers (see ``key_tables``), and the tree of a configuration.

A configuration contains the keys of its task, and those that users have registered. The tables of other tasks are
imported only for help, and for a name that the task's tables lack.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from yacs.config import CfgNode

from ..runtime.printing import without_credentials
from .key import OPTIONS, Flag, Key, Section
from .key_tables import iterate_tables, key_tables, known_tables
from .model_options import merge_options, split_option

COMMAND_LINE = "command line"
DERIVED = "follows from other keys"  # source of a derived value: neither set nor the default
SettingsT = TypeVar("SettingsT")  # a class of settings, see ``key.Section``


@dataclass(frozen=True)
class KeySetting:
    """The value of one key and its origin."""

    name: str
    value: Any
    source: str  # "command line" or the file
    origin: str  # for messages: file and line, or the flag
    is_base: bool = False  # the file is one that BASE names
    is_implied: bool = False  # the value was inferred, not written (``KeyTable.infer``)


class ConfigView(Generic[SettingsT]):
    """The merged values and their origins, as rules see them: ``ConfigView[RunSettings]`` names the settings they read.

    ``config[name]`` describes key, value and origin for a message; ``name in config`` is true if the key was set.
    """

    def __init__(self, values: SettingsT, settings: Mapping[str, KeySetting]) -> None:
        self.values = values
        self.settings = settings

    def __getitem__(self, name: str) -> str:
        setting, key = self.settings.get(name), find_key(name, get_value(self.values, "TASK"))
        value, chosen, origin = get_value(self.values, name), key and key.default, "default"
        if setting:
            chosen, origin = setting.value, setting.origin
        return f"{name} {value} ({origin if value == chosen else DERIVED})"

    def __contains__(self, name: str) -> bool:
        return name in self.settings


def get_value(values: CfgNode, name: str) -> Any:
    """Return the value of the dotted ``name``."""
    for part in name.split("."):
        values = values[part]
    return values


class IgnoredKeys(NamedTuple):
    """Keys that a run does not read because of the value of another key."""

    names: tuple[str, ...]  # the ignored keys; a dot at the end means a whole section
    condition: str  # name of the other key
    reason: str  # why they are ignored; {} is replaced with the description of ``condition``


def _do_nothing(*_: object) -> Any:
    return ()


_Files = Sequence[Mapping[str, KeySetting]]  # the settings of each file by name


class ImpliedValues(NamedTuple):
    """Values that files imply, without writing them, or in place of the ones that they write."""

    source: str = ""
    values: Mapping[str, Any] = MappingProxyType({})
    reasons: Mapping[str, str] = MappingProxyType({})  # for some of the names: why


@dataclass(frozen=True, eq=False)
class KeyTable:
    """The keys that one package reads, and its rules for them.

    It is in a module without Paddle next to the reader; the registry names it for each task that reads it.
    """

    keys: tuple[Key, ...]  # the rows; they alone define the defaults, effects and flags
    #: ``infer(files, user_files)`` recognizes a kind of files by the settings of each. ``user_files`` excludes the
    #: recipes of this package; it is not called if there are no others
    infer: Callable[[_Files, _Files], "ImpliedValues"] | None = None
    #: ``resolve_defaults(values, settings, all_settings)`` adapts values that were not set to those that were, in
    #: place, and returns notices. ``all_settings`` also has the settings that others override
    resolve_defaults: Callable[[CfgNode, Mapping[str, KeySetting], Sequence[KeySetting]], Sequence[str]] = _do_nothing
    #: ``check(config)`` raises ``UserError`` where two values contradict each other, and returns notices
    check: Callable[[ConfigView[Any]], Sequence[str]] = _do_nothing
    #: ``find_ignored(config)`` yields the keys that this run does not read
    find_ignored: Callable[[ConfigView[Any]], Iterator[IgnoredKeys]] = _do_nothing
    #: keys that were removed, with the default that older runs have stored, and that is used today. ``meaning`` is what
    #: to write instead of another value; if the key is in ``renamed``, the other key has this value
    former: tuple[Key, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)  # key in PaddleViT's or older files -> its name here
    #: (key, value in PaddleViT's files in lower case) -> the value here
    renamed_values: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    #: keys of PaddleViT's files without effect on results -> why they are not needed
    ignored_keys: Mapping[str, str] = field(default_factory=dict)
    #: whether ``resolve_defaults`` and ``check`` apply only if a key has another value than its default
    is_optional: bool = False

    def applies(self, values: CfgNode) -> bool:
        """Return whether ``resolve_defaults`` and ``check`` apply to these values (see ``is_optional``)."""
        return not self.is_optional or any(get_value(values, key.name) != key.default for key in self.keys)

    def training_names(self) -> set[str]:
        """Return the names of the keys that an evaluation does not read."""
        return {key.name for key in self.keys if key.training_only}


def covers(names: Sequence[str], name: str) -> bool:
    """Return whether ``name`` is one of the names or in one of the sections among them."""
    return any(name == other or (other.endswith(".") and name.startswith(other)) for other in names)


def find_keys(task: str | None = None) -> dict[str, Key]:
    """Return dotted name -> row of the keys that ``task`` reads, the engine's first; all for None or without tables."""
    return index_keys(key_tables(task))


def find_tables(values: CfgNode) -> list[KeyTable]:
    """Return the tables that a run with this configuration reads, the engine's first."""
    return key_tables(values.TASK, values.DATA.DATASET, values.MODEL.NAME)


def tables_with(names: Sequence[str], task: str | None) -> list[KeyTable]:
    """Return the tables that a configuration of ``task`` may use: all tables if the task's lack one of the names."""
    tables = known_tables(task)
    return tables if known_names(tuple(tables)).issuperset(names) else key_tables()


def index_keys(tables: Sequence[KeyTable]) -> dict[str, Key]:
    """Return dotted name -> row of the keys of the tables."""
    return {key.name: key for table in tables for key in table.keys}


@functools.cache
def known_names(tables: tuple[KeyTable, ...]) -> frozenset[str]:
    """Return the names of keys here, of removed ones, and of keys that only PaddleViT has."""
    others = (name for table in tables for name in (*table.renamed, *table.ignored_keys))
    return frozenset([*index_keys(tables), *others, *index_former(tables)])


def index_former(tables: Sequence[KeyTable]) -> dict[str, Key]:
    """Return dotted name -> row of the removed keys of the tables."""
    return {key.name: key for table in tables for key in table.former}


def find_key(name: str, task: str | None = None) -> Key | None:
    """Return the row of a key that ``task`` reads, or else that any task reads; None for an unknown name.

    The row of MODEL.OPTIONS is also that of MODEL.OPTIONS.NAME.
    """
    name, _ = split_option(name, None)
    return index_keys(known_tables(task)).get(name) or find_keys().get(name)


def find_flag(name: str) -> Flag | None:
    """Return the flag of a key, without the import of more tables than are needed to find it."""
    return next(filter(None, (_flags(table).get(name) for table in iterate_tables())), None)


def flags() -> dict[str, Flag]:
    """Return name -> flag of the keys of this package; the first, if keys of several tasks have flags of this name."""
    return {name: flag for table in reversed([*iterate_tables()]) for name, flag in _flags(table).items()}


def resolve_flag(setting: KeySetting, task: str) -> KeySetting:
    """Return the setting of a flag for the key that has this flag in the tables of ``task``, if there is one."""
    if not setting.origin.startswith("-"):
        return setting
    known = index_keys(known_tables(task))
    if setting.name in known:
        return setting
    names = (key.name for key in known.values() if key.flag and f"-{key.flag.name}" == setting.origin)
    return dataclasses.replace(setting, name=next(names, setting.name))


@functools.cache
def _flags(table: KeyTable) -> dict[str, Flag]:
    return {key.flag.name: key.flag for key in table.keys if key.flag is not None}


def effects(settings: Mapping[str, Any] | Section) -> dict[str, str]:
    """Return dotted name -> effect of another value, one of ``key.EFFECTS``, of the keys that settings may have had."""
    tables = known_tables(settings.get("TASK"))
    return {key.name: key.effect for key in (*index_former(tables).values(), *index_keys(tables).values())}


def is_section(name: str, tables: tuple[KeyTable, ...]) -> bool:
    """Return whether the dotted name is a section of the tables, or else of any task's; also PaddleViT's."""
    return name in _sections(tables) or (name not in known_names(tables) and name in _sections(tuple(key_tables())))


@functools.cache
def _sections(tables: tuple[KeyTable, ...]) -> frozenset[str]:
    return frozenset(name[:dot] for name in known_names(tables) for dot, letter in enumerate(name) if letter == ".")


def default_config(task: str | None = None) -> CfgNode:
    """Return a new tree of the task's keys with their defaults, not frozen; of all keys for None and a user's task."""
    config = CfgNode()
    for key in index_keys(known_tables(task)).values():
        default = key.default
        put(config, key.name, type(default)(default) if key.many and default is not None else default)
    return config


def split_paths(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return stored settings, nested as before, without files and folders of their computer, and these by dotted name.

    Paths that are None are in neither; keys of other versions stay.
    """
    rows = index_keys(known_tables(settings.get("TASK")))
    kept: dict[str, Any] = {}
    paths: dict[str, Any] = {}

    def walk(section: Mapping[str, Any], target: dict[str, Any], above: str) -> None:
        for name, value in section.items():
            key = f"{above}{name}"
            if key in rows and rows[key].kind == "path":
                paths.update({key: value} if value else {})
            elif isinstance(value, Mapping) and key != OPTIONS:
                walk(value, target.setdefault(name, {}), f"{key}.")
            else:
                target[name] = value

    walk(settings, kept, "")
    return kept, paths


def put(config: CfgNode, name: str, value: object) -> None:
    """Set the dotted ``name`` in the tree; missing sections are created."""
    *sections, last = name.split(".")
    for section in sections:
        if section not in config:
            config[section] = CfgNode()
        config = config[section]
    config[last] = value


def leaves(config: Mapping[str, Any] | Section, above: str = "") -> dict[str, Any]:
    """Return dotted name -> value of every key in the tree, in its order."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and f"{above}{name}" != OPTIONS:
            found |= leaves(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = value
    return found


def comparable_leaves(settings: Mapping[str, Any] | Section) -> dict[str, Any]:
    """Return dotted name -> value as ``leaves``, to compare with settings that another version has stored.

    The value of a removed key is that of the key which replaces it, or has the removed key's name; if settings do not
    have it, it is the default. Where several removed keys became one, another value than the default counts.
    """
    found = leaves(settings)
    for table in known_tables(settings.get("TASK")):
        for key in table.former:
            value = found.pop(key.name, key.default)
            other = table.renamed.get(key.name)
            if other is None:
                found[key.name] = value
            elif value != key.default:
                name, value = split_option(other, value)
                found[name] = merge_options(found.get(name), value)
            elif not other.startswith(f"{OPTIONS}."):
                found.setdefault(other, value)
    return found


def public_leaves(values: CfgNode) -> dict[str, Any]:
    """Return dotted name -> plain value of every key that a run with this configuration reads, to store and to show.

    BASE is omitted, as its files are merged; passwords and tokens are removed from URLs.
    """
    accepted = index_keys(find_tables(values)).keys() - {"BASE"}
    return {name: _public(value) for name, value in leaves(values).items() if name in accepted}


def _public(value: object) -> Any:
    if isinstance(value, (list, tuple)):
        return list(map(_public, value))
    if isinstance(value, Mapping):
        return {name: _public(item) for name, item in value.items()}
    return without_credentials(value) if isinstance(value, str) else value
