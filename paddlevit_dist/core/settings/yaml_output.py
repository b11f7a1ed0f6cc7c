"""Format a configuration as YAML: to store with a run, or to show with the source of each value."""

import yaml
from yacs.config import CfgNode

from ..runtime.help_pages import COLUMNS
from .table import public_leaves


def dump_yaml(values: CfgNode) -> str:
    """Format the task's keys as YAML that ``load`` turns into equal values, except for passwords and tokens in URLs.

    BASE is omitted, as its files are merged.
    """
    return "".join(f"{line}\n" for line, _ in _lines(values))


def describe(values: CfgNode, sources: dict[str, str]) -> str:
    """Format the tree as YAML with the source of each value in a column of comments.

    A long value shifts its comment; a very long value moves it to the line above; a long source is cut at its start.
    """
    lines = _lines(values)
    column = max(len(text) for text, _ in lines if len(text) <= COLUMNS // 2)
    described = []
    for line, name in lines:
        if name is None:
            described.append(line)
            continue
        left = COLUMNS - len(line) - len("  # ")
        source = sources[name]
        if left < len("command line"):
            described += [f"{line[: len(line) - len(line.lstrip())]}# {_end(source, COLUMNS // 2)}", line]
            continue
        source = _end(source, left)
        described.append(f"{line:<{min(column, COLUMNS - len(source) - len('  # '))}}  # {source}")
    return "\n".join(described)


def _end(text: str, length: int) -> str:
    return text if len(text) <= length else f"...{text[3 - length :]}"


def _lines(values: CfgNode) -> list[tuple[str, str | None]]:
    """Return the lines of YAML: for a key with its dotted name, for a section with None."""
    lines: list[tuple[str, str | None]] = []
    open_sections: list[str] = []
    for name, value in public_leaves(values).items():
        *sections, last = name.split(".")
        for depth, section in enumerate(sections):
            if open_sections[: depth + 1] != sections[: depth + 1]:
                lines.append((f"{'  ' * depth}{section}:", None))
        open_sections = sections
        lines.append((f"{'  ' * len(sections)}{last}: {_scalar(value)}", name))
    return lines


def _scalar(value: object) -> str:
    quoted = isinstance(value, str) and not value.isprintable()
    text = yaml.safe_dump(
        value, default_flow_style=True, default_style='"' if quoted else None, width=10**6, allow_unicode=True
    )
    return text.replace("\n...\n", "").strip()
