"""The public names: what each package exports, and what type checkers see of it."""

import ast
import importlib

import paddle  # noqa: F401 - its import takes longer than a unit test may
import pytest
from support.processes import ROOT

import paddlevit_dist

PACKAGE = ROOT / "paddlevit_dist"
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in PACKAGE.rglob("__init__.py")
    if path.with_suffix(".pyi").is_file()
)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_of_a_package_imports(name):
    package = importlib.import_module(name)
    assert package.__all__ == sorted(package.__all__)
    for public in package.__all__:
        assert getattr(package, public) is not None


@pytest.mark.parametrize("stub", sorted(PACKAGE.rglob("__init__.pyi")), ids=lambda stub: stub.parent.name)
def test_a_stub_has_the_names_of_its_package_from_the_modules_that_define_them(stub):
    package = importlib.import_module(".".join(stub.parent.relative_to(ROOT).parts))
    imported, exported = {}, []
    for line in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(line, ast.ImportFrom):
            assert line.level == 1 and all(one.asname is None for one in line.names)
            imported.update((one.name, line.module) for one in line.names)
        elif isinstance(line, ast.Assign):
            exported = ast.literal_eval(line.value)
    assert exported == sorted(imported) == package.__all__ == dir(package)


def test_a_package_with_lazy_names_has_a_stub_and_the_wheel_has_it():
    lazy = [path for path in PACKAGE.rglob("__init__.py") if "lazy_names(" in path.read_text(encoding="utf-8")]
    assert len(lazy) > 8 and [path for path in lazy if not path.with_suffix(".pyi").is_file()] == []
    assert '"": ["*.pyi"]' in (ROOT / "setup.py").read_text(encoding="utf-8")
    assert (PACKAGE / "py.typed").is_file()
    assert paddlevit_dist.__version__
