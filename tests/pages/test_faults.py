"""The page of faults: every row names a test that exists."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from support.processes import ROOT

PAGE = ROOT / "docs" / "faults.md"
COLUMNS = ["cause", "what is printed", "seconds", "exit code", "test"]


def rows() -> Iterator[tuple[str, list]]:
    """Section and cells of each row of the page's tables, except the one of exit codes."""
    section = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("|") and section:
            yield section, [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def test_every_section_has_a_table_with_all_columns():
    sections = {line[3:] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("## ")}
    headers = {section: cells for section, cells in rows() if cells[0] == COLUMNS[0]}
    assert set(headers) == sections and len(sections) >= 8
    assert all(cells == COLUMNS for cells in headers.values())
    assert all(len(cells) == len(COLUMNS) for _, cells in rows())


@functools.cache
def functions_of(file):
    tree = ast.parse(Path(ROOT, file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_tests_of_each_row_exist():
    causes = [(cells[0], cells[-1]) for _, cells in rows() if cells[0] != COLUMNS[0] and set(cells[0]) != {"-"}]
    assert causes
    for cause, tests in causes:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, f"{cause}: no test is named in {tests!r}"
        missing = [f"{file}::{function}" for file, function in named if function not in functions_of(file)]
        assert not missing, f"{cause}: there is no {missing}"
