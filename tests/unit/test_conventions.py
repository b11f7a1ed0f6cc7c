"""Conventions that no linter checks."""

from support.processes import ROOT

UNIT = ROOT / "tests" / "unit"


def is_named_after_a_module(path) -> bool:
    """Whether ``unit/x/test_name.py`` or ``unit/x/test_name_aspect.py`` tests a module ``name`` of the folder ``x``."""
    folder, name = path.parent.relative_to(UNIT), path.stem.removeprefix("test_")
    homes = [ROOT / "paddlevit_dist" / folder, ROOT / folder]  # the latter for tools/
    modules = {file.stem for home in homes for file in home.glob("*.py")} | {homes[0].name}
    return any(name == module or name.startswith(f"{module}_") for module in modules)


def test_a_unit_test_file_is_named_after_the_module_that_it_tests():
    files = set(UNIT.rglob("test_*.py")) - {UNIT / "test_conventions.py"}
    assert [str(path.relative_to(UNIT)) for path in sorted(files) if not is_named_after_a_module(path)] == []
