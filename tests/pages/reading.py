"""The commands on a page, in the order a reader meets them."""

from __future__ import annotations

import re
from typing import List

from support.processes import ROOT

# In the order in which the README leads to them; the Chinese README has the README's own commands.
PAGES = [
    "README.md",
    "docs/running.md",
    "docs/images.md",
    "docs/models.md",
    "docs/finetune.md",
    "docs/pointclouds.md",
    "docs/instances.md",
    "docs/volumes.md",
    "docs/exporting.md",
    "docs/formats.md",
    "docs/benchmarks.md",
    "docs/development.md",
]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_STARTS = ("make ", ". ", "./", "sh ", "python ", "pip ", "paddlevit-dist ", "CUDA_VISIBLE_DEVICES=")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands_of(page: str) -> List[str]:
    """The lines of blocks without a language or of shell, with lines that end in a backslash joined, without comments.

    A block of anything else has to say what it is: every line of these must be a command.
    """
    commands = []
    for language, content in _BLOCK.findall(text_of(page)):
        if language not in ("", "bash", "sh"):
            continue
        for line in content.replace("\\\n", " ").splitlines():
            command = " ".join(re.sub(r"\s+# .*$", "", line).split())
            if command:
                assert command.startswith(_STARTS), f"{page}: '{command}' is no command; is its block ```text?"
                commands.append(command)
    return commands


def inline_commands_of(page: str) -> List[str]:
    """Commands inside sentences and tables."""
    outside = _BLOCK.sub("", text_of(page)).replace("\n", " ")
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", outside) if code.startswith(_STARTS)]
