"""The versions that a command runs with, found without importing Paddle."""

from __future__ import annotations

import importlib.util
import platform
import re
from pathlib import Path

from . import __version__


def versions() -> str:
    """This package, the Paddle that would be imported, and Python."""
    return f"paddlevit_dist {__version__}, {_paddle_version()}, Python {platform.python_version()}"


def _paddle_version() -> str:
    found = importlib.util.find_spec("paddle")
    if found is None or found.origin is None:
        return "no paddle"
    # Importing it takes a second; its version is in a file of a few lines.
    file = Path(found.origin).parent / "version" / "__init__.py"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    stated = re.search(r"^full_version\s*=\s*['\"](.+)['\"]", text, re.MULTILINE)
    return f"paddle {stated.group(1) if stated else 'of unknown version'}"
