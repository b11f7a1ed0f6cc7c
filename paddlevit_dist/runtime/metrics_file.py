"""Read ``metrics.jsonl``, the events of a run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .text_files import parse_json

METRICS = "metrics.jsonl"
_LONGEST_EVENT = 1 << 22  # bytes of a line


def recorded_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``metrics.jsonl``; nothing if the file does not exist, an OSError if it cannot be read.

    A line that is not an event, such as the last line of a run that was killed, has the kind "unreadable".
    """
    with contextlib.suppress(FileNotFoundError), open(folder / METRICS, "rb") as file:
        while line := file.readline(_LONGEST_EVENT):
            if line.strip():
                yield _parse(line)


def _parse(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        event = parse_json(line)
        if isinstance(event, dict) and isinstance(event.get("kind"), str):
            return event
    return {"kind": "unreadable", "text": line.rstrip(b"\r\n").decode(errors="backslashreplace")}
