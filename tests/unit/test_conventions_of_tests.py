"""How many inner names of the package tests hold: each makes a change of the package dearer.

Tests come in by the door: public functions, commands, files and variables of the environment. The numbers only fall.
"""

import ast
from collections import Counter

from support.processes import ROOT

PATCHES = {"setattr", "delattr"}  # variables of the environment and folders are a door
OF_OTHERS = {"_replace", "_asdict", "_fields", "_make", "_C_ops"}  # public in spite of their names, or Paddle's

MOST = {"patches": 1217, "private names": 308, "private attributes": 947, "files with inner errors": 6}


def list_inner_names(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if (node.func.attr in PATCHES and "patch" in owner) or owner in ("mock", "mock.patch", "unittest.mock"):
                yield "patches"
                names = [word.value for word in node.args if isinstance(word, ast.Constant)]
                yield from ("private names" for name in names if "._" in f".{name}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paddlevit_dist"):
            yield from ("private names" for name in node.names if name.name.startswith("_"))
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
            if node.attr not in OF_OTHERS and ast.unparse(node.value) not in ("self", "cls", "super()"):
                yield "private attributes"


def test_tests_do_not_hold_more_inner_names_than_before():
    found = Counter(dict.fromkeys(MOST, 0))
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found.update(list_inner_names(ast.parse(text)))
        found["files with inner errors"] += "import UserError" in text and "runtime.errors import" in text
    assert all(found[kind] <= most for kind, most in MOST.items()), dict(found)
