"""A value that somebody gave to a key, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Setting:
    """``source`` is "command line" or the file; ``place`` is for messages: file and line, or the flag."""

    name: str
    value: Any
    source: str
    place: str
