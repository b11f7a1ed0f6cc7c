"""MODEL.OPTIONS: the key whose value has values by name; MODEL.OPTIONS.NAME sets one of them."""

from collections.abc import Mapping
from typing import Any

from .key import OPTIONS


def split_option(name: str, value: object) -> tuple[str, object]:
    """Return MODEL.OPTIONS and {"width": value} for the name MODEL.OPTIONS.width; other names with their values."""
    if not name.startswith(f"{OPTIONS}."):
        return name, value
    for part in reversed(name.removeprefix(f"{OPTIONS}.").split(".")):
        value = {part: value}
    return OPTIONS, value


def merge_options(before: object, later: object) -> Any:
    """Return the options of both; a mapping in both is merged, and None, without options, drops all before."""
    if not (isinstance(before, Mapping) and isinstance(later, Mapping)):
        return later
    return {**before, **{name: merge_options(before.get(name), value) for name, value in later.items()}}
