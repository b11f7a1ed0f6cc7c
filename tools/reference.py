"""Write docs/reference/keys.md and commands.md from the tables of keys, flags and commands, and the names of models.

tests/nightly/pages/test_reference.py fails if the pages differ from what this program writes, and
tests/unit/core/registry/test_model_names.py if paddlevit_dist/core/registry/model_names.json does.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paddlevit_dist.core.commands import COMMANDS, import_command, list_commands
from paddlevit_dist.core.commands.parser import build_parser
from paddlevit_dist.core.registry.model_names import FILE as MODEL_NAMES
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime.lazy_names import import_object
from paddlevit_dist.core.settings.command_line import all_flags, describe_flag
from paddlevit_dist.core.settings.help import ABOUT
from paddlevit_dist.core.settings.key import Flag, Key
from paddlevit_dist.core.settings.key_tables import common_tables
from paddlevit_dist.core.settings.table import find_keys

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_WRITTEN_BY = "<!-- written by tools/reference.py: change the tables that it reads, not this page -->"
_EVERY_RUN = "every run"


def pages() -> dict[str, str]:
    """Return the content of each page, by file name."""
    return {"keys.md": keys_page(), "commands.md": commands_page()}


def model_names() -> str:
    """Format the names of all families, a line each, with the fields of their inputs that are not the defaults."""
    families = []
    for location in REGISTRY.families:
        family = import_object(location)
        inputs = getattr(family, "expected_inputs", {})
        rows = [f"  {json.dumps(name)}: {json.dumps(_input_fields(inputs.get(name)))}" for name in family.variants]
        families.append(f" {json.dumps(location)}: {{\n" + ",\n".join(rows) + "\n }")
    return "{\n" + ",\n".join(families) + "\n}\n"


def _input_fields(expected: Any) -> dict[str, Any] | None:
    if expected is None:
        return None
    return {name: value for name, value in expected._asdict().items() if value != expected._field_defaults[name]}


def keys_page() -> str:
    """Format all keys: a section for the tasks that read them, a table for each section of a file."""
    groups: dict[str, dict[str, list[Key]]] = {}
    for key in find_keys().values():
        section = key.name.rpartition(".")[0]
        groups.setdefault(_readers(key.name), {}).setdefault(section, []).append(key)
    lines = [_WRITTEN_BY, "# Keys", ""]
    lines += [
        "Set in a YAML file (`TRAIN:` on a line, `BASE_LR: 3e-4` indented below it) or after a command's flags "
        "(`TRAIN.BASE_LR 3e-4`), which win. `-show_config` prints all values of a run with the source of each, "
        "`-h keys -cfg=FILE` the keys that the file's task reads. A key that the chosen task does not read is an "
        "error.",
        "",
    ]
    for readers, sections in groups.items():
        title = "Every run" if readers == _EVERY_RUN else f"TASK {readers}"
        lines += [f"## {title}", ""]
        for section, rows in sections.items():
            lines += [
                f"### {section or 'Other keys'} of {readers}",
                "",
                "| key | values | default | |",
                "|---|---|---|---|",
            ]
            lines += map(_key_row, rows)
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _readers(name: str) -> str:
    if any(key.name == name for table in common_tables() for key in table.keys):
        return _EVERY_RUN
    return " and ".join(task for task in REGISTRY.tasks if name in find_keys(task))


def _key_row(key: Key) -> str:
    name = f"`{key.name}`" + (f" `-{key.flag.name}`" if key.flag else "")
    shown = list(key.default) if isinstance(key.default, tuple) else key.default
    default = "not set" if key.default is None else f"`{shown}`"
    return f"| {name} | {_escaped(key.expected())} | {default} | {_escaped(key.meaning)} |"


def commands_page() -> str:
    """Format all commands with their options; commands that take the main flags refer to their table."""
    lines = [_WRITTEN_BY, "# Commands", ""]
    lines += [
        "`paddlevit-dist COMMAND`, or `python -m paddlevit_dist COMMAND`. Options are written with one hyphen or two; "
        "`-h` after a command shows them. A path may begin with `~`; where weights are expected, a run's folder means "
        "its best checkpoint, else its last.",
        "",
        "| command | |",
        "|---|---|",
        *(f"| [`{name}`](#{name.replace(' ', '-')}) | {_escaped(COMMANDS[name][1])} |" for name in list_commands()),
        "",
        "## Flags of the main job",
        "",
        *_flag_tables(),
    ]
    for name in list_commands():
        lines += [f"## {name}", "", *_command(name), ""]
    return "\n".join(lines).rstrip() + "\n"


def _flag_tables() -> Iterator[str]:
    yield "Each works with one dash or two, as `-flag=value` or `-flag value`. [Keys](keys.md) can follow: `KEY VALUE`."
    groups: dict[str, list[Flag]] = {}
    for flag in all_flags().values():
        groups.setdefault(flag.group, []).append(flag)
    for group, members in groups.items():
        yield from ("", f"### {group[0].upper()}{group[1:]}", "", "| flag | sets | |", "|---|---|---|")
        for flag in members:
            form = f"-{flag.name}={flag.argument}" if flag.argument else f"-{flag.name}"
            set_keys = " or ".join(
                f"`{key.name}`" for key in find_keys().values() if key.flag and key.flag.name == flag.name
            )
            yield f"| `{form}` | {set_keys} | {_escaped(describe_flag(flag))} |"
    yield ""


def _command(name: str) -> Iterator[str]:
    parser = build_parser(import_command(name))
    if parser is None:
        meaning = f"{ABOUT[name].meaning} Takes the [main flags](#flags-of-the-main-job)."
        rows = []
    else:
        meaning = parser.description or ""
        rows = parser.rows()
    yield from (_sentence(_escaped(meaning)), "")
    if rows:
        yield from ("| | |", "|---|---|")
    for form, text in rows:
        yield f"| `{_escaped(form)}` | {_escaped(text)} |"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!")) else ".")


def _escaped(text: str) -> str:
    """Escape Markdown's special characters in a table's cell."""
    for sign in "|*<":
        text = text.replace(sign, "\\" + sign)
    return text


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)
    MODEL_NAMES.write_text(model_names(), encoding="utf-8")
    print(MODEL_NAMES)
