"""What the pages of keys and commands, and the list ``keys.txt``, say about the keys of a package."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime.lazy_names import import_object
from paddlevit_dist.core.settings import key_tables
from paddlevit_dist.core.settings.table import KeyTable
from support.processes import ROOT

_REFERENCE = ROOT / "docs" / "reference"
_LIST = Path(__file__).with_name("keys.txt")


@cache
def _program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


@cache
def _read(page: str) -> list[str]:
    return (_REFERENCE / page).read_text(encoding="utf-8").splitlines()


def list_tables(package: str) -> dict[str, KeyTable]:
    """The tables of keys below a package, by location."""
    places = [*REGISTRY.key_tables, *(place for places in REGISTRY.task_tables.values() for place in places)]
    mine = (place for place in dict.fromkeys(places) if place.startswith(f"paddlevit_dist.{package}."))
    of_every_run = {"every run": key_tables.common_tables()[0]} if package == "core.settings" else {}
    return of_every_run | {place: import_object(place) for place in mine}


def check_rows(package: str) -> None:
    """Compare the keys of a package with the pages: values, default, meaning, flag and the flag's section and order."""
    rows = {match[1]: line for line in _read("keys.md") if (match := re.match(r"\| `([A-Z][A-Z0-9_.]+)`", line))}
    group, flags = "", []
    for line in _read("commands.md"):
        group = line.removeprefix("### ") if line.startswith("#") else group
        if match := re.match(r"\| `-(\w+)=?([^`]*)` \| (.*?) \|", line):
            flags.append((group.lower(), match[1], match[2] or None, re.findall("`([^`]+)`", match[3])))
    for table in list_tables(package).values():
        for key in table.keys:
            assert rows[key.name] == _program()._key_row(key)
            if key.flag is not None:
                row = next(row for row in flags if row[1] == key.flag.name and key.name in row[3])
                assert row[:3] == (key.flag.group, key.flag.name, key.flag.argument)
    lines = [line for line in _program()._flag_tables() if line]
    shown = _read("commands.md")
    start = shown.index(lines[0])
    assert [line for line in shown[start:] if line][: len(lines)] == lines


class ListedKey(NamedTuple):
    """A line of ``keys.txt``, whose first lines say what the parts mean."""

    name: str
    effect: str
    training_only: bool
    who: str
    why: str


def read_list() -> list[ListedKey]:
    """All keys of ``keys.txt``, in its order."""
    listed = []
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"(\S+) (\w+)( training_only)? \| (\w+): (.+)", line)
        assert match or line.startswith("#"), f"{_LIST}: {line}"
        if match:
            listed.append(ListedKey(match[1], match[2], match[3] is not None, match[4], match[5]))
    return listed


def check_effects(package: str) -> None:
    """Compare what another value of a key changes, and whether training alone reads it, with ``keys.txt``."""
    expected = {key.name: (key.effect, key.training_only) for key in read_list()}
    for table in list_tables(package).values():
        for key in table.keys:
            assert expected.get(key.name) == (key.effect, key.training_only), f"{_LIST} needs a line for {key.name}"
