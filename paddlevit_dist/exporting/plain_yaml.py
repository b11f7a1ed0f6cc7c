"""YAML for people and for readers that know little of it."""

from __future__ import annotations

from typing import Any

import yaml


class _Plain(yaml.SafeDumper):
    """A list that occurs twice is written twice, and a short list of numbers stays on its line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _numbers_on_one_line(dumper: yaml.SafeDumper, values: Any) -> yaml.Node:
    is_short = all(value is None or isinstance(value, (int, float)) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=is_short)


_Plain.add_representer(list, _numbers_on_one_line)


def as_yaml(content: Any) -> str:
    """Plain values as YAML, in their order."""
    return yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)
