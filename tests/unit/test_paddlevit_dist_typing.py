"""The public names as type checkers see them."""

import ast

from support.processes import ROOT

import paddlevit_dist

PACKAGE = ROOT / "paddlevit_dist"


def test_the_stub_has_the_names_of_the_package_from_the_modules_that_define_them():
    told = {}
    for line in ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(line, ast.ImportFrom):
            assert line.level == 1 and all(one.asname == one.name for one in line.names)  # else it is not exported
            told.update((one.name, line.module) for one in line.names)
    assert told == paddlevit_dist._NAMES
    assert sorted(told) == paddlevit_dist.__all__ == dir(paddlevit_dist)
    assert (PACKAGE / "py.typed").is_file()
