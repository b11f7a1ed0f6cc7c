"""Tables of the registered networks: options, variants and what each family declares, as plain values.

``python -m support.networks.variants`` writes what ``check_tables`` compares them with, after a table was changed on
purpose. It asks only the families that the file lists: to add one, add ``"its name": {}`` first.
"""

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.model import Model

FILE = Path(__file__).with_suffix(".json")
PARTS = ("models", "detection", "keypoints", "points", "volumes")  # the first three are of the images' folder
_OF_CODE = ("key_maps", "variants", "expected_inputs", "is_capturable")


def _make_plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _make_plain(each) for key, each in value.items()}
    return [_make_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _list_declared(cls: type[Model]) -> dict[str, Any]:
    values = {name: inspect.getattr_static(cls, name) for name in dir(cls) if name[0] != "_" and name not in _OF_CODE}
    is_code = (property, classmethod, staticmethod)
    return {name: value for name, value in values.items() if not callable(value) and not isinstance(value, is_code)}


def _find_place(cls: type) -> str:
    """The module of a family below the package, or below the images' folder."""
    return cls.__module__.removeprefix("paddlevit_dist.").removeprefix("images.")


def list_tables(part: str) -> dict[str, Any]:
    """List the tables of the families below a part of the package, by class."""
    names_of: dict[type[Model], list[str]] = {}
    for name in REGISTRY.models:
        cls = resolve("model", name)
        if isinstance(cls, type) and f"{_find_place(cls)}.".startswith(f"{part}."):
            names_of.setdefault(cls, []).append(name)
    return {
        f"{_find_place(cls)}.{cls.__name__}": _make_plain(
            {
                "options": cls.options(),
                "declared": _list_declared(cls),
                "inputs": getattr(cls, "expected_inputs", {}),
                "variants": {name: cls.variants.get(name) for name in names},
            }
        )
        for cls, names in names_of.items()
    }


def check_tables(part: str) -> None:
    """Compare the tables of the families below a part of the package that the file lists."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    found = list_tables(part)
    listed = {name: tables for name, tables in stored.items() if name.startswith(f"{part}.")}
    assert listed and listed.keys() <= found.keys()
    for name, tables in listed.items():
        for kind, table in tables.items():
            assert found[name][kind] == table, f"{name}: {kind}: see the docstring of support/networks/variants.py"


if __name__ == "__main__":
    listed = json.loads(FILE.read_text(encoding="utf-8"))
    tables = {name: table for part in PARTS for name, table in list_tables(part).items()}
    lines = (f"{json.dumps(name)}: {json.dumps(tables[name])}" for name in sorted(listed))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
