"""``paddlevit-dist schema``: print the keys as a JSON schema, for completion and checks of YAML files in editors."""

from typing import Any

from ..runtime.json_format import format_json
from ..settings.key import Key
from ..settings.key_tables import key_tables
from ..settings.table import find_keys
from .parser import CommandParser

_TYPES = {
    "int": ["integer"],
    "float": ["number"],
    "number": ["number"],
    "bool": ["boolean"],
    "text": ["string"],
    "path": ["string"],
    "switch": ["boolean", "string"],
    "options": ["object"],
}


def run(words: list[str]) -> None:
    """Print the schema."""
    parser = CommandParser(
        "schema",
        "Print the keys of all tasks as a JSON schema. Editors with yaml-language-server (VS Code's YAML, Vim, Emacs) "
        "complete and check a file whose first line is '# yaml-language-server: $schema=keys.json'.",
        ("> keys.json",),
        imports=True,
    )
    parser.parse_args(words)
    print(format_json(schema(), indent=1))


def schema() -> dict[str, Any]:
    """Build the schema (draft 7) of a YAML file: sections are objects, PaddleViT's other names are deprecated."""
    root = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Keys of paddlevit_dist", **_section()}
    for key in find_keys().values():
        _put(root, key.name, {"description": key.meaning, "default": key.default, **_values(key)})
    for table in key_tables():
        for name, new_name in table.renamed.items():
            _put(root, name, {"description": f"renamed to {new_name}", "deprecated": True})
        for name, reason in table.ignored_keys.items():
            _put(root, name, {"description": f"not needed: {reason}", "deprecated": True})
    return root


def _section() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


def _put(root: dict[str, Any], name: str, row: dict[str, Any]) -> None:
    *sections, last = name.split(".")
    for section in sections:
        root = root["properties"].setdefault(section, _section())
    root["properties"].setdefault(last, row)


def _values(key: Key) -> dict[str, Any]:
    """Describe the values of a key in a file, in the terms of JSON schema."""
    single = [{"enum": list(key.choices)}] if key.choices else _single_value(key)
    several: dict[str, Any] = {"type": "array", "items": {"anyOf": single}}
    if key.length is not None:
        several.update(minItems=key.length, maxItems=key.length)
    allowed = single
    if key.many:
        allowed = [several, {"type": "string"}, *single]
    elif key.or_many:
        allowed = [*single, several]
    if key.optional:
        allowed = [*allowed, {"enum": [None, "None", "none"]}]
    return allowed[0] if len(allowed) == 1 else {"anyOf": allowed}


def _single_value(key: Key) -> list[dict[str, Any]]:
    types: dict[str, Any] = {"type": _TYPES[key.kind][0] if len(_TYPES[key.kind]) == 1 else _TYPES[key.kind]}
    if key.within is None:
        return [types]
    low, high = key.within.low, key.within.high
    if low > -float("inf"):
        types["exclusiveMinimum" if key.within.low_open else "minimum"] = low
    if high < float("inf"):
        types["exclusiveMaximum" if key.within.high_open else "maximum"] = high
    return [types, *([{"enum": list(key.within.also)}] if key.within.also else [])]
