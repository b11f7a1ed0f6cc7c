"""The page of errors quotes messages that the package still has, so that a reader finds them by their text."""

import ast
import re
from pathlib import Path

from support.processes import ROOT


def list_texts(path: Path) -> list[str]:
    """Texts in a file; what a message fills in is a tab."""
    texts = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "\t" for part in node.values)
            texts.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    return texts


def test_every_message_on_the_page_is_one_of_the_package():
    page = (ROOT / "docs" / "guides" / "errors.md").read_text(encoding="utf-8")
    messages = re.findall(r"^### `([^`]+)`$", page, re.MULTILINE)
    texts = [text for path in (ROOT / "paddlevit_dist").rglob("*.py") for text in list_texts(path)]
    unknown = []
    for message in messages:
        parts = [re.escape(part.strip(" .()")) for part in message.split("...") if part.strip(" .()")]
        pattern = re.compile(".*?".join(parts), re.DOTALL)
        if not any(pattern.search(text) for text in texts):
            unknown.append(message)
    assert unknown == [] and len(messages) > 25
