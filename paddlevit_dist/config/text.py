"""A configuration as text: YAML that loads back to the same values, and the tree with the source of each value."""

from __future__ import annotations

from typing import Any

import yaml
from yacs.config import CfgNode

from .defaults import leaves

WIDEST = 72  # columns, before a comment that stands further right than its neighbours


def dump_yaml(values: CfgNode) -> str:
    """A YAML file that ``load`` turns into equal values (BASE is left out: its files are merged already)."""
    return "".join(f"{line}\n" for line, _ in _lines(values))


def describe(values: CfgNode, sources: dict[str, str]) -> str:
    """The same tree with the source of each value in a column of comments."""
    lines = _lines(values)
    column = max(len(line) for line, name in lines if name is None or len(line) <= WIDEST)
    return "\n".join(line if name is None else f"{line:<{column}}  # {sources[name]}" for line, name in lines)


def _lines(values: CfgNode) -> list[tuple[str, str | None]]:
    """Lines of YAML; those of a key with its dotted name, those of a section with None."""
    lines: list[tuple[str, str | None]] = []
    open_sections: list[str] = []
    for name, value in leaves(values):
        *sections, last = name.split(".")
        if name == "BASE":
            continue
        for depth, section in enumerate(sections):
            if open_sections[: depth + 1] != sections[: depth + 1]:
                lines.append((f"{'  ' * depth}{section}:", None))
        open_sections = sections
        lines.append((f"{'  ' * len(sections)}{last}: {_scalar(value)}", name))
    return lines


def _scalar(value: Any) -> str:
    quoted = isinstance(value, str) and not value.isprintable()
    text = yaml.safe_dump(
        value, default_flow_style=True, default_style='"' if quoted else None, width=10**6, allow_unicode=True
    )
    return text.replace("\n...\n", "").strip()
